"""gemm/v15_idle: large tiles of rows that start anywhere, while idle warps copy b."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v12_eighths"  # computes what the kernel here does not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
EIGHT = 8  # the distance between rows of an eighth, in OTHERS
UNIT = 8  # elements of 16 bits in 16 bytes, the smallest piece that the copy engine moves
LINE = 64  # elements of 16 bits in a cache line
STAGES = 3  # stages of the ring
TAIL = 2  # the last steps of a tall tile, which compute half of the sums at a time
BAND = 8  # the most columns of pairs of tiles in a band; they are computed band after band
THREADS = 384  # two warpgroups that multiply, one that copies
STAGE_BYTES = (256 + 192) * TILE_K * 2  # of a tall tile; a flat one needs less
STAGED_BYTES = 8 * 3 * 2048  # for each warp, three parts of 16 rows and 64 columns of c
PERIODS = (16, 8)  # distances between rows of a class; every 16th row starts at the same place in a sector
LARGEST = 1 << 26  # pitches are below this, because offsets in 16 rows are ints

STRIP = 256  # columns of b that are copied together
STRIP_BYTES = 3 * 6 * (STRIP + 8) * 2  # for each of three warps that copy, six rows of a strip
COPIERS = 256  # threads of a block that copies the first columns
COPIED = 4  # parts of eight elements that such a thread has in flight

# A cluster has two blocks. Its pair of tiles has ROWS rows of c, and TALL or FLAT columns.
ROWS = 256
TALL, FLAT = 384, 256  # two tiles of 256 x 192; two tiles of 128 x 256
CLUSTERS = 66  # resident on an H100 or H200, because a block takes nearly all shared memory

# The model, fitted to the times of 62 odd products on an H100. The unit of work is a round of flat tiles.
START_US = 3.0  # launch, first loads, last stores
EARLY_US = 0.24  # for each MB that the copy before the product moves
STEP_US = 0.657  # for a unit of work and TILE_K terms
TALL_WORK = 1.5  # of a round of tall tiles
TALL_US, ODD_US, FLAT_US = 5.0, 5.1, 2.9  # stores and first loads of a round; ODD_US: more if n is odd
COPY_ROWS = 400.0  # rows of strips that are copied per microsecond during the product
FLAT_COST = 1.03  # time of flat tiles for a unit of work, relative to tall ones
LEAST = (1024, 1024, 1200)  # least rows, columns and terms; other rungs have kernels for smaller products
MARGIN = 1.03  # by which it must be faster, as the model is not exact

# The tiles of OTHERS and its model: rows, columns, resident clusters, rows of an eighth that follow each
# other (0: a is copied); clocks of a start, a round, a step, a cluster in a step; fraction for copies
OF_OTHERS = (
    (256, 256, 66, 256, 4500, 5200, 840, 4.1, 0.87),
    (256, 256, 66, 64, 4100, 6600, 880, 3.6, 0.84),
    (256, 256, 66, 0, 3100, 6300, 770, 5.3, 0.77),
    (128, 128, 132, 0, 7050, 1590, 235, 3.8, 0.5),
    (64, 128, 132, 0, 4400, 1500, 450, 0, 0.8),
    (64, 64, 132, 0, 4400, 700, 300, 0, 0.8),
)
PACK_CLOCKS, PACK_BYTES_CLOCK = 4000, 1800  # for copies of odd operands: once, and bytes per clock
MHZ = 1633  # the clock rate with which the model of OTHERS fits the times above


@dataclass(frozen=True)
class Cut:
    """How c is cut into pairs of tiles, and how b is copied."""

    tall: int  # columns of tall ones
    flat: int  # columns of flat ones, which cover the rest
    clusters: int  # that multiply
    period: int = 16  # the distance between rows of a tile
    first: int = BAND  # columns of the first band of tall ones; the next ones have twice as many, up to BAND
    early: int = 0  # strips of b that are copied before the product


def rounds(count: int) -> int:
    """The number of tiles of the busiest cluster."""
    return ceil_div(count, CLUSTERS)


def rows_of_pairs(p: GemmShape, period: int) -> int:
    """The number of rows of pairs of tiles. Each pair has ROWS rows of one class."""
    return period * ceil_div(ceil_div(p.m, period), ROWS)


def columns(p: GemmShape, cut: Cut) -> Iterator[tuple[int, int]]:
    """For each column of pairs of tiles, its first pair, and the column of c at which it ends."""
    rows = rows_of_pairs(p, cut.period)
    for kind, count, width in ((TALL, cut.tall, cut.first), (FLAT, cut.flat, BAND)):
        before = 0 if kind == TALL else cut.tall
        start = 0
        while start < count:
            for beside in range(min(width, count - start)):
                column = start + beside + 1
                end = column * kind + (before * TALL if kind == FLAT else 0)
                yield (before + start) * rows + beside, min(end, p.n)
            start += width
            width = min(2 * width, BAND)


def with_copies(p: GemmShape, cut: Cut) -> Cut:
    """The cut with as few strips that are copied early as possible, if the others must be ready in time."""
    if p.pitches[1] % UNIT == 0:
        return cut
    cut = replace(cut, first=min(max(1, cut.clusters // rows_of_pairs(p, cut.period)), BAND))
    round_us = TALL_WORK * STEP_US * p.k / TILE_K
    late = [(ceil_div(end, STRIP), i // cut.clusters * round_us) for i, end in columns(p, cut)]
    return replace(cut, early=max(1, *(strip - int(us * COPY_ROWS / p.k) for strip, us in late)))


def rounds_of(p: GemmShape, cut: Cut) -> tuple[int, int]:
    """The numbers of tall and flat tiles of the busiest cluster. Tall ones come first."""
    rows = rows_of_pairs(p, cut.period)
    of_tall = rounds(rows * cut.tall)
    return of_tall, rounds(rows * (cut.tall + cut.flat)) - of_tall


@cache
def best(p: GemmShape) -> Cut:
    """The cut for which the busiest cluster has the least work."""
    period = min(PERIODS, key=lambda period: rows_of_pairs(p, period))
    rows = rows_of_pairs(p, period)
    found = []
    for tall in range(ceil_div(p.n, TALL) + 1):
        flat = max(0, ceil_div(p.n - tall * TALL, FLAT))
        of_tall, of_flat = rounds_of(p, Cut(tall, flat, CLUSTERS, period))
        cost = of_tall * TALL_WORK + of_flat * FLAT_COST
        least = ceil_div(rows * (tall + flat), of_tall + of_flat)
        clusters = max(least, ceil_div(rows * tall, max(of_tall, 1)))
        found.append((cost, tall * TALL + flat * FLAT, flat, Cut(tall, flat, clusters, period)))
    *_, cut = min(found, key=lambda one: one[:3])
    return with_copies(p, cut)


def microseconds(p: GemmShape, cut: Cut) -> float:
    """The model of the time: the copy of the first strips, products, and ends of tiles."""
    of_tall, of_flat = rounds_of(p, cut)
    odd = p.pitches[1] % UNIT > 0
    early = min(cut.early * STRIP, p.n) * p.k * 4 / 1e6 if odd else 0
    steps = ceil_div(p.k, TILE_K) * (TALL_WORK * of_tall + of_flat)
    ends = of_tall * (TALL_US + ODD_US * odd) + of_flat * FLAT_US
    return START_US + EARLY_US * early + STEP_US * steps + ends


def of_others(p: GemmShape) -> float:
    """The model of the time of OTHERS, in microseconds."""
    found = []
    for rows, width, at_once, high, start, end, step, each, pack in OF_OTHERS:
        m = EIGHT * ceil_div(ceil_div(p.m, EIGHT), high) * high if high else p.m
        clusters = ceil_div(m, rows) * ceil_div(p.n, width)
        count, steps = ceil_div(clusters, at_once), ceil_div(p.k, TILE_K)
        copied = [(p.k, p.n)] if p.pitches[1] % UNIT else []
        copied += [] if high else [(p.m, p.k)]
        moved = sum(4 * lines * ceil_div(length, LINE) * LINE for lines, length in copied)
        copies = PACK_CLOCKS + moved / PACK_BYTES_CLOCK if moved else 0
        found.append(start + pack * copies + steps * (count * step + clusters * each) + count * end)
    return min(found) / MHZ


def possible(p: GemmShape) -> bool:
    """Whether a can be read in place, by classes of rows, and tensor copies can store c."""
    lying = p.layout == "nn" and p.batch == 1 and p.pitches[0] == p.k and p.k % UNIT > 0
    by_pieces = p.out != "fp32" and not p.beta
    return lying and by_pieces and p.dtype != "fp32" and p.m >= max(PERIODS) and max(p.pitches) < LARGEST


@cache
def choose(p: GemmShape) -> Cut | None:
    """The cut of c, or None if another rung is as fast."""
    enough = all(size >= least for size, least in zip((p.m, p.n, p.k), LEAST, strict=True))
    if not enough or not possible(p):
        return None
    cut = best(p)
    return cut if cut.tall and microseconds(p, cut) * MARGIN < of_others(p) else None


def refuses(p: GemmShape) -> str:
    """The text of the limit: wgmma multiplies elements of 16 bits."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def b_pitch(p: GemmShape) -> int:
    """The pitch of b, or of its copy, whose lines start with a cache line."""
    return ceil_div(p.n, LINE) * LINE if p.pitches[1] % UNIT else p.pitches[1]


def scratch(p: GemmShape) -> dict[str, Array]:
    """The copy of b if its lines start anywhere, and a flag for each strip."""
    if choose(p) is None or p.pitches[1] % UNIT == 0:
        return {}
    copy = Array((p.k, b_pitch(p)), p.arrays["b"].dtype)
    return {"b_packed": copy, "flags": Array((1 + ceil_div(p.n, STRIP),), "int32")}


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: types, classes of rows, and the parameters of the tiles."""
    cut = choose(p)
    return {
        **{"TILE_K": TILE_K, "STAGES": STAGES, "TAIL": TAIL, "BAND": BAND, "THREADS": THREADS},
        **{"COPIERS": COPIERS, "COPIED": COPIED},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "PERIOD": cut.period if cut else PERIODS[0]},
    }


def classes(p: GemmShape, name: str, box: tuple[int, int], period: int) -> tuple[TensorMap, TensorMap]:
    """Tensor maps with `period` rows as one aligned row. The last one may have fewer, or is left out."""
    pitch = p.pitches["abc".index(name)]
    full = TensorMap(name, box, (p.m // period, period * pitch), (period * pitch,))
    more = replace(full, shape=(ceil_div(p.m, period), (p.m % period or period) * pitch))
    return more, full


def plan(p: GemmShape) -> list[Launch | Call]:
    """The copy of the first strips of b, and a cluster for each pair of tiles; or a call of another rung."""
    cut = choose(p)
    if cut is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    launches, strips = [], ceil_div(p.n, STRIP)
    copied = bool(scratch(p))
    b, flags = ("b_packed", "flags") if copied else ("b", "c")  # without a copy there are no flags to read
    sizes = (p.n, p.k, p.pitches[1], b_pitch(p))
    if copied:
        first = min(cut.early * STRIP, p.n)
        blocks = ceil_div(p.k * ceil_div(first, UNIT), COPIERS * COPIED)
        early = ("b", b, flags, 1 + strips, first, *sizes[1:])
        launches.append(Launch("copy_early", (blocks,), (COPIERS,), early, early=True))
    map_of_b = TensorMap(b, (TILE_K, 64), (p.k, p.n), (b_pitch(p),))
    of_a, of_c = classes(p, "a", (128, TILE_K), cut.period), classes(p, "c", (16, 64), cut.period)
    args = (*of_a, map_of_b, *of_c, "b", b, flags, "c", p.m, *sizes, p.pitches[2])
    args += (rows_of_pairs(p, cut.period), cut.tall, cut.flat, cut.first)
    args += (cut.early if copied else strips, float(p.alpha))  # the first strip that is copied late
    shared = STAGES * STAGE_BYTES + STAGED_BYTES + STRIP_BYTES
    launches.append(Launch("gemm_idle", (2 * cut.clusters,), (THREADS,), args, shared, cluster=2, early=True))
    return launches


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=refuses,
    parent="gemm/v12_eighths",
    precision="fp16",
    min_arch=90,
    idea="tall tiles of rows that start anywhere, while idle warps copy b",
)
