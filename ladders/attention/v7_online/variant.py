"""attention/v7_online: one pass, and scores stay in registers."""

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Launch, Variant, ceil_div

THREADS = 128  # 4 warps of 16 queries
ROWS = THREADS // 2
KEYS = 64  # of a block
LOG2_E = 1.4426950408889634  # the hardware computes powers of two


def refuses(p: AttentionShape) -> str:
    """The text of the limit: its products multiply halves."""
    return "it multiplies halves, and dtype is fp32; attention/v2 takes it" if p.dtype == "fp32" else ""


def plan(p: AttentionShape) -> list[Launch]:
    """One launch: a block for 64 queries of a head."""
    strides = map(np.int64, (*p.strides, *p.out_strides))
    args = (*p.buffers, p.H, p.T, float(np.float32(p.factor * LOG2_E)), p.part, *strides)
    grid = (p.B * p.H * ceil_div(p.T, ROWS),)
    return [Launch("attention", grid, (THREADS,), args, shared_bytes=2 * 2 * KEYS * p.d * 2)]


VARIANT = Variant(
    op="attention",
    plan=plan,
    defines=lambda p: {"D": p.d, "THREADS": THREADS, "KEYS": KEYS, "CAUSAL": p.causal},
    refuses=refuses,
    parent="attention/v6_k_coalesced",
    precision="fp16",
    min_arch=80,
    idea="one pass over the keys; scores become weights in the registers in which they were computed",
)
