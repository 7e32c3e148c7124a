"""layers/fused: convolution, ReLU and max-pool in one kernel, on the tensor cores."""

from dataclasses import replace

from mini_dnn.fused import ConvPoolShape
from mini_dnn.quads import COMPACT_BYTES, SHARED_BYTES, Tiling, cut, defines, fits, plan, scratch
from mini_dnn.variant import Variant

MAX_ROWS = {True: 12, False: 20}  # of quads in a strip, where a quad is one pixel or several
POOLS = (1, 2, 4)  # windows that lie within four pixels


def tiling(s: ConvPoolShape, block_bytes: int) -> Tiling | None:
    """How the work is cut: whole images if they fit; None: the shape is for conv_direct."""
    if not fits(s):
        return None
    for bands in range(1, s.P + 1):
        if s.C > 2:
            t = cut(s, bands, 4, 4, 1, 2, pool=s.pool, max_rows=MAX_ROWS[True])
        else:
            t = cut(s, bands, 5, 2, 1, 1, pool=s.pool, max_rows=MAX_ROWS[False])
        if t.within(block_bytes):
            return t
    return None


def make(block_bytes: int) -> Variant:
    """The kernel in blocks of at most so many bytes of shared memory."""
    return Variant(
        op="conv2d_relu_pool",
        plan=lambda s: plan(s, tiling(s, block_bytes)),
        scratch=lambda s: scratch(s, tiling(s, block_bytes)),
        defines=lambda s: defines(s, tiling(s, block_bytes), s.pool),
        refuses=lambda s: (
            "" if s.pool in POOLS else f"it pools by {POOLS}, not by {s.pool}: windows lie within four pixels"
        ),
        parent="layers/custom",
        precision="fp16",
        idea="a window of the pool lies in a few lanes: the convolution's output never leaves registers",
    )


VARIANT = replace(make(SHARED_BYTES), compact=make(COMPACT_BYTES))
