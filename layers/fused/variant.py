"""layers/fused: convolution, ReLU and max-pool in one kernel, on the tensor cores."""

from collections.abc import Iterator

from mini_dnn.fused import ConvPoolShape
from mini_dnn.quads import Tiling, cut, defines, first_that_fits, fits, plan, scratch
from mini_dnn.variant import Variant

MAX_BAND = 24  # output rows of the convolution in a unit of work
MAX_ROWS = 12  # of quads in a strip
WARPS, BLOCKS = 5, 3  # of a block; on a multiprocessor
BUFFERS = ((2, 2), (2, 1))  # of bands of the input, of slabs of the output
POOLS = (1, 2, 4)  # windows that lie within four pixels


def tilings(s: ConvPoolShape) -> Iterator[Tiling]:
    """From tall bands to flat ones, with more buffers first."""
    for bands in range(-(-s.P // MAX_BAND), s.P + 1):
        for inputs, outputs in BUFFERS:
            yield cut(s, bands, WARPS, BLOCKS, inputs, outputs, pool=s.pool, max_rows=MAX_ROWS)


def tiling(s: ConvPoolShape) -> Tiling | None:
    """How the work is cut; None: the shape is for conv_direct."""
    return first_that_fits(tilings(s)) if fits(s) else None


VARIANT = Variant(
    op="conv2d_relu_pool",
    plan=lambda s: plan(s, tiling(s)),
    scratch=lambda s: scratch(s, tiling(s)),
    defines=lambda s: defines(s, tiling(s), s.pool),
    refuses=lambda s: (
        "" if s.pool in POOLS else f"it pools by {POOLS}, not by {s.pool}: windows lie within four pixels"
    ),
    parent="layers/custom",
    precision="fp16",
    idea="a window of the pool lies in a few lanes: the convolution's output never leaves registers",
)
