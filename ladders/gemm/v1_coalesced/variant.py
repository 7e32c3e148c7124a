"""gemm/v1_coalesced: one thread per element of c, a warp along a row."""

import numpy as np

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Launch, Variant, ceil_div

TILE = 32  # rows and columns of c in a block


def strides(p: GemmShape) -> tuple[np.int64, ...]:
    """The distances, in elements, of entries, rows and columns of a and of b, and of rows of c."""
    lda, ldb, ldc = p.pitches
    a = (p.k * lda, 1, lda) if p.layout[0] == "t" else (p.m * lda, lda, 1)
    b = (p.n * ldb, 1, ldb) if p.layout[1] == "t" else (p.k * ldb, ldb, 1)
    return tuple(map(np.int64, (*a, *b, ldc)))


def plan(p: GemmShape) -> list[Launch]:
    """One launch: a thread for each element; tiles of c along x, the batch along z."""
    grid = (ceil_div(p.m, TILE) * ceil_div(p.n, TILE), 1, p.batch)
    c0 = "c0" if p.beta else "c"  # without beta any buffer will do: it is not read
    args = ("a", "b", c0, "c", p.m, p.n, p.k, *strides(p), float(p.alpha), float(p.beta))
    return [Launch("gemm", grid, (TILE, TILE), args)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=lambda p: {"TILE": TILE, "IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out]},
    parent="gemm/v0_naive",
    idea="a warp has 32 columns of one row instead of 32 rows: loads of b and stores of c are coalesced",
)
