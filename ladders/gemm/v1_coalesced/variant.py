"""gemm/v1_coalesced: one thread an element of c, a warp along a row."""

import numpy as np

from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import Launch, Variant, ceil_div

TILE = 32  # rows and columns of c in a block


def strides(p: GemmShape) -> tuple[np.int64, ...]:
    """How far apart rows and columns of a and of b lie: transposed, these change places."""
    a = (1, p.m) if p.layout[0] == "t" else (p.k, 1)
    b = (1, p.k) if p.layout[1] == "t" else (p.n, 1)
    return tuple(map(np.int64, (*a, *b)))


def plan(p: GemmShape) -> list[Launch]:
    """One launch: a thread for each element; tiles of c along x, the batch along z."""
    grid = (ceil_div(p.m, TILE) * ceil_div(p.n, TILE), 1, p.batch)
    c0 = "c0" if p.beta else "c"  # what is not read
    args = ("a", "b", c0, "c", p.m, p.n, p.k, *strides(p), float(p.alpha), float(p.beta))
    return [Launch("gemm", grid, (TILE, TILE), args)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=lambda p: {"TILE": TILE, "HALF_IN": p.dtype == "fp16", "HALF_OUT": p.out == "fp16"},
    parent="gemm/v0_naive",
    idea="a warp takes 32 columns of one row, and not 32 rows: its loads of b and stores of c are coalesced",
)
