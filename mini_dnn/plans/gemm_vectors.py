"""Plans of products with a vector, for rungs of the ladder `gemm`: launches of two kernels."""

from __future__ import annotations

import numpy as np

from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import Launch, ceil_div
from mini_dnn.variant.plan import Argument

THREADS = 256  # of a block
ONE_BLOCK_K = 256  # terms that a single block adds sooner than a cluster, which starts later
RESIDENT = 44  # clusters of strips that run at once: they have 8 to 12 MB in flight, and more is slower


def is_vector(p: GemmShape) -> bool:
    """Whether an operand is a vector. Each element of the other one is then used only once."""
    return p.m == 1 or p.n == 1


def piece(p: GemmShape) -> int:
    """The number of elements of 16 bytes, which one instruction loads."""
    return 16 // np.dtype(p.arrays["a"].dtype).itemsize


def kernel(p: GemmShape) -> str:
    """The kernel for the product, or "". Halves in rows have to start at multiples of 16 bytes."""
    if not is_vector(p):
        return ""
    x = matrix(p)
    if p.layout[x] == "tn"[x]:
        return "sum_columns"
    return "sum_rows" if matrix_pieces(p) or piece(p) == 4 else ""


def matrix(p: GemmShape) -> int:
    """The number of the operand that is the matrix: 0 is a, 1 is b."""
    return int(p.m == 1)


def matrix_pieces(p: GemmShape) -> bool:
    """Whether the matrix can be read in pieces."""
    return p.pitches[matrix(p)] % piece(p) == 0


def vector_step(p: GemmShape) -> int:
    """The distance between two terms of the vector, in elements."""
    v = 1 - matrix(p)
    return 1 if p.layout[v] == "nt"[v] else p.pitches[v]


def vector_pieces(p: GemmShape) -> bool:
    """Whether the vector can be read in pieces, in each entry of the batch."""
    v = 1 - matrix(p)
    entry = p.arrays["ab"[v]].shape[1] * p.pitches[v]
    return vector_step(p) == 1 and (p.batch == 1 or entry % piece(p) == 0)


def parts_of_k(p: GemmShape) -> int:
    """The number of blocks, a cluster, that share the k of a strip of columns."""
    return 1 if p.k <= ONE_BLOCK_K else 4 if p.k < 512 else 8


def strip(p: GemmShape) -> int:
    """The number of columns of a cluster: as few as let all clusters be resident."""
    columns = max(p.m, p.n) * p.batch
    return next((width for width in (64, 128) if columns <= RESIDENT * width), 256)


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants. Those that a product does not use have defaults: fewer kernels are compiled."""
    chosen = {"COPIERS": THREADS, "PARTS_OF_K": 1, "STRIP": 64, "X_PIECES": True, "V_PIECES": False}
    if kernel(p):
        chosen["X_PIECES"] = matrix_pieces(p)
    if kernel(p) == "sum_columns":
        chosen |= {"PARTS_OF_K": parts_of_k(p), "STRIP": strip(p)}
    if kernel(p) == "sum_rows":
        chosen["V_PIECES"] = vector_pieces(p)
    return chosen


def c_of(p: GemmShape) -> tuple[str, str]:
    """The buffers of c0 and c; without beta, the first one is not read."""
    return "c0" if p.beta else "c", "c"


def launch(p: GemmShape) -> Launch:
    """The launch of `kernel`: a cluster for each strip of columns, or a warp for each row."""
    number = matrix(p)
    x, v = "ab"[number], "ba"[number]
    lines = max(p.m, p.n)
    c_step = 1 if p.m == 1 else p.pitches[2]  # elements from one sum to the next
    entries = [np.int64(p.arrays[name].shape[1] * p.pitches["abc".index(name)]) for name in (x, v, "c")]
    steps = (p.pitches[number], vector_step(p), c_step)
    args: tuple[Argument, ...] = (x, v, *c_of(p), lines, p.k, *steps, *entries, float(p.alpha), float(p.beta))
    if kernel(p) == "sum_rows":
        return Launch("sum_rows", (ceil_div(lines, THREADS // 32), p.batch), (THREADS,), args, early=True)
    parts = parts_of_k(p)
    grid = (ceil_div(lines, strip(p)) * parts, p.batch)
    return Launch("sum_columns", grid, (THREADS,), args, cluster=parts, early=True)
