"""gemm/v15_spare: as gemm/v13_split, but spare multiprocessors split b, and a is split in parts."""

from functools import cache

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v13_split"  # solves what this variant does not make faster
ROWS = 128  # of c in a block
WIDE, NARROW = 192, 128  # columns of c in a block, of tiles of two widths
BOX = 64  # lines whose halves lie together
CHUNK = 32  # terms of a sum in a stage
PART = 512  # terms of a row of a with the same factor
BATCH = 1024  # elements of rows that a warp splits at a time
STAGES = 5
BUFFERS = 3 * 2 * BATCH * 4  # bytes: two batches for each of three warps
HEIGHT = 96  # rows of b that a spare block loads at a time
BAND = 16  # columns of tiles in a band; tiles are computed band after band, and in it row by row
MULTIPROCESSORS = 132  # of an H100 or H200; a block each, as each takes nearly all shared memory
SPARE = 4  # blocks that split b
THREADS = 384  # two warpgroups that multiply, one that copies
SPLITTERS = 256  # threads of a block that splits floats before the product
SPREAD = 20  # powers of two between the elements of a line, beyond which it is called uneven
LEAST_SUM = 2**13  # a sum below which halves may have lost more than fp32, if one line is uneven
STEPS_KEPT = 8  # parts of 64 k that a block of split_columns keeps in registers
CLUSTER = 8  # blocks, at most
NARROW_COST = 1.045  # time a column, measured, where 1 is that of wide tiles
FEWEST_ROUNDS = 5  # of tiles; in fewer, columns are not ready in time
SPARE_COST = 1.03  # the longest time with fewer blocks, where 1 is that with all
BOX_BYTES = BOX * CHUNK * 2 * 2


def chunks(p: GemmShape) -> int:
    """Stages for a tile: sums of two of them are promoted together."""
    return 2 * ceil_div(p.k, 2 * CHUNK)


@cache
def widths(rows: int, n: int, blocks: int) -> tuple[float, int, int]:
    """The least time of the busiest block, and how many columns of tiles are then wide, and how many narrow.

    Block i takes tiles i, i + blocks, ...; the wide ones come first. With ``rows`` rows of tiles. The time is
    in columns. If there are very many columns, only those numbers of narrow ones are tried that change the
    last rounds.
    """

    def time(wide: int) -> tuple[float, int, int]:
        narrow = max(0, ceil_div(n - wide * WIDE, NARROW))
        of_wide, rounds = ceil_div(rows * wide, blocks), ceil_div(rows * (wide + narrow), blocks)
        return of_wide * WIDE + (rounds - of_wide) * NARROW * NARROW_COST, wide, narrow

    most = ceil_div(n, WIDE)
    return min(map(time, range(max(0, most - 4 * blocks), most + 1)))


def early(p: GemmShape) -> tuple[int, int]:
    """The rows and the columns of tiles in the first round. What they need is split before the product."""
    rows, tiles = ceil_div(p.m, ROWS), MULTIPROCESSORS - SPARE
    return min(rows, ceil_div(tiles, BAND)), BAND * ceil_div(tiles, rows * BAND)


@cache
def suits(p: GemmShape) -> bool:
    """Whether the columns of b are ready in time, and a few multiprocessors are not missed."""
    rows = ceil_div(p.m, ROWS)
    time, wide, narrow = widths(rows, p.n, MULTIPROCESSORS - SPARE)
    rounds = rows * (wide + narrow) / (MULTIPROCESSORS - SPARE)
    all_time, *_ = widths(rows, p.n, MULTIPROCESSORS)
    plain = p.layout == "nn" and p.batch == 1 and all(pitch % 4 == 0 for pitch in p.pitches[:2])
    return plain and rounds >= FEWEST_ROUNDS and early(p)[1] <= wide and time <= SPARE_COST * all_time


def sizes(p: GemmShape) -> tuple[int, int, int]:
    """Rows of a and columns of b that all tiles have, those beyond c among them, and the parts of a row."""
    rows = ceil_div(p.m, ROWS)
    _, wide, narrow = widths(rows, p.n, MULTIPROCESSORS - SPARE)
    return rows * ROWS, wide * WIDE + narrow * NARROW, ceil_div(p.k, PART)


def flags(p: GemmShape) -> int:
    """Flags: one for the queue, one for each part of each row of tiles, and one for each strip of columns."""
    a_lines, b_lines, parts = sizes(p)
    return 1 + parts * (a_lines // ROWS) + b_lines // BOX


def scratch(p: GemmShape) -> dict[str, Array]:
    """Both operands as halves, the factors that make floats of their products again, and flags."""
    if not suits(p):
        return {}
    a_lines, b_lines, parts = sizes(p)
    found = {"flags": Array((flags(p),), "int32")}
    for name, count, times in (("a", a_lines, parts), ("b", b_lines, 1)):
        found[f"{name}_boxes"] = Array((count // BOX, chunks(p), BOX_BYTES // 2), "float16")
        found[f"{name}_factors"] = Array((times, count))
        found[f"{name}_ranges"] = Array((times, count), "int32")
    return found


def defines(p: GemmShape) -> dict[str, int]:
    """Tiles, which the compiler has to know, and whether c is written two elements at a time."""
    return {
        **{"ROWS": ROWS, "WIDE": WIDE, "NARROW": NARROW, "BAND": BAND, "STAGES": STAGES, "PART": PART},
        **{"THREADS": THREADS, "SPLITTERS": SPLITTERS, "SPARE": SPARE, "STEPS_KEPT": STEPS_KEPT},
        **{"SPREAD": SPREAD, "LEAST_SUM": LEAST_SUM, "C_PAIRS": p.pitches[2] % 2 == 0},
        **{"A_LINES": 0, "B_LINES": 1},
    }


def plan(p: GemmShape) -> list[Launch | Call]:
    """What the first tiles need is split, and then everything else beside the product; or a call."""
    if not suits(p):
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    a_lines, _, _ = sizes(p)
    rows, columns = early(p)
    _, wide, narrow = widths(a_lines // ROWS, p.n, MULTIPROCESSORS - SPARE)
    a, b = (tuple(f"{name}_{what}" for what in ("boxes", "factors", "ranges")) for name in "ab")
    blocks = min(CLUSTER, ceil_div(chunks(p) // 2, STEPS_KEPT))
    clusters = ceil_div(rows * ROWS, blocks * (SPLITTERS // 32) * (BATCH // PART))
    args = ("a", *a, p.m, p.pitches[0], a_lines, "b", *b, p.n, p.pitches[1], wide, columns * WIDE)
    first = Launch(
        "split_first",
        (blocks, columns * WIDE // 32 + clusters),
        (SPLITTERS,),
        (*args, rows * ROWS, p.k, chunks(p), "flags", flags(p)),
        cluster=blocks,
        early=True,
    )
    both = tuple(name for pair in zip(a, b, strict=True) for name in pair)
    maps = (
        TensorMap("a", (1, 256), (p.m, p.k), (p.pitches[0],), swizzle=0),
        TensorMap("b", (HEIGHT, BOX), (p.k, p.n), (p.pitches[1],), swizzle=0),
    )
    c0 = "c0" if p.beta else "c"  # what is not read
    args = (*both, "flags", "a", "b", *maps, c0, "c", p.m, p.n, p.k, *p.pitches, chunks(p), wide, narrow)
    args += (rows * ROWS, columns * WIDE, float(p.alpha), float(p.beta))
    stage = (ROWS + WIDE) // BOX * BOX_BYTES
    shared = STAGES * stage + BUFFERS
    product = Launch("gemm", (MULTIPROCESSORS,), (THREADS,), args, shared_bytes=shared, early=True)
    return [first, product]


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
    parent="gemm/v13_split",
    compute_type="3xfp16",
    min_arch=90,
    idea="spare multiprocessors split b, and a is split in parts, while tiles are multiplied",
)
