"""layers/custom: the final kernel, on quads and tensor cores."""

from collections.abc import Iterator

from mini_dnn import quads
from mini_dnn.variant import ConvShape, ceil_div

MAX_BAND = 20  # output rows of a unit if a quad is several pixels
GROUPS = 9  # pairs of rows in a tile of a warpgroup


def cuts(s: ConvShape) -> Iterator[quads.Tiling]:
    """Ways to divide the work.

    Whole images are stored by one copy each. Bands are used if an image would be too large, or has few
    channels.
    """
    if quads.fits_warpgroups(s):
        for bands in range(1, s.P + 1):
            yield quads.cut(s, bands, warps=4, blocks=2, inputs=1, outputs=1, groups=GROUPS)
    for bands in range(1 if s.C > 2 else ceil_div(s.P, MAX_BAND), s.P + 1):
        if s.C > 2:
            yield quads.cut(s, bands, warps=6, blocks=2, inputs=1, outputs=1)
        else:
            yield quads.cut(s, bands, warps=5, blocks=3, inputs=1, outputs=2)


VARIANT = quads.variant(
    cuts,
    op="conv2d",
    parent="m3/sliding_window",
    precision="fp16",
    idea="the image in quads is the tensor cores' operand; weights stay in registers, and copies overlap",
)
