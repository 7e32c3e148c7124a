"""gemm/v18_thirds: the kernel that multiplies also splits, so small products in fp32 need no other launch."""

from dataclasses import dataclass
from functools import cache
from math import inf

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans.gemm_vectors import c_of
from mini_dnn.variant import Launch, Variant, ceil_div

ROWS = 64  # of c in a block
TILE_K = 64  # terms of a sum in a step
STAGES = 2
SPLITTERS = 256  # threads that load and split
THREADS = SPLITTERS + 128  # and a warpgroup that multiplies
AT_ONCE = {1: 132, 2: 66, 3: 40, 4: 30, 8: 14}  # clusters that an H100 or H200 runs at once, by their blocks

# The model of the time: microseconds on an H100, by the columns of a tile
START = {64: 2.9, 128: 3.9}  # of a round without steps
STEP = {64: 0.95, 128: 1.48}
STEP_ALONE = {64: 1.15, 128: 1.55}  # if a or b comes from memory: only one tile needs each of its floats
APART = 1.3  # factor of a step if lines do not consist of aligned fours
SHARE = 1.4  # more if the blocks of a cluster share k

# The same for gemm/v13_split
V13_START = 8.0  # of both launches
V13_ROW = 0.002  # for each row of a, however short it is
V13_SPLIT_BYTES, V13_STORE_BYTES = 2.4e6, 1.2e6  # per microsecond
V13_ROWS = 128  # of a tile
V13_STEP = {64: 0.53, 128: 0.95, 192: 1.36}


@dataclass(frozen=True)
class Tile:
    """A tile of c, and the number of blocks that share its k."""

    columns: int
    split: int

    def clusters(self, p: GemmShape) -> int:
        """The number of clusters: one for each tile of c."""
        return ceil_div(p.m, ROWS) * ceil_div(p.n, self.columns) * p.batch

    def microseconds(self, p: GemmShape) -> float:
        """The model of the time: rounds of clusters, and the steps of a block in each round."""
        steps = ceil_div(p.k, TILE_K)
        if steps < self.split:
            return inf
        rounds = ceil_div(self.clusters(p), AT_ONCE[self.split])
        step = (STEP_ALONE if p.m <= ROWS or p.n <= self.columns else STEP)[self.columns]
        if not (in_fours(p, 0) and in_fours(p, 1)):
            step *= APART
        round_time = START[self.columns] + ceil_div(steps, self.split) * step
        return rounds * round_time + (SHARE if self.split > 1 else 0)


TILES = [Tile(columns, split) for columns in START for split in AT_ONCE]


@cache
def choose(p: GemmShape) -> Tile:
    """The tile that the model predicts to be fastest."""
    return min(TILES, key=lambda tile: tile.microseconds(p))


def microseconds_of_v13(p: GemmShape) -> float:
    """The model of gemm/v13_split: both operands are split, and then products or stores take longer."""
    rows, steps = ceil_div(p.m, V13_ROWS) * p.batch, ceil_div(p.k, TILE_K)
    rounds = {columns: ceil_div(rows * ceil_div(p.n, columns), AT_ONCE[1]) for columns in V13_STEP}
    products = min(rounds[columns] * steps * step for columns, step in V13_STEP.items())
    in_pairs = p.pitches[2] % 2 == 0  # floats are stored in pairs, or one at a time
    stores = 4 * p.batch * p.m * p.n / V13_STORE_BYTES * (1 if in_pairs else 2)
    moved = 8 * p.batch * (p.m + p.n) * p.k  # bytes: a float is read, and two halves are written
    split = V13_START + moved / V13_SPLIT_BYTES + p.batch * p.m * V13_ROW
    return split + max(products, stores)


def refuses(p: GemmShape) -> str:
    """The limit that a problem exceeds: the type, or the size from which gemm/v13 is faster."""
    if p.dtype != "fp32":
        return f"it multiplies floats, and dtype is {p.dtype}; gemm/v14 takes 16 bits"
    if p.out == "fp32" and choose(p).microseconds(p) > microseconds_of_v13(p):
        return "it is for small products, and gemm/v13 is faster for this one; use that"
    return ""


def in_fours(p: GemmShape, number: int) -> bool:
    """Whether the lines of an operand (0: a, 1: b) consist of fours that start at multiples of 16 bytes."""
    return p.lengths[number] % 4 == p.pitches[number] % 4 == 0


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: the tile, types and layouts."""
    tile = choose(p)
    return {
        **{"ROWS": ROWS, "COLUMNS": tile.columns, "SPLIT": tile.split, "STAGES": STAGES},
        **{"THREADS": THREADS, "SPLITTERS": SPLITTERS, "OUT_TYPE": CODES[p.out]},
        **{"A_LINES": p.layout[0] == "t", "B_LINES": p.layout[1] == "n"},
        **{"A_QUADS": in_fours(p, 0), "B_QUADS": in_fours(p, 1)},
    }


def plan(p: GemmShape) -> list[Launch]:
    """One launch: a cluster for each tile of c, whose blocks share k."""
    tile = choose(p)
    args = ("a", "b", *c_of(p), p.m, p.n, p.k, *p.pitches, float(p.alpha), float(p.beta))
    thirds = 3 * 2 * (ROWS + tile.columns) * TILE_K  # bytes of a stage
    grid = (tile.clusters(p) * tile.split,)
    return [Launch("gemm", grid, (THREADS,), args, STAGES * thirds, cluster=tile.split, early=True)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v13_split",
    compute_type="6xfp16",
    min_arch=90,
    idea="small products in fp32: floats are split into three bfloats in the kernel that multiplies them",
)
