"""gemm/v14_mixed: large tiles of two kinds, which together fill the rounds of all multiprocessors."""

from dataclasses import dataclass
from functools import cache

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans.gemm_tiles import MOST_SUMS
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v16_pingpong"  # computes what the kernel here does not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
UNIT = 8  # elements of 16 bits in 16 bytes, the smallest piece that the copy engine moves
STAGES = 3  # stages of the ring
TAIL = 2  # the last steps of a tile, which compute half of the sums at a time
BAND = 8  # columns of pairs of tiles in a band; they are computed band after band
THREADS = 384  # two warpgroups that multiply, one that copies
STAGE_BYTES = (256 + 192) * TILE_K * 2  # of a tall tile; a flat one needs less
STAGED_BYTES = 8 * 3 * 2048  # for each warp, three parts of 16 rows and 64 columns of c

# A cluster has two blocks. Its pair of tiles has ROWS rows of c, and TALL or FLAT columns.
ROWS = 256
TALL, FLAT = 384, 256  # two tiles of 256 x 192; two tiles of 128 x 256
CLUSTERS = 66  # resident on an H100 or H200, because a block takes nearly all shared memory

# The model, fitted to the times of 41 products on an H100. The unit of work is a round of flat tiles.
TALL_WORK = 1.5  # of a round of tall tiles
FLAT_COST = 1.03  # time of flat tiles for a unit of work, relative to tall ones
SQUARE, SQUARE_COST = 128, 1.09  # further tiles of OTHERS, of which a round is half a unit of work
SPEED = 1.028  # of tiles here, relative to OTHERS
LESS_FOR_K = 45  # the end of a large tile takes about as long as so many terms
LESS_FOR_N = 30  # flat tiles read all of a again, which takes as long as so many columns
LEAST_GAIN = 1.005  # expected gain from which on the kernel here is used
LEAST = (1024, 1024, 512)  # least rows, columns and terms; other rungs have kernels for smaller products
FEWEST_ROUNDS = 2  # OTHERS has other tiles for fewer rounds
MOST_IDLE = 1.05  # work of whole rounds relative to that of c; above it, the smaller tiles of OTHERS win


@dataclass(frozen=True)
class Cut:
    """How c is cut into pairs of tiles."""

    tall: int  # columns of tall ones
    flat: int  # columns of flat ones, which cover the rest
    clusters: int  # no more than the number of rounds needs


def rounds(count: int, at_once: int = CLUSTERS) -> int:
    """The number of tiles of the busiest cluster."""
    return ceil_div(count, at_once)


@cache
def best(p: GemmShape) -> tuple[Cut, float]:
    """The cut for which the busiest cluster has the least work, and this work."""
    rows = ceil_div(p.m, ROWS) * p.batch
    found = []
    for tall in range(ceil_div(p.n, TALL) + 1):
        flat = max(0, ceil_div(p.n - tall * TALL, FLAT))
        count, of_tall = rows * (tall + flat), rounds(rows * tall)
        of_flat = (
            rounds(count) - of_tall
        )  # tall tiles come first, and no cluster has more of them than the first one
        cost = of_tall * TALL_WORK + of_flat * FLAT_COST
        clusters = max(ceil_div(count, rounds(count)), ceil_div(rows * tall, max(of_tall, 1)))
        work = of_tall * TALL_WORK + of_flat
        found.append((cost, tall * TALL + flat * FLAT, flat, work, Cut(tall, flat, clusters)))
    *_, work, cut = min(found, key=lambda one: one[:3])
    return cut, work


def gain(p: GemmShape) -> float:
    """The model: the predicted speed relative to OTHERS."""
    cut, work = best(p)
    of_flat = rounds(ceil_div(p.m, ROWS) * ceil_div(p.n, FLAT) * p.batch)
    squares = ceil_div(p.m, SQUARE) * ceil_div(p.n, SQUARE) * p.batch
    of_others = min(of_flat, rounds(squares, 2 * CLUSTERS) / 2 * SQUARE_COST)
    again = 1 - LESS_FOR_N / p.n if cut.flat else 1.0
    return of_others / work * SPEED * (1 - LESS_FOR_K / p.k) * again


@cache
def choose(p: GemmShape) -> Cut | None:
    """The cut of c, or None if another rung is as fast."""
    enough = all(size >= least for size, least in zip((p.m, p.n, p.k), LEAST, strict=True))
    if not enough or p.out == "fp32" or p.beta or any(pitch % UNIT for pitch in p.pitches):
        return None
    cut, work = best(p)
    sums = p.batch * p.m * p.n
    full = sums > MOST_SUMS or work * CLUSTERS * ROWS * FLAT <= MOST_IDLE * sums
    suits = cut.tall > 0 and work >= FEWEST_ROUNDS and gain(p) >= LEAST_GAIN and full
    return cut if suits else None


def refuses(p: GemmShape) -> str:
    """The text of the limit: wgmma multiplies elements of 16 bits."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: types, layouts, and the parameters of the tiles."""
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    return {
        **{"TILE_K": TILE_K, "STAGES": STAGES, "TAIL": TAIL, "BAND": BAND, "THREADS": THREADS},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "A_TURNED": a_turned, "B_TURNED": b_turned},
    }


def plan(p: GemmShape) -> list[Launch | Call]:
    """A cluster for each pair of tiles, or as many as are resident at once; or a call of another rung."""
    cut = choose(p)
    if cut is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    boxes = {"a": (1, 64 if p.layout[0] == "t" else 128, 64), "b": (1, 64, 64), "c": (1, 16, 64)}
    maps = []
    for (name, box), pitch, length in zip(boxes.items(), p.pitches, p.lengths, strict=True):
        lines = p.arrays[name].shape[1]
        maps.append(TensorMap(name, box, (p.batch, lines, length), (lines * pitch, pitch)))
    args = (*maps, ceil_div(p.m, ROWS), p.k, cut.tall, cut.flat, p.batch, float(p.alpha))
    shared = STAGES * STAGE_BYTES + STAGED_BYTES
    launch = Launch("gemm_mixed", (2 * cut.clusters,), (THREADS,), args, shared, cluster=2, early=True)
    return [launch]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v8_final",
    precision="fp16",
    min_arch=90,
    idea="tiles of 256 x 192 for large products, and of 128 x 256 where these would not fill a round",
)
