"""gemm/v19_fma: small products in fp32 by FMAs, with tiles so small that even a small c has many of them."""

from dataclasses import dataclass
from functools import cache
from math import inf

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans.gemm_floats import AT_ONCE, fastest_thirds, in_fours, microseconds_of_v13
from mini_dnn.plans.gemm_vectors import c_of
from mini_dnn.variant import Launch, Variant, ceil_div

THREADS = 128
SUMS = 32  # of a thread: 4 x 8
SIDES = (16, 32, 64)  # rows or columns of a tile of c
TILE_K = {1: 32, 2: 64, 4: 64, 8: 64, 16: 128}  # terms of a stage, by the groups of threads that share them
STAGES = {1: 2, 2: 2, 4: 4, 8: 6, 16: 6}  # also by these groups
LEAST_K = 16  # fewest terms of a block if blocks share k

# The model of the time: microseconds on an H100, fitted to 1,900 times of 100 products
START = 1.85  # of a launch that waits for the previous one
GROUP = 0.0075  # for each group: its sums have to be added
SHARE = 0.8  # more if the blocks of a cluster share k
TERM = (0.0068e-3, 0.0695e-3)  # of a block, for each sum and for each row and column
MORE_TERM = (0.0033e-3, 0.074e-3)  # the same for each further block of a multiprocessor
MORE = (0.36, 0.067e-3)  # for each further block, and for each of its sums
APART = 1.16  # factor of a term if lines do not consist of aligned fours
BYTES = 2.6e6  # per microsecond


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a tile of c, and the number of blocks that share its k."""

    rows: int
    columns: int
    split: int

    @property
    def groups(self) -> int:
        """The number of groups of threads: each has all sums of the tile for its share of the terms."""
        return THREADS * SUMS // (self.rows * self.columns)

    def clusters(self, p: GemmShape) -> int:
        """The number of clusters: one for each tile of c."""
        return ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns) * p.batch

    def shared_bytes(self, p: GemmShape) -> int:
        """The size of all stages that k needs, or of the partial sums of all groups if these are larger."""
        tile_k, (a, b) = TILE_K[self.groups], p.layout
        of_a = tile_k * self.rows if a == "t" else self.rows * (tile_k + 4)
        of_b = tile_k * self.columns if b == "n" else self.columns * (tile_k + 4)
        stages = min(STAGES[self.groups], ceil_div(p.k, tile_k))
        return 4 * max(stages * (of_a + of_b), self.groups * self.rows * (self.columns + 4))

    def microseconds(self, p: GemmShape) -> float:
        """The model of the time: the terms of a multiprocessor's blocks, or all bytes if they take longer."""
        if self.split > 1 and p.k < LEAST_K * self.split:
            return inf
        sums, lines = self.rows * self.columns, self.rows + self.columns
        terms = ceil_div(p.k, self.split) * (1 if in_fours(p, 0) and in_fours(p, 1) else APART)
        further = ceil_div(self.clusters(p), AT_ONCE[self.split]) - 1
        block = terms * (TERM[0] * sums + TERM[1] * lines)
        more = terms * (MORE_TERM[0] * sums + MORE_TERM[1] * lines) + MORE[0] + MORE[1] * sums
        moved = 4 * p.batch * (p.m * p.k + p.k * p.n + p.m * p.n) / BYTES
        start = START + GROUP * self.groups + (SHARE if self.split > 1 else 0)
        return start + max(block + further * more, moved)


TILES = [Tile(rows, columns, split) for rows in SIDES for columns in SIDES for split in AT_ONCE]


@cache
def choose(p: GemmShape) -> Tile:
    """The tile that the model predicts to be fastest."""
    return min(TILES, key=lambda tile: tile.microseconds(p))


def refuses(p: GemmShape) -> str:
    """The limit that a problem exceeds: the type, or the size from which another rung is faster."""
    if p.dtype != "fp32":
        return f"it multiplies floats, and dtype is {p.dtype}; gemm/v14 takes 16 bits"
    others = {"gemm/v18": fastest_thirds(p).microseconds(p)}
    if p.out == "fp32":
        others["gemm/v13"] = microseconds_of_v13(p)
    faster = min(others, key=lambda name: others[name])
    if choose(p).microseconds(p) > others[faster]:
        return f"it is for small products, and {faster} is faster for this one; use that"
    return ""


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: the tile, types and layouts."""
    tile = choose(p)
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "SPLIT": tile.split, "GROUPS": tile.groups},
        **{"TILE_K": TILE_K[tile.groups], "STAGES": STAGES[tile.groups], "THREADS": THREADS},
        **{"OUT_TYPE": CODES[p.out], "A_LINES": p.layout[0] == "t", "B_LINES": p.layout[1] == "n"},
        **{"A_FOURS": in_fours(p, 0), "B_FOURS": in_fours(p, 1)},
    }


def plan(p: GemmShape) -> list[Launch]:
    """One launch: a cluster for each tile of c, whose blocks share k."""
    tile = choose(p)
    args = ("a", "b", *c_of(p), p.m, p.n, p.k, *p.pitches, float(p.alpha), float(p.beta))
    grid = (tile.clusters(p) * tile.split,)
    return [Launch("gemm", grid, (THREADS,), args, tile.shared_bytes(p), cluster=tile.split, early=True)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v18_thirds",
    min_arch=90,
    idea="small products in fp32: FMAs instead of tensor cores, and tiles so small that c has many of them",
)
