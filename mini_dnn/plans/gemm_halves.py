"""Plans of products of floats by three products of halves, for rungs of the ladder `gemm`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.plans.gemm_vectors import c_of
from mini_dnn.variant import Launch, ceil_div

ROWS = 128  # of c in a block
WIDE = 192  # columns of wide tiles
BOX = 64  # lines of a box, whose halves are stored together
CHUNK = 32  # terms of a sum in a stage
STAGES = 5
BAND = 16  # rows of tiles in a band; tiles are computed band after band
MULTIPROCESSORS = 132  # of an H100 or H200; a block each, because each takes nearly all shared memory
THREADS = 384  # two warpgroups that multiply, one that copies
SPLITTERS = 256  # threads of a block that splits floats
BOX_BYTES = BOX * CHUNK * 2 * 2


def beside(p: GemmShape) -> tuple[bool, bool]:
    """Whether the lines of a (its rows) and of b (its columns) are adjacent in memory, k after k."""
    return p.layout[0] == "t", p.layout[1] == "n"


def chunks(p: GemmShape) -> int:
    """The number of stages of a tile. It is even, as the sums of two stages are promoted together."""
    return 2 * ceil_div(p.k, 2 * CHUNK)


@cache
def widths(rows: int, n: int, costs: tuple[tuple[int, float], ...]) -> tuple[int, int, int]:
    """The numbers of wide and of narrow columns of tiles, and the width of these, that take the least time.

    There are ``rows`` rows of tiles, and the wide ones come first. Block i has tiles i, i + MULTIPROCESSORS,
    and so on, so no block has more tiles than block 0, or more wide ones. If there are very many columns,
    only those numbers of narrow ones are tried that change the last rounds. ``costs`` lists the widths to
    choose from, each with its time per column, relative to wide tiles.
    """

    def narrow(wide: int, width: int) -> int:
        return max(0, ceil_div(n - wide * WIDE, width))

    def time(case: tuple[int, tuple[int, float]]) -> tuple[float, int]:
        wide, (width, cost) = case
        of_wide = ceil_div(rows * wide, MULTIPROCESSORS)
        rounds = ceil_div(rows * (wide + narrow(wide, width)), MULTIPROCESSORS)
        return of_wide * WIDE + (rounds - of_wide) * width * cost, wide

    most = ceil_div(n, WIDE)
    wide, (width, _) = min(product(range(max(0, most - 4 * MULTIPROCESSORS), most + 1), costs), key=time)
    return wide, narrow(wide, width), width


def halves(p: GemmShape, lines: Iterable[int]) -> dict[str, Array]:
    """Both operands as halves, and what the product has to know about their lines (see `Line`)."""
    found = {}
    for name, count in zip("ab", lines, strict=True):
        found[f"{name}_boxes"] = Array((p.batch, count // BOX, chunks(p), BOX_BYTES // 2), "float16")
        found[f"{name}_known"] = Array((p.batch, count, 2), "uint32")
    return found


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: tiles, layouts, and whether elements of c are stored in pairs."""
    a_lines, b_lines = beside(p)
    return {
        **{"ROWS": ROWS, "WIDE": WIDE, "BAND": BAND, "STAGES": STAGES, "THREADS": THREADS},
        **{"SPLITTERS": SPLITTERS, "A_LINES": a_lines, "B_LINES": b_lines, "C_PAIRS": p.pitches[2] % 2 == 0},
    }


def multiply(p: GemmShape, wide: int, narrow: int, late: int | None = None) -> Launch:
    """The launch that multiplies: a block for each multiprocessor, or for each tile if there are fewer.

    ``wide`` and ``narrow`` are the numbers of columns of tiles; ``late`` is the number of rows of a that this
    launch splits itself, or None if its kernel cannot do that.
    """
    made = tuple(f"{name}_{what}" for what in ("boxes", "known") for name in "ab")
    flags, rows_left = ((), ()) if late is None else (("flags",), (late,))
    args = (*made, *flags, "a", "b", *c_of(p), p.m, p.n, p.k, *p.pitches, chunks(p), wide, narrow, p.batch)
    stage = (ROWS + WIDE) // BOX * BOX_BYTES
    blocks = min(ceil_div(p.m, ROWS) * (wide + narrow) * p.batch, MULTIPROCESSORS)
    args += (*rows_left, float(p.alpha), float(p.beta))
    return Launch("gemm", (blocks,), (THREADS,), args, shared_bytes=STAGES * stage, early=True)


def refuses(p: GemmShape) -> str:
    """Why a product is not supported: its types."""
    if p.dtype == p.out == "fp32":
        return ""
    return f"it multiplies floats, and types are {p.dtype} -> {p.out}; gemm/v8 takes those of 16 bits"
