"""attention/v2_coalesced: tiles are loaded in the order of memory."""

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Launch, Variant, ceil_div

ROWS = 16  # queries of a block
KEYS = 32  # keys in shared memory at a time
THREADS = 256


def defines(p: AttentionShape) -> dict[str, int]:
    """Compile-time constants: tiles, and sizes of the problem."""
    tiles = {"ROWS": ROWS, "KEYS": KEYS, "THREADS": THREADS}
    return {**tiles, "D": p.d, "IN_HALF": p.dtype == "fp16", "CAUSAL": p.causal}


def plan(p: AttentionShape) -> list[Launch]:
    """One launch: a block for each tile of queries, heads one after the other."""
    strides = map(np.int64, (*p.strides, *p.out_strides))
    args = (*p.buffers, p.H, p.T, p.factor, p.part, *strides)
    return [Launch("attention", (p.B * p.H * ceil_div(p.T, ROWS),), (THREADS,), args)]


VARIANT = Variant(
    op="attention",
    plan=plan,
    defines=defines,
    parent="attention/v1_shared",
    idea="neighbouring threads load neighbouring numbers of q, k and v",
)
