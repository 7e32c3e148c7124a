"""gemm/v9_fp32: fp32 accuracy from three products of halves, whose sums are promoted in time."""

from functools import cache

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import Launch, Variant, ceil_div

ROWS = 128  # of c in a block
WIDE, NARROW = 192, 128  # columns of c in a block, of tiles of two widths
BOX = 64  # lines whose halves lie together
CHUNK = 32  # terms of a sum in a stage
STAGES = 5
BAND = 16  # rows of tiles that are taken together
MULTIPROCESSORS = 132  # of an H100 or H200; a block each, as each takes nearly all shared memory
THREADS = 384  # two warpgroups that multiply, one that copies
SPLITTERS = 256  # threads of a block that splits floats
NARROW_COST = 1.045  # time a column, measured, where 1 is that of wide tiles
BOX_BYTES, FACTORS_BYTES = BOX * CHUNK * 2 * 2, BOX * 4


def beside(p: GemmShape) -> tuple[bool, bool]:
    """Whether the lines of a (its rows) and of b (its columns) lie beside each other, k after k."""
    return p.layout[0] == "t", p.layout[1] == "n"


def chunks(p: GemmShape) -> int:
    """Stages for a tile: sums of two of them are promoted together."""
    return 2 * ceil_div(p.k, 2 * CHUNK)


@cache
def widths(rows: int, n: int) -> tuple[int, int]:
    """How many columns of tiles are wide, and how many narrow, for the shortest time of the busiest block.

    Block i takes tiles i, i + MULTIPROCESSORS, ...; the wide ones come first. With ``rows`` rows of tiles.
    """

    def time(wide: int) -> tuple[float, int]:
        wide_tiles, all_tiles = rows * wide, rows * (wide + narrow(wide))
        rounds = [range(i, all_tiles, MULTIPROCESSORS) for i in range(min(all_tiles, MULTIPROCESSORS))]
        of_wide = [len(range(i, wide_tiles, MULTIPROCESSORS)) for i in range(len(rounds))]
        times = [w * WIDE + (len(r) - w) * NARROW * NARROW_COST for r, w in zip(rounds, of_wide, strict=True)]
        return max(times), wide

    def narrow(wide: int) -> int:
        return max(0, ceil_div(n - wide * WIDE, NARROW))

    _, wide = min(map(time, range(ceil_div(n, WIDE) + 1)))
    return wide, narrow(wide)


def lines(p: GemmShape) -> tuple[int, int]:
    """Rows of a and columns of b that all tiles have, those beyond c among them."""
    rows = ceil_div(p.m, ROWS)
    wide, narrow = widths(rows * p.batch, p.n)
    return rows * ROWS, wide * WIDE + narrow * NARROW


def scratch(p: GemmShape) -> dict[str, Array]:
    """Both operands as halves, and the factors that make floats of their products again."""
    found = {}
    for name, count, columns in zip("ab", lines(p), beside(p), strict=True):
        found[f"{name}_boxes"] = Array((p.batch, count // BOX, chunks(p), BOX_BYTES // 2), "float16")
        shape = (p.batch, count // BOX, chunks(p) // 2, BOX) if columns else (p.batch, count)
        found[f"{name}_factors"] = Array(shape)
    return found


def defines(p: GemmShape) -> dict[str, int]:
    """Tiles and layouts, which the compiler has to know, and whether c is written two elements at a time."""
    a_lines, b_lines = beside(p)
    return {
        **{"ROWS": ROWS, "WIDE": WIDE, "NARROW": NARROW, "BAND": BAND, "STAGES": STAGES},
        **{"THREADS": THREADS, "SPLITTERS": SPLITTERS, "C_PAIRS": p.pitches[2] % 2 == 0},
        **{"A_LINES": a_lines, "B_LINES": b_lines},
    }


def split(p: GemmShape, name: str) -> Launch:
    """The launch that makes halves of an operand."""
    number = "ab".index(name)
    length, pitch, count = (p.m, p.n)[number], p.pitches[number], lines(p)[number]
    args = (name, f"{name}_boxes", f"{name}_factors", length, p.k, pitch, chunks(p))
    if beside(p)[number]:
        grid = (count // BOX, chunks(p) // 2, p.batch)
        return Launch("split_columns", grid, (SPLITTERS,), args, early=True)
    return Launch("split_rows", (count, p.batch), (SPLITTERS,), args, early=True)


def plan(p: GemmShape) -> list[Launch]:
    """Both operands are split, then multiplied by as many blocks as there are multiprocessors, or tiles."""
    rows = ceil_div(p.m, ROWS)
    wide, narrow = widths(rows * p.batch, p.n)
    c0 = "c0" if p.beta else "c"  # what is not read
    args = ("a_boxes", "b_boxes", "a_factors", "b_factors", "a", "b", c0, "c", p.m, p.n, p.k, *p.pitches)
    args += (chunks(p), wide, narrow, p.batch, float(p.alpha), float(p.beta))
    a_lines, b_lines = beside(p)
    factors = a_lines * ROWS // BOX * FACTORS_BYTES + b_lines * WIDE // BOX * FACTORS_BYTES
    stage = (ROWS + WIDE) // BOX * BOX_BYTES + ceil_div(factors, 1024) * 1024
    blocks = min(rows * (wide + narrow) * p.batch, MULTIPROCESSORS)
    product = Launch("gemm", (blocks,), (THREADS,), args, shared_bytes=STAGES * stage, early=True)
    return [split(p, "a"), split(p, "b"), product]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=lambda p: (
        ""
        if p.dtype == p.out == "fp32"
        else f"it multiplies floats, and types are {p.dtype} -> {p.out}; gemm/v8 takes those of 16 bits"
    ),
    parent="gemm/v7_specialised",
    compute_type="3xfp16",
    min_arch=90,
    idea="fp32 accuracy from three products of halves, whose sums are promoted every 64 terms",
)
