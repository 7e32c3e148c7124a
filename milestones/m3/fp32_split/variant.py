"""m3/fp32_split: the final kernel with fp32 accuracy from the tensor cores."""

from dataclasses import replace

from mini_dnn.quads import COMPACT_BYTES, SHARED_BYTES, Tiling, cut, defines, fits, plan, scratch
from mini_dnn.variant import ConvShape, Variant, ceil_div

MAX_BAND = {1: 40, 2: 40, 3: 18, 4: 18}  # output rows of a unit, by channels of the input
MAX_ROWS = 3  # of quads in a strip where a quad is one pixel: registers for the sums of two products


def tiling(s: ConvShape, block_bytes: int) -> Tiling | None:
    """How the work is cut; None: the shape is for conv_direct."""
    if not fits(s):
        return None
    for bands in range(ceil_div(s.P, MAX_BAND[s.C]), s.P + 1):
        if s.C > 2:
            t = cut(s, bands, 4, 3, 1, 1, split=True, max_rows=MAX_ROWS)
        else:
            t = cut(s, bands, 10, 2, 2, 1, split=True)
        if t.within(block_bytes):
            return t
    return None


def make(block_bytes: int) -> Variant:
    """The kernel in blocks of at most so many bytes of shared memory."""
    return Variant(
        op="conv2d",
        plan=lambda s: plan(s, tiling(s, block_bytes)),
        scratch=lambda s: scratch(s, tiling(s, block_bytes)),
        defines=lambda s: defines(s, tiling(s, block_bytes)),
        parent="layers/custom",
        precision="fp32",
        idea="two halves for each operand, three products: fp32 accuracy from the tensor cores",
    )


VARIANT = replace(make(SHARED_BYTES), compact=make(COMPACT_BYTES))
