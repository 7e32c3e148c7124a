"""m3/fp32_split: the final kernel with fp32 accuracy from the tensor cores."""

from collections.abc import Iterator

from mini_dnn.quads import Tiling, cut, defines, first_that_fits, fits, plan, scratch
from mini_dnn.variant import ConvShape, Variant

MAX_BAND = 20  # output rows of a unit of work
WARPS, BLOCKS = 6, 2  # of a block; on a multiprocessor: 168 registers a thread
MAX_ROWS = 2  # of quads in a strip where filters are large: registers for the sums of two products
BUFFERS = ((2, 2), (2, 1))  # of bands of the input, of slabs of the output


def tilings(s: ConvShape) -> Iterator[Tiling]:
    """From tall bands to flat ones, with more buffers first."""
    for bands in range(-(-s.P // MAX_BAND), s.P + 1):
        for inputs, outputs in BUFFERS:
            yield cut(s, bands, WARPS, BLOCKS, inputs, outputs, split=True, max_rows=MAX_ROWS)


def tiling(s: ConvShape) -> Tiling | None:
    """How the work is cut; None: the shape is for conv_direct."""
    return first_that_fits(tilings(s)) if fits(s) else None


VARIANT = Variant(
    op="conv2d",
    plan=lambda s: plan(s, tiling(s)),
    scratch=lambda s: scratch(s, tiling(s)),
    defines=lambda s: defines(s, tiling(s)),
    parent="layers/custom",
    precision="fp32",
    idea="two halves for each operand, three products: fp32 accuracy from the tensor cores",
)
