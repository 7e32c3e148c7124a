"""attention/v4_warps: 64 queries per block, 16 per warp."""

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Launch, Variant, ceil_div

ROWS = 64  # queries of a block: 16 per warp
KEYS = 32  # keys in shared memory at a time
THREADS = 128


def refuses(p: AttentionShape) -> str:
    """The text of the limit: its products multiply halves."""
    return "" if p.dtype == "fp16" else f"it multiplies halves, and dtype is {p.dtype}; attention/v2 takes it"


def defines(p: AttentionShape) -> dict[str, int]:
    """Compile-time constants: tiles, and sizes of the problem."""
    return {"ROWS": ROWS, "KEYS": KEYS, "THREADS": THREADS, "D": p.d, "CAUSAL": p.causal}


def plan(p: AttentionShape) -> list[Launch]:
    """One launch: a block for each tile of queries, heads one after the other."""
    strides = map(np.int64, (*p.strides, *p.out_strides))
    args = (*p.buffers, p.H, p.T, p.factor, p.part, *strides)
    return [Launch("attention", (p.B * p.H * ceil_div(p.T, ROWS),), (THREADS,), args)]


VARIANT = Variant(
    op="attention",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="attention/v3_wmma",
    precision="fp16",
    idea="a block has 64 queries, 16 per warp: tiles are loaded for all, and each warp keeps its scores",
)
