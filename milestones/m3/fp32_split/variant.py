"""m3/fp32_split: the final kernel with fp32 accuracy from the tensor cores."""

from collections.abc import Iterator

from mini_dnn import quads
from mini_dnn.variant import ConvShape, ceil_div

MAX_BAND = 40  # output rows of a unit if a quad is several pixels
GROUPS = 6  # pairs of rows in a tile of a warpgroup: registers for three kinds of sums and two of weights


def cuts(s: ConvShape) -> Iterator[quads.Tiling]:
    """Ways to divide the work."""
    if quads.fits_warpgroups(s):
        for bands in range(1, s.P + 1):
            yield quads.cut(
                s, bands, warps=4, blocks=2, inputs=0, outputs=1, split=True, max_rows=3, groups=GROUPS
            )
    for bands in range(ceil_div(s.P, 18 if s.C > 2 else MAX_BAND), s.P + 1):
        if s.C > 2:
            yield quads.cut(s, bands, warps=4, blocks=3, inputs=1, outputs=1, split=True, max_rows=3)
        else:
            yield quads.cut(s, bands, warps=10, blocks=2, inputs=2, outputs=1, split=True)


VARIANT = quads.variant(
    cuts,
    op="conv2d",
    parent="layers/custom",
    precision="fp32",
    compute_type="3xfp16",
    idea="two halves per operand and three products: fp32 accuracy from the tensor cores",
)
