"""gemm/v11_ahead: tiles of many sizes that fill the rounds; constants are loaded before the wait."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS, FINAL_RUNG = "gemm/v10_small", "gemm/v8_final"  # take what the kernels here do not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
UNIT = 8  # elements of 16 bits that the copy engine moves at least
SECTOR = 16  # elements in 32 bytes: a line of a box that starts within such a sector takes twice as long
MOST_STAGES, LEAST_STAGES = 8, 4  # of a ring
SHARED_BYTES = 226 * 1024  # of a block, for stages and sums
BUSY_AHEAD = 4  # stages of b that are loaded before the wait, if most multiprocessors have a tile
FEW_ROWS, FEW_COLUMNS = 64, 32  # boxes of b that are mostly outside are slow: tiles must not be low
FOUR_K = 4096  # the longest sum that a cluster of four blocks was tried for
MOST_SUMS = 1 << 25  # of tiles of several rounds: beyond that, the last round hardly counts
WIDE_K = 128  # terms in the last steps, which multiply half of the columns at a time; a sum must be longer
WIDE_STAGES, WIDE_AHEAD = 4, 2  # of a ring; of b, loaded before the wait
WARP_BYTES = 4096  # of c on their way out
BAND = 16  # rows of tiles
SINGLE, WIDE, ROUNDS, FINAL, SMALL, PARTS = range(6)  # kinds of tiles; the last three are those of OTHERS

# The model, in clocks at 1755 MHz, fitted to 2,000 times of 223 products on H100s
AT_ONCE = {1: 132, 2: 66, 4: 30, 8: 15}  # clusters of so many blocks
START = {SINGLE: 3590, WIDE: 2570, ROUNDS: 5520, FINAL: 4700, PARTS: 7800}  # launch, first loads, last stores
AGAIN_CLOCKS = 940  # until a block has taken the place of another one
STEP_CLOCKS = 66  # of a step, whatever its size
PRODUCT = 0.79  # clocks for 2,048 products
SHARED = 0.69  # clocks for 128 bytes that instructions read from shared memory, or that are loaded to it
LINE = 2.14  # clocks for a line of 128 bytes from L2, if all multiprocessors load
ALONE = 0.23  # the fraction of these clocks that remains if few multiprocessors load
ODD_A, ODD_B = 0.71, 1.1  # lines to add for each, if every second one starts within a sector of 32 bytes
STORE = 10.4  # elements of c that are stored in a clock
CLUSTER_CLOCKS, FINAL_CLUSTER_CLOCKS = 2470, 110  # until all blocks of a cluster are there
SPLIT_CLOCKS, SPLIT_CLOCK = 530, 0.085  # to hand over sums: once, and for each of them
SPLIT_LOADS = 0.325  # of the clocks of a line, to add if blocks share k, because more lines are loaded
# Of the tiles of gemm/v10_small: see Tile.of_small(). The last one is for sums that blocks add up in memory.
SMALL_CLOCKS, SMALL_ROUND, SMALL_WAIT = 4000, 650, 142
SMALL_BYTES_CLOCK, THREADS_BYTES_CLOCK, PART_BYTES_CLOCK = 60, 25, 2000


@dataclass(frozen=True)
class Tile:
    """A tile of c, and its blocks."""

    kind: int
    rows: int
    columns: int
    blocks: int = 1  # of a multiprocessor at once
    split: int = 1  # blocks of a cluster that share the k of a tile
    share_a: int = 1  # blocks beside each other that share rows of a
    share_b: int = 1  # blocks below each other that share columns of b
    halves: bool = False  # whether rows are every second one: those start at the same place in a sector
    parts: int = 1  # blocks that share k through memory

    @property
    def pairs(self) -> int:
        """Products of 64 columns that a warpgroup computes in each step."""
        return 2 if self.kind == ROUNDS and self.columns == 256 else 1

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.split * self.share_a * self.share_b

    @property
    def step_bytes(self) -> int:
        """Of a stage."""
        return (self.rows + self.columns) * TILE_K * 2

    def count(self, p: GemmShape) -> int:
        """The number of clusters that cover c, in all entries of the batch."""
        m, batch = (p.m // 2, 2) if self.halves else (p.m, p.batch)
        return batch * ceil_div(m, self.rows * self.share_b) * ceil_div(p.n, self.columns * self.share_a)

    def takes(self, p: GemmShape) -> bool:
        """Whether the kernel can process it, and blocks of a cluster have something to share."""
        steps = ceil_div(p.k, TILE_K)
        if self.kind == WIDE:
            return p.k > WIDE_K and self.count(p) <= AT_ONCE[1]
        too_long = self.split > 2 and p.k > FOUR_K
        if self.split > 1 and (too_long or self.count(p) > AT_ONCE[self.split] or steps < 2 * self.split):
            return False
        if self.kind == SINGLE and self.rows < FEW_ROWS and p.n <= FEW_COLUMNS < p.m:
            return False
        if self.kind == ROUNDS and p.batch * p.m * p.n > MOST_SUMS:
            return False
        if self.halves and (p.batch > 1 or p.m % 2 or p.pitches[0] % SECTOR == 0):
            return False
        m = p.m // 2 if self.halves else p.m
        below, beside = self.rows * (self.share_b - 1) < m, self.columns * (self.share_a - 1) < p.n
        return below and beside and steps >= self.parts

    def clocks(self, p: GemmShape) -> float:
        """The model: rounds of tiles, each as long as its products or its loads, and stores."""
        steps, clusters = ceil_div(ceil_div(p.k, TILE_K), self.split * self.parts), self.count(p) * self.parts
        if self.kind == SMALL:
            return self.of_small(steps, clusters)
        at_once = AT_ONCE[self.cluster]
        beside = min(self.blocks, ceil_div(clusters, at_once))  # blocks of a multiprocessor
        rounds = ceil_div(clusters, at_once * beside)
        busy = min(1.0, clusters / rounds / at_once / beside)
        odd_a = ODD_A * (p.pitches[0] % SECTOR > 0 and not self.halves)
        odd_b = ODD_B * (p.pitches[1] % SECTOR > 0)
        lines = self.rows / self.share_a * (1 + odd_a) + self.columns / self.share_b * (1 + odd_b)
        split = 1 + SPLIT_LOADS * (self.split > 1)
        loads = lines * LINE * (ALONE + (1 - ALONE) * busy) * split
        products = self.rows * self.columns * TILE_K / 2048
        width = self.rows if self.kind in (SINGLE, ROUNDS) else self.columns  # of the instruction
        shared = products * (64 + 4096 / width) / 128 + self.rows + self.columns  # 128 bytes a clock
        # as long as the longest of the three, and longer if others take about the same time
        longest = sum(clocks**6 for clocks in (products * PRODUCT, shared * SHARED, loads)) ** (1 / 6)
        sums = self.rows * self.columns * beside
        clocks = START[self.kind] + rounds * (
            steps * (STEP_CLOCKS + beside * longest) + sums / self.split / STORE
        )
        clocks += (self.kind == SINGLE) * (rounds - 1) * AGAIN_CLOCKS
        if self.split > 1:
            clocks += SPLIT_CLOCKS + sums * SPLIT_CLOCK
        elif self.cluster > 1:
            clocks += CLUSTER_CLOCKS if self.kind == ROUNDS else FINAL_CLUSTER_CLOCKS
        return clocks + (self.parts > 1) * (4 * self.parts * sums * self.count(p) / PART_BYTES_CLOCK)

    def of_small(self, steps: int, blocks: int) -> float:
        """Clocks for tiles of gemm/v10_small: the latency or the rate of loads limits them."""
        waits = steps * (SMALL_WAIT + self.step_bytes / SMALL_BYTES_CLOCK)
        works = steps * self.step_bytes * blocks / AT_ONCE[1] / THREADS_BYTES_CLOCK
        return SMALL_CLOCKS + (ceil_div(blocks, AT_ONCE[1]) - 1) * SMALL_ROUND + max(waits, works)


def of_rounds() -> Iterator[Tile]:
    """Tiles of several rounds."""
    heights = {64: (64, 257, 32), 128: (64, 257, 16), 192: (64, 193, 16), 256: (128, 193, 16)}
    shares = ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (1, 4), (2, 4), (4, 2))
    for columns, rows in heights.items():
        for height, (share_a, share_b), halves in product(range(*rows), shares, (False, True)):
            if height % (8 * share_a) == 0:
                yield Tile(ROUNDS, height, columns, 1, 1, share_a, share_b, halves)


TILES = (
    *(Tile(SINGLE, rows, 64, 2) for rows in (16, 32)),
    *(Tile(SINGLE, rows, columns) for columns in (64, 128) for rows in range(64, 161, 16)),
    *(Tile(SINGLE, rows, 192) for rows in range(64, 145, 16)),
    *(Tile(SINGLE, rows, 64, split=2) for rows in (32, 64, 96, 128)),
    *(Tile(SINGLE, rows, 128, split=2) for rows in (64, 128, 160, 192)),
    Tile(SINGLE, 128, 128, split=4),
    *(Tile(WIDE, 128, columns) for columns in (192, 256)),
    *of_rounds(),
)
OF_OTHERS = (
    Tile(FINAL, 128, 256, share_b=2),
    *(Tile(FINAL, rows, columns) for rows, columns in ((128, 128), (64, 128), (64, 64))),
    *(Tile(FINAL, 64, columns, split=2) for columns in (64, 128)),
    *(Tile(FINAL, side, side, split=4) for side in (64, 128)),
    *(Tile(SMALL, 16, columns) for columns in (16, 32)),
    Tile(PARTS, 64, 128, parts=4),
)


@cache
def fastest(p: GemmShape) -> Tile | None:
    """The tile that the model finds fastest; None if only others take the problem."""
    lines = p.layout[0] == "n" and not any(pitch % UNIT for pitch in p.pitches)
    if p.out == "fp32" or p.beta or not lines or 1 in (p.m, p.n):
        return None
    return min((t for t in (*OF_OTHERS, *TILES) if t.takes(p)), key=lambda t: t.clocks(p))


def choose(p: GemmShape) -> Tile | None:
    """The same, if it is a tile of the kernels here."""
    tile = fastest(p)
    return None if tile in OF_OTHERS else tile


def steps(p: GemmShape, tile: Tile) -> int:
    """Of a block, at most."""
    return ceil_div(ceil_div(p.k, TILE_K), tile.split)


def stages(p: GemmShape, tile: Tile) -> int:
    """Stages of a ring. Only a few numbers are used, so that there are few kernels to compile."""
    if tile.kind == WIDE:
        return WIDE_STAGES
    most = min(MOST_STAGES, (SHARED_BYTES - sums_bytes(tile)) // tile.step_bytes)
    if tile.kind == ROUNDS:
        return most
    return next((count for count in (2, 4) if min(steps(p, tile), most) <= count <= most), most)


def pieces(tile: Tile) -> tuple[int, int]:
    """For tiles of several rounds: rows of a piece of c, and buffers for pieces, as large as fit."""
    row = tile.columns // tile.pairs * 2
    least = min(LEAST_STAGES, (SHARED_BYTES - 32 * row) // tile.step_bytes)
    room = (SHARED_BYTES - least * tile.step_bytes) // row
    heights = [rows for rows in range(16, tile.rows + 1, 16) if tile.rows % rows == 0]
    fitting = [(rows, count) for rows in heights for count in (1, 2) if rows * count <= min(room, tile.rows)]
    return max(fitting, key=lambda x: (x[0] * x[1], x[1]))


def sums_bytes(tile: Tile) -> int:
    """Of results on their way out, and of sums from another block."""
    if tile.kind == WIDE:
        return tile.rows // 16 * WARP_BYTES
    if tile.kind == ROUNDS:
        rows, buffers = pieces(tile)
        return rows * buffers * tile.columns // tile.pairs * 2
    sums = tile.rows // tile.split * tile.columns
    return sums * 2 + (tile.split - 1) * sums * 4


def refuses(p: GemmShape) -> str:
    """What tensor cores multiply here."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def threads(tile: Tile) -> int:
    """Of a block: warpgroups that multiply, and two warps that load, or a warpgroup with fewer registers."""
    of_products = (tile.rows if tile.kind == WIDE else tile.columns) // 64 // tile.pairs * 128
    return of_products + (128 if tile.pairs > 1 else 64)


def ahead(p: GemmShape, tile: Tile) -> int:
    """Stages of b that are loaded before the wait: all, or fewer where they delay loads of a."""
    if "b" not in p.constants:
        return 0
    if tile.kind != SINGLE:
        return WIDE_AHEAD
    busy = tile.split == 1 and 2 * tile.count(p) > AT_ONCE[1]
    return min(stages(p, tile), BUSY_AHEAD) if busy else stages(p, tile)


def defines(p: GemmShape) -> dict[str, int]:
    """The tile, types and layouts, which the compiler has to know."""
    tile = choose(p) or TILES[0]  # the same for all problems that do not look at it: fewer kernels to compile
    piece, buffers = pieces(tile)
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": TILE_K, "THREADS": threads(tile)},
        **{"STAGES": stages(p, tile), "BLOCKS": tile.blocks, "SPLIT": tile.split, "WIDE": tile.kind == WIDE},
        **{"WHOLE": steps(p, tile) <= stages(p, tile), "AHEAD": ahead(p, tile)},
        **{"ROUNDS": tile.kind == ROUNDS, "PAIRS": tile.pairs, "PIECE": piece, "BUFFERS": buffers},
        **{
            "SHARE_A": tile.share_a,
            "SHARE_B": tile.share_b,
            "HALVES": tile.halves,
            "BAND": BAND // tile.share_b,
        },
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "B_TURNED": p.layout[1] == "t"},
    }


def maps(p: GemmShape, tile: Tile) -> list[TensorMap]:
    """How tensor copies see a, b and c: entry, line, and place in the line. Halves are two entries."""
    if tile.kind == ROUNDS:
        of_a, of_b, of_c = tile.rows // tile.share_a, 64 // tile.share_b, pieces(tile)[0]
    else:  # c: rows of a warp, or of a block
        of_a, of_b, of_c = tile.rows, 64, 16 if tile.kind == WIDE else tile.rows // tile.split
    found = []
    for name, height, pitch, length in zip("abc", (of_a, of_b, of_c), p.pitches, p.lengths, strict=True):
        lines = p.arrays[name].shape[1]
        shape, strides = (p.batch, lines, length), (lines * pitch, pitch)
        if tile.halves and name != "b":
            shape, strides = (2, lines // 2, length), (pitch, 2 * pitch)
        found.append(TensorMap(name, (1, height, TILE_K), shape, strides))
    return found


def plan(p: GemmShape) -> list[Launch | Call]:
    """Blocks or clusters for the tiles, or a call."""
    tile = choose(p)
    if tile is None:
        other = FINAL_RUNG if (best := fastest(p)) and best.kind == FINAL else OTHERS
        return [Call(other, p, {name: name for name in p.arrays})]
    shared = stages(p, tile) * tile.step_bytes + sums_bytes(tile)
    if tile.kind == ROUNDS:
        rounds = ceil_div(tile.count(p), AT_ONCE[tile.cluster])
        grid: tuple[int, ...] = (ceil_div(tile.count(p), rounds) * tile.cluster,)  # no more than they need
        m, batch = (p.m // 2, 2) if tile.halves else (p.m, p.batch)
        kernel, numbers = "gemm_rounds", (m, p.n, p.k, batch, float(p.alpha))
    else:
        grid = (ceil_div(p.m, tile.rows) * tile.split, ceil_div(p.n, tile.columns), p.batch)
        kernel, numbers = "gemm_ahead", (p.k, float(p.alpha))
    args = (*maps(p, tile), *numbers)
    return [Launch(kernel, grid, (threads(tile),), args, shared, cluster=tile.cluster, early=True)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v10_small",
    precision="fp16",
    min_arch=90,
    idea="constant operands are loaded before the previous kernel has ended; tiles that fill the rounds",
)
