"""layers/fused: convolution, ReLU and max-pool in one kernel, on the tensor cores."""

from collections.abc import Iterator

from mini_dnn import quads
from mini_dnn.variant import ConvPoolShape

POOLS = (1, 2, 4)  # windows within four pixels
GROUPS = 9  # pairs of rows in a tile of a warpgroup


def cuts(s: ConvPoolShape) -> Iterator[quads.Tiling]:
    """Ways to divide the work: whole images if they fit."""
    if quads.fits_warpgroups(s):
        for bands in range(1, s.P + 1):
            yield quads.cut(
                s, bands, warps=4, blocks=4, inputs=1, outputs=2, pool=s.pool, max_rows=12, groups=GROUPS
            )
    for bands in range(1, s.P + 1):
        if s.C > 2:
            yield quads.cut(s, bands, warps=4, blocks=4, inputs=1, outputs=2, pool=s.pool, max_rows=12)
        else:
            yield quads.cut(s, bands, warps=5, blocks=2, inputs=1, outputs=1, pool=s.pool, max_rows=20)


VARIANT = quads.variant(
    cuts,
    op="conv2d_relu_pool",
    refuses=lambda s: (
        "" if s.pool in POOLS else f"it pools by {POOLS}, not by {s.pool}: windows lie within four pixels"
    ),
    parent="layers/custom",
    precision="fp16",
    idea="a pooling window is held by a few lanes, so the output of the convolution never leaves registers",
)
