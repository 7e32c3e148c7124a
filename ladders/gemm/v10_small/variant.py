"""gemm/v10_small: tiles of 16 rows, a long k in parts, and rows times matrices; the rest is left to v8."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v8_final"  # takes what the kernels here do not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
UNIT = 8  # elements of 16 bits in 16 bytes: what a copy moves at least
BAND = 16  # rows of tiles
SMALL_THREADS = 128  # of a small tile's block
SMALL, LONG, ANYWHERE, NARROW = range(4)  # which kernel
COPIERS = 256  # threads of a block that adds parts, or multiplies by a vector

# One H100 or H200, as in gemm/v8_final.
AT_ONCE = {1: 132, 2: 66, 4: 30}  # clusters of so many blocks
FMA_CLOCK = 2048  # products and sums a clock of a multiprocessor's tensor cores
BYTES_CLOCK = 55  # that a multiprocessor takes in from L2
START_CLOCKS = 4350  # launch, first loads, last stores: what a product of 64 k takes
STORE_CLOCK = 16  # elements of c that leave a multiprocessor in a clock
ROWS_CLOCKS = 725  # to write 64 columns where rows of c start anywhere
SPLIT_CLOCKS, SPLIT_CLOCK = 1000, 8  # to hand over sums and add them up; and for how many of them one more
SHARE_CLOCKS = 600  # until all blocks of a cluster are there
SMALL_CLOCKS = 3070  # what START_CLOCKS is for small tiles
SMALL_BYTES_CLOCK = 23  # that the threads of a multiprocessor load from L2
PART_BYTES_CLOCK = 1000  # of parts of k in memory, until they have been added


@dataclass(frozen=True)
class Tile:
    """A tile of c, and what blocks share.

    Parameters
    ----------
    rows, columns
        Of c in a block.
    stages
        Of the ring; 0 for a tile of `OTHERS`, of which only the time matters.
    share, split
        Blocks of a cluster that share columns of b, or the k of a tile.
    parts
        Blocks that share k in memory: a second launch adds their sums.
    """

    rows: int
    columns: int
    stages: int = 0
    share: int = 1
    split: int = 1
    parts: int = 1
    depth: int = TILE_K
    blocks: int = 1
    anywhere: bool = False

    @property
    def kind(self) -> int:
        """Which kernel."""
        if self.rows == 32 and self.columns == 64 and not self.anywhere:
            return NARROW
        return ANYWHERE if self.anywhere else SMALL if self.small else LONG

    @property
    def small(self) -> bool:
        """Whether threads copy, and multiply with `mma.sync`: `wgmma` has 64 rows."""
        return self.rows < 64

    @property
    def step_bytes(self) -> int:
        """Of a stage."""
        return (self.rows + self.columns) * self.depth * 2

    def clusters(self, p: GemmShape) -> int:
        """Clusters, or blocks, that the problem gives work to."""
        return ceil_div(p.m, self.rows * self.share) * ceil_div(p.n, self.columns) * p.batch * self.parts

    def padded(self, p: GemmShape) -> tuple[int, int]:
        """Rows and columns of c in whole tiles."""
        return ceil_div(p.m, self.rows) * self.rows, ceil_div(p.n, self.columns) * self.columns

    def takes(self, p: GemmShape) -> bool:
        """Whether each block gets a step; clusters that split k must all be there at once."""
        at_once = self.split == 1 or self.clusters(p) <= AT_ONCE[self.split]
        return at_once and ceil_div(p.k, TILE_K) >= self.split * self.parts

    def clocks(self, p: GemmShape) -> float:
        """The model: rounds of tiles, each as long as its products or its loads, whichever take longer."""
        rounds = ceil_div(self.clusters(p), AT_ONCE[self.share * self.split])
        steps = ceil_div(ceil_div(p.k, TILE_K), self.split * self.parts)
        if self.small:
            return SMALL_CLOCKS + rounds * steps * self.step_bytes / SMALL_BYTES_CLOCK
        store = self.rows * self.columns / self.split / STORE_CLOCK
        if p.pitches[2] % UNIT and self.split == self.parts == 1:
            store = self.columns / 64 * ROWS_CLOCKS
        products = self.rows * self.columns * TILE_K / FMA_CLOCK
        loads = (self.rows + self.columns / self.share) * TILE_K * 2 / BYTES_CLOCK
        clocks = (
            START_CLOCKS + rounds * (steps * max(products, loads) + store) + (self.share > 1) * SHARE_CLOCKS
        )
        if self.split > 1:
            clocks += SPLIT_CLOCKS + self.rows * self.columns / SPLIT_CLOCK
        if self.parts > 1:
            rows, columns = self.padded(p)
            clocks += 4 * self.parts * rows * columns * p.batch / PART_BYTES_CLOCK
        return clocks


PARTS = Tile(64, 128, 8, parts=4)
OWN = (PARTS, Tile(16, 16, 9), Tile(16, 32, 9))
OF_OTHERS = (
    Tile(128, 256, share=2),
    *(Tile(rows, columns) for rows, columns in ((128, 128), (64, 128), (64, 64))),
    *(Tile(64, 128, split=2), Tile(64, 64, split=2), Tile(64, 64, split=4), Tile(128, 128, split=4)),
)


@cache
def choose(p: GemmShape) -> Tile | None:
    """The tile that the model finds fastest, if it is one of `OWN` and the lines of operands are aligned."""
    if is_vector(p):
        return None
    if p.pitches[0] % UNIT or p.pitches[1] % UNIT:
        return anywhere_tile(p) if p.k <= 32 or min(p.m, p.n) <= 64 else None
    tile = min((t for t in (*OF_OTHERS, *OWN) if t.takes(p)), key=lambda t: t.clocks(p))
    return tile if tile in OWN else None


def anywhere_tile(p: GemmShape) -> Tile:
    """Interim."""
    rows = 16 if p.m <= 16 else 32 if p.m <= 32 else 64
    depth = 32 if p.k <= 32 else 64
    steps = ceil_div(p.k, depth)
    one = Tile(
        rows, 64, min(steps, 2), depth=depth, blocks=3 if rows == 64 and depth == 64 else 4, anywhere=True
    )
    fits = [s for s in (8, 4, 2, 1) if steps >= 2 * s and one.clusters(p) * s <= 400]
    return replace(one, split=fits[0] if fits else 1)


def is_vector(p: GemmShape) -> bool:
    """Whether an operand is a vector: then nothing of the other one is used twice."""
    return p.m == 1 or p.n == 1


def matrix(p: GemmShape) -> int:
    """Which operand is the matrix where the other one is a vector: 0 is a, 1 is b."""
    return 1 if p.m == 1 else 0


def by_columns(p: GemmShape) -> bool:
    """Whether `sum_columns` takes it: the matrix lies k by k, in lines that are aligned."""
    x = matrix(p)
    return is_vector(p) and p.layout[x] == "tn"[x] and p.pitches[x] % UNIT == 0


def parts_of_k(p: GemmShape) -> int:
    """Blocks of a cluster that share the k of a product with a vector: each has 256 terms or more."""
    return next((parts for parts in (8, 4, 2) if p.k >= 256 * parts), 1)


def refuses(p: GemmShape) -> str:
    """What tensor cores multiply here."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def threads(tile: Tile) -> int:
    if tile.kind == NARROW:
        return 160
    """Of a block: those of a small tile, or a warpgroup that multiplies and a warp that copies."""
    return SMALL_THREADS if tile.small or tile.anywhere else tile.rows // 64 * 128 + 32


def scratch(p: GemmShape) -> dict[str, Array]:
    """Sums of parts of k."""
    return (
        {"partial": Array((p.batch, PARTS.parts, *PARTS.padded(p)), "float32")} if choose(p) is PARTS else {}
    )


def defines(p: GemmShape) -> dict[str, int]:
    """The tile, types and layouts, which the compiler has to know."""
    tile = choose(p) or PARTS  # the same for all problems that do not look at it: fewer kernels to compile
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": tile.depth, "STAGES": tile.stages},
        **{"SMALL": SMALL, "LONG": LONG, "ANYWHERE": ANYWHERE, "NARROW": NARROW, "KIND": tile.kind, "SPLIT": tile.split},
        "BY_ROWS": tile.anywhere and tile.rows == 64 and tile.split == 1 and p.out != "fp32" and not p.beta,
        **{"BLOCKS": tile.blocks, "PARTS": tile.parts, "BAND": BAND, "THREADS": threads(tile)},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "A_TURNED": a_turned, "B_TURNED": b_turned},
        **{"COPIERS": COPIERS, "PARTS_OF_K": parts_of_k(p) if by_columns(p) else 1},
    }


def columns(p: GemmShape) -> Launch:
    """A cluster for 64 lines of the matrix."""
    number = matrix(p)
    x, v = "ab"[number], "ba"[number]
    lines = p.n if x == "b" else p.m
    v_beside = p.layout[1 - number] == "tn"[number]
    v_step = 1 if v_beside else p.pitches[1 - number]
    c_step = 1 if x == "b" else p.pitches[2]  # elements from one sum to the next
    entries = [np.int64(p.arrays[name].shape[1] * p.pitches["abc".index(name)]) for name in (x, v, "c")]
    c0 = "c0" if p.beta else "c"  # what is not read
    args = (
        x,
        v,
        c0,
        "c",
        lines,
        p.k,
        p.pitches[number],
        v_step,
        c_step,
        *entries,
        float(p.alpha),
        float(p.beta),
    )
    parts = parts_of_k(p)
    grid = (ceil_div(lines, 64) * parts, p.batch)
    return Launch("sum_columns", grid, (COPIERS,), args, cluster=parts, early=True)


def small(p: GemmShape, tile: Tile) -> Launch:
    """A block for each tile."""
    c0 = "c0" if p.beta else "c"  # what is not read
    args = ("a", "b", c0, "c", p.m, p.n, p.k, *p.pitches, float(p.alpha), float(p.beta))
    sums = SMALL_THREADS // 32 * tile.rows * (tile.columns + UNIT) * 4
    shared = max(tile.stages * tile.step_bytes, sums)
    return Launch("gemm_small", (tile.clusters(p),), (SMALL_THREADS,), args, shared, early=True)


def anywhere(p: GemmShape, tile: Tile) -> Launch:
    """A cluster for each tile."""
    c0 = "c0" if p.beta else "c"  # what is not read
    args = ("a", "b", c0, "c", p.m, p.n, p.k, *p.pitches, p.batch, float(p.alpha), float(p.beta))
    sums = tile.rows * (tile.columns + UNIT) * 4
    shared = max(tile.stages * tile.step_bytes, sums)
    grid = (tile.clusters(p) * tile.split,)
    return Launch("gemm_anywhere", grid, (SMALL_THREADS,), args, shared, cluster=tile.split, early=True)


def narrow(p: GemmShape, tile: Tile) -> Launch:
    """A block for each tile."""
    c0 = "c0" if p.beta else "c"  # what is not read
    maps = (operand(p, "a", tile.rows), operand(p, "b"))
    args = (*maps, c0, "c", p.m, p.n, p.k, p.pitches[2], float(p.alpha), float(p.beta))
    shared = tile.stages * tile.step_bytes + tile.rows * (tile.columns + UNIT) * 4
    return Launch("gemm_narrow", (tile.clusters(p),), (threads(tile),), args, shared, early=True)


def operand(p: GemmShape, name: str, across: int = 64) -> TensorMap:
    """How tensor copies see an operand: lines in boxes of 64 by 64 elements."""
    number, lines = "ab".index(name), p.arrays[name].shape[1]
    pitch = p.pitches[number]
    return TensorMap(name, (1, across, 64), (p.batch, lines, p.lengths[number]), (lines * pitch, pitch))


def in_parts(p: GemmShape) -> list[Launch]:
    """As many blocks as there is room for, and a launch that adds their sums."""
    tiles = PARTS.clusters(p)
    blocks = ceil_div(tiles, ceil_div(tiles, AT_ONCE[1]))  # no more than rounds need
    args = (operand(p, "a"), operand(p, "b"), "partial", p.m, p.n, p.k, p.batch)
    shared = PARTS.stages * PARTS.step_bytes
    rows, columns = PARTS.padded(p)
    c0 = "c0" if p.beta else "c"  # what is not read
    sizes = (p.batch * p.m, p.m, p.n, rows * columns, columns, p.pitches[2])
    added = ("partial", c0, "c", *sizes, float(p.alpha), float(p.beta))
    grid = (ceil_div(p.batch * p.m * ceil_div(p.n, 4), COPIERS),)
    return [
        Launch("gemm_parts", (blocks,), (threads(PARTS),), args, shared, early=True),
        Launch("add_parts", grid, (COPIERS,), added, early=True),
    ]


def plan(p: GemmShape) -> list[Launch | Call]:
    """One of three ways, or a call."""
    if by_columns(p):
        return [columns(p)]
    tile = choose(p)
    if tile is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    if tile.kind == NARROW:
        return [narrow(p, tile)]
    if tile.anywhere:
        return [anywhere(p, tile)]
    return [small(p, tile)] if tile.small else [*in_parts(p)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=refuses,
    parent="gemm/v8_final",
    precision="fp16",
    min_arch=90,
    idea="small tiles, a long k shared through memory, and rows times matrices; otherwise v8",
)
