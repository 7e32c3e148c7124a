"""gemm/v10_small: tiles of 16 to 64 rows, a long k in parts, vectors times matrices; v8 computes the rest."""

from dataclasses import dataclass
from functools import cache
from math import ceil

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans import gemm_vectors
from mini_dnn.plans.gemm_vectors import c_of
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v8_final"  # computes what the kernels here do not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
LINE = 64  # elements of 16 bits in a cache line
UNIT = 8  # elements of 16 bits in 16 bytes, the smallest piece that the copy engine moves
BAND = 16  # rows of tiles in a band; tiles are computed band after band
ROWS_BYTES = 4 * 4096  # of four warps: rows of c before they are stored
ADDERS = 64  # threads of a block that adds parts: so few that few sums occupy many multiprocessors
SMALL, ANYWHERE, LONG, OTHER = range(4)  # kinds of tiles; OTHER is a tile of `OTHERS`

# One H100 or H200, as in gemm/v8_final.
AT_ONCE = {1: 132, 2: 66, 4: 30}  # resident clusters, by the number of their blocks
FMA_CLOCK = 2048  # multiply-adds per clock of a multiprocessor's tensor cores
BYTES_CLOCK = 55  # bytes per clock that a multiprocessor receives from L2
MEMORY_BYTES_CLOCK = 1600  # bytes per clock that are read and written in memory
ODD_BYTES_CLOCK = 700  # bytes per clock of c, if its rows start anywhere
START_CLOCKS = 4350  # launch, first loads and last stores: the time of a product with k = 64
STORE_CLOCK = 16  # elements of c that a multiprocessor stores per clock
ROWS_CLOCKS = 725  # to store 64 columns if rows of c start anywhere
SPLIT_CLOCKS, SPLIT_CLOCK = 1000, 8  # to exchange and add sums: once, and sums per additional clock
SHARE_CLOCKS = 600  # until all blocks of a cluster have started
HAND_CLOCKS, LOADER_CLOCKS = 2500, 440  # instead of START_CLOCKS if threads load, and for each such warpgroup
TURN_CLOCKS = 2600  # to load 64 rows and 64 columns of a step through registers
HAND_PITCH = 1 << 23  # 128 lines of a tile are less than 2^30 elements long: see `Units` in anywhere.cuh
PACK_CLOCKS, PACK_BYTES_CLOCK = 4000, 1800  # for copies of odd operands: once, and bytes per clock
PART_BYTES_CLOCK = 1000  # bytes per clock of sums of parts, which are stored in memory and added
SMALL_CLOCKS, SMALL_ROUND = 3240, 650  # START_CLOCKS of small tiles; for each further one of a multiprocessor
SMALL_WAIT, SMALL_BYTES_CLOCK = 100, 38  # until a step of a small tile arrives: latency, and bytes per clock
THREADS_BYTES_CLOCK = 33  # bytes per clock of all small tiles of a multiprocessor
ANYWHERE_CLOCKS = 3300  # START_CLOCKS of tiles that start anywhere
ADD_CLOCKS = 3000  # for the launch that adds their parts
STEP_WAIT, UNIT_WAIT = 400, 220  # until a step arrives: once, and for each unit of eight elements of a thread
UNIT_CLOCKS = 1.1  # that a multiprocessor needs for a unit


@dataclass(frozen=True)
class Tile:
    """A tile of c, and what its blocks share."""

    kind: int  # the kernel that computes it; of an `OTHER` one, only the time is used
    rows: int  # of c in a block
    columns: int
    stages: int = 0  # of the ring
    share: int = 1  # blocks of a cluster that share columns of b
    split: int = 1  # blocks of a cluster that share the k of a tile
    parts: int = 1  # blocks that share k in memory: a second launch adds their sums
    depth: int = TILE_K  # terms of a sum in a stage
    threads: int = 128  # of a block
    blocks: int = 1  # resident blocks of a multiprocessor
    loaders: int = 0  # warpgroups whose threads load operands

    @property
    def step_bytes(self) -> int:
        """The number of bytes of a stage."""
        return (self.rows + self.columns) * self.depth * 2

    def clusters(self, p: GemmShape) -> int:
        """The number of clusters, or of blocks, that have work."""
        return ceil_div(p.m, self.rows * self.share) * ceil_div(p.n, self.columns) * p.batch * self.parts

    def steps(self, p: GemmShape) -> int:
        """The number of steps of a block."""
        return ceil_div(ceil_div(p.k, self.depth), self.split * self.parts)

    def padded(self, p: GemmShape) -> tuple[int, int]:
        """Rows and columns of c in whole tiles."""
        return ceil_div(p.m, self.rows) * self.rows, ceil_div(p.n, self.columns) * self.columns

    def takes(self, p: GemmShape) -> bool:
        """Whether the kernel reads such operands, blocks have steps, and split clusters are resident."""
        odd, deep = bool(odd_lines(p)), ceil_div(p.k, self.depth) >= self.split * self.parts
        if self.kind == ANYWHERE:
            return odd and deep and max(p.pitches) < HAND_PITCH and (self.stages > 1 or p.k <= self.depth)
        at_once = self.split == 1 or self.clusters(p) <= AT_ONCE[self.split]
        reads = not odd if self.kind != OTHER else odd or not self.loaders
        return reads and at_once and deep

    def clocks(self, p: GemmShape) -> float:
        """The model of the time: a constant part, and the work of blocks or of memory."""
        least, work = {SMALL: self.of_small, ANYWHERE: self.of_anywhere}.get(self.kind, self.of_final)(p)
        clocks = least + max(work, p.min_bytes / MEMORY_BYTES_CLOCK)
        if self.parts > 1:
            rows, columns = self.padded(p)
            clocks += 4 * self.parts * rows * columns * p.batch / PART_BYTES_CLOCK
        return clocks

    def of_small(self, p: GemmShape) -> tuple[float, float]:
        """Small tiles: a block waits for its loads, or a multiprocessor executes those of all its blocks."""
        each, steps = self.clusters(p) / AT_ONCE[1], self.steps(p)
        waits = steps * (SMALL_WAIT + self.step_bytes / SMALL_BYTES_CLOCK)
        works = steps * self.step_bytes * each / THREADS_BYTES_CLOCK
        return SMALL_CLOCKS + (ceil(each) - 1) * SMALL_ROUND, max(waits, works)

    def of_anywhere(self, p: GemmShape) -> tuple[float, float]:
        """Tiles that start anywhere: a block waits for its units, or a multiprocessor processes all."""
        units, steps = self.step_bytes / 16, self.steps(p)
        waits = steps * (STEP_WAIT + units / self.threads * UNIT_WAIT)
        works = steps * units * UNIT_CLOCKS + ROWS_CLOCKS * self.rows / 64
        least = ANYWHERE_CLOCKS + (self.parts > 1) * ADD_CLOCKS
        return least, max(waits, works * self.clusters(p) / AT_ONCE[1])

    def of_final(self, p: GemmShape) -> tuple[float, float]:
        """Tiles of gemm/v8_final: rounds, each as long as its products or its loads."""
        area, odd_c = self.rows * self.columns, p.pitches[2] % UNIT and self.split == self.parts == 1
        store = self.columns / 64 * ROWS_CLOCKS if odd_c else area / self.split / STORE_CLOCK
        rounds = ceil_div(self.clusters(p), AT_ONCE[self.share * self.split])
        if self.loaders:
            turns = ceil_div(rounds * self.steps(p), self.loaders) * self.rows // 64
            least, work = HAND_CLOCKS + self.loaders * LOADER_CLOCKS, turns * TURN_CLOCKS + rounds * store
        else:
            products = area * TILE_K / FMA_CLOCK
            loads = (self.rows + self.columns / self.share) * TILE_K * 2 / BYTES_CLOCK
            least = START_CLOCKS + pack_clocks(p) + (self.share > 1) * SHARE_CLOCKS
            work = rounds * (self.steps(p) * max(products, loads) + store)
        if self.split > 1:
            least += SPLIT_CLOCKS + area / SPLIT_CLOCK
        return least, max(work, p.arrays["c"].nbytes / ODD_BYTES_CLOCK if odd_c else 0)


PARTS = Tile(LONG, 64, 128, 8, parts=4, threads=160)  # a warpgroup multiplies, and a warp copies
OWN = (
    PARTS,
    *(Tile(SMALL, 16, columns, 9) for columns in (16, 32)),
    *(Tile(ANYWHERE, 64, 64, 1, depth=depth, blocks=blocks) for depth, blocks in ((16, 5), (32, 4), (64, 3))),
    *(Tile(ANYWHERE, 16, 64, 1, depth=depth, blocks=blocks) for depth, blocks in ((64, 4), (128, 3))),
    *(Tile(ANYWHERE, rows, 64, 2, parts=parts, blocks=4) for rows in (16, 32) for parts in (8, 16)),
    Tile(ANYWHERE, 16, 64, 2, parts=16, depth=128, blocks=3),
)
OF_OTHERS = (
    Tile(OTHER, 128, 256, share=2),
    *(Tile(OTHER, rows, columns) for rows, columns in ((128, 128), (64, 128), (64, 64))),
    *(Tile(OTHER, 64, columns, split=2) for columns in (64, 128)),
    *(Tile(OTHER, side, side, split=4) for side in (64, 128)),
    *(Tile(OTHER, side, side, loaders=loaders) for side, loaders in ((128, 2), (64, 1))),
    *(Tile(OTHER, 64, 64, split=split, loaders=3) for split in (1, 2, 4)),
)


@cache
def choose(p: GemmShape) -> Tile | None:
    """The tile that the model predicts to be fastest, or None if it is not one of `OWN`."""
    if gemm_vectors.is_vector(p):
        return None
    tile = min((t for t in (*OF_OTHERS, *OWN) if t.takes(p)), key=lambda t: t.clocks(p))
    return tile if tile in OWN else None


def odd_lines(p: GemmShape) -> list[str]:
    """Operands whose lines do not start at multiples of 16 bytes."""
    return [name for name, pitch in zip("ab", p.pitches, strict=False) if pitch % UNIT]


def pack_clocks(p: GemmShape) -> float:
    """The model of the time for copies of odd operands, in clocks."""
    moved = 0
    for name in odd_lines(p):
        lines, length = p.arrays[name].shape[1] * p.batch, p.lengths["ab".index(name)]
        moved += 4 * lines * ceil_div(length, LINE) * LINE
    return PACK_CLOCKS + moved / PACK_BYTES_CLOCK if moved else 0


def refuses(p: GemmShape) -> str:
    """The text of the limit: its products multiply elements of 16 bits."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def scratch(p: GemmShape) -> dict[str, Array]:
    """The sums of parts of k, in whole tiles."""
    tile = choose(p)
    if tile is None or tile.parts == 1:
        return {}
    return {"partial": Array((p.batch, tile.parts, *tile.padded(p)), "float32")}


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: the tile, types and layouts."""
    tile = choose(p) or PARTS  # the same for all problems without one, so that fewer kernels are compiled
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    by_rows = tile.rows == 64 and tile.parts == 1 and p.out != "fp32" and not p.beta
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": tile.depth, "STAGES": tile.stages},
        **{"KIND": tile.kind, "SMALL": SMALL, "ANYWHERE": ANYWHERE, "BY_ROWS": by_rows},
        **{"PARTS": tile.parts, "BAND": BAND, "THREADS": tile.threads, "BLOCKS": tile.blocks},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "A_TURNED": a_turned, "B_TURNED": b_turned},
        **{"ADDERS": ADDERS, **gemm_vectors.defines(p)},
    }


def operand(p: GemmShape, name: str) -> TensorMap:
    """The tensor map of an operand: lines, in boxes of 64 by 64 elements."""
    number, lines = "ab".index(name), p.arrays[name].shape[1]
    pitch = p.pitches[number]
    return TensorMap(name, (1, 64, 64), (p.batch, lines, p.lengths[number]), (lines * pitch, pitch))


def tiles(p: GemmShape, tile: Tile) -> Launch:
    """The launch with a block for each tile or, for a long k, with as many blocks as are resident."""
    blocks, shared = tile.clusters(p), tile.stages * tile.step_bytes
    sums = "partial" if tile.parts > 1 else "c"  # otherwise it is not written
    sizes, factors = (p.m, p.n, p.k), (float(p.alpha), float(p.beta))
    if tile.kind == LONG:
        blocks = ceil_div(blocks, ceil_div(blocks, AT_ONCE[1]))  # no more than the number of rounds needs
        args = (operand(p, "a"), operand(p, "b"), sums, *sizes, p.batch)
        return Launch("gemm_parts", (blocks,), (tile.threads,), args, shared, early=True)
    if tile.kind == ANYWHERE:
        given = ("a", "b", sums, *c_of(p), *sizes, *p.pitches, p.batch, *factors)
        return Launch("gemm_anywhere", (blocks,), (tile.threads,), given, max(shared, ROWS_BYTES), early=True)
    of_warps = tile.threads // 32 * tile.rows * (tile.columns + UNIT) * 4  # sums take the place of stages
    given = ("a", "b", *c_of(p), *sizes, *p.pitches, *factors)
    return Launch("gemm_small", (blocks,), (tile.threads,), given, max(shared, of_warps), early=True)


def added(p: GemmShape, tile: Tile) -> Launch:
    """The launch that adds sums of parts."""
    rows, columns = tile.padded(p)
    numbers = (p.batch * p.m, p.m, p.n, rows * columns, columns, p.pitches[2], float(p.alpha), float(p.beta))
    grid = (ceil_div(p.batch * p.m * ceil_div(p.n, 4), ADDERS),)
    return Launch("add_parts", grid, (ADDERS,), ("partial", *c_of(p), *numbers), early=True)


def plan(p: GemmShape) -> list[Launch | Call]:
    """One of the kernels here, or a call of another rung."""
    if gemm_vectors.kernel(p):
        return [gemm_vectors.launch(p)]
    tile = choose(p)
    if tile is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    return [tiles(p, tile), added(p, tile)] if tile.parts > 1 else [tiles(p, tile)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=refuses,
    parent="gemm/v8_final",
    precision="fp16",
    min_arch=90,
    idea="small tiles, lines that start anywhere, a long k shared through memory, and rows times matrices",
)
