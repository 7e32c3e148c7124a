"""attention/v0_naive: one thread per element of o."""

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Launch, Variant, ceil_div

THREADS = 256


def plan(p: AttentionShape) -> list[Launch]:
    """One launch: a thread for each element of o, heads one after the other."""
    strides = map(np.int64, (*p.strides, *p.out_strides))
    args = (*p.buffers, p.H, p.T, p.factor, p.part, *strides)
    return [Launch("attention", (p.B * p.H * ceil_div(p.T * p.d, THREADS),), (THREADS,), args)]


VARIANT = Variant(
    op="attention",
    plan=plan,
    defines=lambda p: {"D": p.d, "THREADS": THREADS, "IN_HALF": p.dtype == "fp16", "CAUSAL": p.causal},
    idea="one thread per element of o, directly from the formula: all scores are computed twice",
)
