"""gemm/v16_idle: large tiles of rows that start anywhere, while idle multiprocessors copy b."""

from dataclasses import dataclass, replace
from functools import cache

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v12_eighths"  # takes what the kernel here does not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
EIGHT = 8  # rows of a from one to the next of an eighth; elements of 16 bits in 16 bytes
LINE = 64  # elements of 16 bits in a line of the cache
STAGES = 3  # of the ring
TAIL = 2  # steps, the last ones, that compute half of the sums of a tall tile at a time
BAND = 8  # columns of pairs of tiles in a band; they are computed band after band
THREADS = 384  # two warpgroups that multiply, one that copies
STAGE_BYTES = (256 + 192) * TILE_K * 2  # of a tall tile; a flat one needs less
STAGED_BYTES = 8 * 3 * 2048  # of c on their way out: for each warp, three parts of 16 rows and 64 columns
LARGEST = 1 << 26  # pitch: places in PERIOD rows are ints

STRIP = 256  # columns of b that are copied together
RING_BYTES = 12 * 4 * (8 * 528 + 8)  # of a block that copies: for each warp, four groups of eight rows of a strip

# A cluster has two blocks. Its pair of tiles has 256 rows of c, and so many columns.
ROWS = 256
PERIOD = 16
TALL, FLAT = 384, 256  # two tiles of 256 x 192; two tiles of 128 x 256
CLUSTERS = 66  # at once on an H100 or H200, as a block takes nearly all shared memory
TALL_WORK = 1.5  # of a round of tall tiles, where 1 is that of flat ones
FLAT_COST = 1.03  # time for a unit of work, where 1 is that of tall tiles
EARLY = 6
FIRST = 0


@dataclass(frozen=True)
class Cut:
    """How c is cut into pairs of tiles, and how b is copied."""

    tall: int  # columns of tall ones
    flat: int  # columns of flat ones, which cover the rest
    clusters: int  # that multiply
    first: int = 1  # columns of tall ones in the first band
    early: int = 0  # strips of b that are copied before the product
    copiers: int = 0  # blocks that copy the other strips


def rounds(count: int) -> int:
    """Tiles that the busiest cluster computes."""
    return ceil_div(count, CLUSTERS)


def rows_of_pairs(p: GemmShape) -> int:
    """Pairs of tiles below each other: those of each eighth have ROWS of its rows."""
    return PERIOD * ceil_div(ceil_div(p.m, PERIOD), ROWS)


@cache
def best(p: GemmShape) -> Cut:
    """The cut for which the busiest cluster has the least work."""
    rows = rows_of_pairs(p)
    found = []
    for tall in range(ceil_div(p.n, TALL) + 1):
        flat = max(0, ceil_div(p.n - tall * TALL, FLAT))
        count, of_tall = rows * (tall + flat), rounds(rows * tall)
        of_flat = rounds(count) - of_tall
        cost = of_tall * TALL_WORK + of_flat * FLAT_COST
        clusters = max(ceil_div(count, rounds(count)), ceil_div(rows * tall, max(of_tall, 1)))
        found.append((cost, tall * TALL + flat * FLAT, flat, Cut(tall, flat, clusters)))
    *_, cut = min(found, key=lambda one: one[:3])
    if p.pitches[1] % EIGHT == 0:
        return replace(cut, first=BAND)
    copiers = 2 * (CLUSTERS - cut.clusters)
    strips = ceil_div(p.n, STRIP)
    return replace(cut, first=FIRST or max(1, cut.clusters // rows), early=min(EARLY, strips) if copiers else strips, copiers=copiers)


def possible(p: GemmShape) -> bool:
    """Whether a can be read by eighths, and c written by tensor copies."""
    lying = p.layout == "nn" and p.batch == 1 and p.pitches[0] == p.k and p.k % EIGHT > 0
    by_pieces = p.out != "fp32" and not p.beta
    return lying and by_pieces and p.dtype != "fp32" and p.m >= PERIOD and max(p.pitches) < LARGEST


@cache
def choose(p: GemmShape) -> Cut | None:
    """The cut of c, or None if another rung is as fast."""
    if not possible(p) or min(p.m, p.n, p.k) < 2048:
        return None
    return best(p)


def refuses(p: GemmShape) -> str:
    """What wgmma multiplies."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def b_pitch(p: GemmShape) -> int:
    """Elements from line to line of b, or of its copy: each of those starts with a line of the cache."""
    return ceil_div(p.n, LINE) * LINE if p.pitches[1] % EIGHT else p.pitches[1]


def scratch(p: GemmShape) -> dict[str, Array]:
    """The copy of b if its lines start anywhere, and a flag for each strip."""
    if choose(p) is None or p.pitches[1] % EIGHT == 0:
        return {}
    return {
        "b_packed": Array((p.k, b_pitch(p)), p.arrays["b"].dtype),
        "flags": Array((ceil_div(p.n, STRIP),), "int32"),
    }


def defines(p: GemmShape) -> dict[str, int]:
    """The types, which the compiler has to know."""
    return {
        **{"TILE_K": TILE_K, "STAGES": STAGES, "TAIL": TAIL, "BAND": BAND, "THREADS": THREADS, "PERIOD": PERIOD},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out]},
    }


def eighths(buffer: str, p: GemmShape, pitch: int, box: tuple[int, int]) -> tuple[TensorMap, TensorMap]:
    """How tensor copies see rows: eight of them as one, which is aligned. The last one may have fewer."""
    more = TensorMap(buffer, box, (ceil_div(p.m, PERIOD), (p.m % PERIOD or PERIOD) * pitch), (PERIOD * pitch,))
    return more, replace(more, shape=(p.m // PERIOD, PERIOD * pitch))


def plan(p: GemmShape) -> list[Launch | Call]:
    """b is copied, at least its first strips, then a cluster for each pair of tiles; or a call."""
    cut = choose(p)
    if cut is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    copied, launches = bool(scratch(p)), []
    b, flags = ("b_packed", "flags") if copied else ("b", "c")  # what is not read
    sizes = (p.n, p.k, p.pitches[1], b_pitch(p))
    if copied:
        args = ("b", b, flags, *sizes, cut.early)
        launches.append(Launch("copy_early", (2 * CLUSTERS,), (THREADS,), args, RING_BYTES, early=True))
    map_of_b = TensorMap(b, (TILE_K, 64), (p.k, p.n), (b_pitch(p),))
    maps = (*eighths("a", p, p.k, (128, TILE_K)), map_of_b, *eighths("c", p, p.pitches[2], (16, 64)))
    args = (*maps, "b", b, flags, "c", p.m, *sizes, p.pitches[2])
    args += (rows_of_pairs(p), cut.tall, cut.flat, cut.first, cut.early, cut.copiers, float(p.alpha))
    shared = STAGES * STAGE_BYTES + STAGED_BYTES
    blocks = 2 * cut.clusters + cut.copiers
    launches.append(Launch("gemm_idle", (blocks,), (THREADS,), args, shared, cluster=2, early=True))
    return launches


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=refuses,
    parent="gemm/v14_mixed",
    precision="fp16",
    min_arch=90,
    idea="tall tiles of eighths of rows, while multiprocessors without a tile copy b",
)
