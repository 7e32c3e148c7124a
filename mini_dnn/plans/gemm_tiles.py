"""Tiles of products whose lines start at multiples of 16 bytes, and a model of their time on an H100.

Rungs of the ladder ``gemm`` choose among these tiles, and each has kernels for some kinds of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import ceil_div

TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
SECTOR = 16  # elements in 32 bytes: a line of a box that starts within such a sector takes twice as long
FEW_ROWS, FEW_COLUMNS = 64, 32  # if b has few columns, its boxes are slow, and tiles need more rows
FOUR_K = 4096  # the longest sum that a cluster of four blocks was tried for
MOST_SUMS = 1 << 25  # of tiles of several rounds: beyond that, the last round hardly counts
GRID_Y = 65535  # most blocks along y, where the columns of single tiles are
WIDE_K = 192  # terms in the last steps, which multiply half of the columns at a time; a sum must be longer
# Kinds of tiles: three of gemm/v11_ahead, one of gemm/v8_final, and two of gemm/v10_small, in the second of
# which blocks share k through memory. The last two are those of gemm/v16_pingpong: of a warpgroup and of two.
SINGLE, WIDE, ROUNDS, FINAL, SMALL, PARTS, TURNS, TOGETHER = range(8)

# The model, in clocks at 1755 MHz, fitted to 2,000 times of 223 products on H100s
AT_ONCE = {1: 132, 2: 66, 4: 30, 8: 15}  # resident clusters, by the number of their blocks
START = {SINGLE: 3590, WIDE: 2570, ROUNDS: 5520, FINAL: 4700, PARTS: 7800}  # launch, first loads, last stores
AGAIN_CLOCKS = 940  # until a block has taken the place of another one
STEP_CLOCKS = 66  # of a step, whatever its size
PRODUCT = 0.79  # clocks for 2,048 products
SHARED = 0.69  # clocks for 128 bytes that instructions read from shared memory, or that are loaded to it
LINE = 2.14  # clocks for a line of 128 bytes from L2, if all multiprocessors load
ALONE = 0.23  # the fraction of these clocks that remains if few multiprocessors load
ODD_A, ODD_B = 0.71, 1.1  # lines to add for each, if every second one starts within a sector of 32 bytes
STORE = 10.4  # elements of c that are stored in a clock
CLUSTER_CLOCKS, FINAL_CLUSTER_CLOCKS = 2470, 110  # until all blocks of a cluster have started
SPLIT_CLOCKS, SPLIT_CLOCK = 530, 0.085  # to exchange sums: once, and for each of them
SPLIT_LOADS = 0.325  # of the clocks of a line, to add if blocks share k, because more lines are loaded
# Of the tiles of gemm/v10_small: see Tile.of_small(). The last one is for sums that blocks add up in memory.
SMALL_CLOCKS, SMALL_ROUND, SMALL_WAIT = 4000, 650, 142
SMALL_BYTES_CLOCK, THREADS_BYTES_CLOCK, PART_BYTES_CLOCK = 60, 25, 2000
# Of the tiles of gemm/v16_pingpong: see Tile.of_players()
P_START, P_CLUSTER, P_HALVES, P_STEP, P_PRODUCT, P_SHARED = 1017, 1959, 265, 75.7, 0.987, 0.512
P_LINE, P_ALONE = 2.69, 0.294
P_ODD_A, P_ODD_B, P_CROSSING = (
    0.744,  # lines to add for each line of a that starts within a sector
    0.963,  # of b
    0.295,  # for each line of either that is in two lines of the cache
)
P_STORE, P_STORES, P_STORES_LEFT = (
    4.47,  # elements that are stored in a clock
    900,  # clocks for each tile
    0.588,  # the part of both that nothing hides, if warpgroups do not take turns
)
P_BYTES_CLOCK = 14500  # of memory: operands and results, each once


@dataclass(frozen=True)
class Tile:
    """A tile of c, and what its blocks share."""

    kind: int
    rows: int
    columns: int
    blocks: int = 1  # resident blocks of a multiprocessor
    split: int = 1  # blocks of a cluster that share the k of a tile
    share_a: int = 1  # blocks beside each other that share rows of a
    share_b: int = 1  # blocks below each other that share columns of b
    halves: bool = False  # whether rows are every second one: those start at the same place in a sector
    parts: int = 1  # blocks that share k through memory

    @property
    def pairs(self) -> int:
        """Products of 64 columns that a warpgroup computes in each step."""
        several = self.kind in (ROUNDS, TURNS, TOGETHER)
        return 2 if several and self.columns == (128 if self.kind == TURNS else 256) else 1

    @property
    def cluster(self) -> int:
        """The number of blocks of a cluster."""
        return self.split * self.share_a * self.share_b

    @property
    def step_bytes(self) -> int:
        """The number of bytes of a stage."""
        return (self.rows + self.columns) * TILE_K * 2

    def count(self, p: GemmShape) -> int:
        """The number of clusters that cover c, in all entries of the batch."""
        m, batch = (p.m // 2, 2) if self.halves else (p.m, p.batch)
        return batch * ceil_div(m, self.rows * self.share_b) * ceil_div(p.n, self.columns * self.share_a)

    def takes(self, p: GemmShape) -> bool:
        """Whether the kernel supports the problem, and the blocks of a cluster have something to share."""
        steps = ceil_div(p.k, TILE_K)
        if self.kind == WIDE:
            return p.k > WIDE_K and self.count(p) <= AT_ONCE[1]
        too_long = self.split > 2 and p.k > FOUR_K
        if self.split > 1 and (too_long or self.count(p) > AT_ONCE[self.split] or steps < 2 * self.split):
            return False
        if self.kind == SINGLE and ceil_div(p.n, self.columns) > GRID_Y:
            return False
        if self.kind == SINGLE and self.rows < FEW_ROWS and p.n <= FEW_COLUMNS < p.m:
            return False
        if self.kind in (ROUNDS, TURNS, TOGETHER) and p.batch * p.m * p.n > MOST_SUMS:
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
        if self.kind in (TURNS, TOGETHER):
            return self.of_players(p)
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
        shared = products * (64 + 4096 / width) / 128 + self.rows + self.columns  # 128 bytes per clock
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

    def of_players(self, p: GemmShape) -> float:
        """Clocks for tiles of gemm/v16_pingpong, with constants of its own: 765 times of 127 products."""
        clusters, at_once, steps = self.count(p), AT_ONCE[self.cluster], ceil_div(p.k, TILE_K)
        rounds = ceil_div(clusters, at_once)
        busy = clusters / rounds / at_once
        odd_a = P_CROSSING if self.halves else more_lines(p.pitches[0], P_ODD_A)
        lines_a = self.rows / self.share_a * (1 + odd_a)
        lines_b = self.columns / self.share_b * (1 + more_lines(p.pitches[1], P_ODD_B))
        loads = (lines_a + lines_b) * P_LINE * (P_ALONE + (1 - P_ALONE) * busy)
        products = self.rows * self.columns * TILE_K / 2048
        shared = products * (64 + 4096 / self.rows) / 128 + self.rows + self.columns
        longest = sum(clocks**8 for clocks in (products * P_PRODUCT, shared * P_SHARED, loads)) ** (1 / 8)
        products = steps * (P_STEP + longest)
        stores = P_STORES + self.rows * self.columns / P_STORE
        if self.kind == TURNS:  # a tile is stored while the next one is multiplied
            clocks = products + (rounds - 1) * max(products, (products + stores) / 2)
        else:
            clocks = rounds * products + (rounds - 1) * stores * P_STORES_LEFT
        clocks += P_START + (self.cluster > 1) * P_CLUSTER + self.halves * P_HALVES + stores
        return clocks + p.min_bytes / P_BYTES_CLOCK


def more_lines(pitch: int, odd: float) -> float:
    """The fraction of the lines to add if they start within a sector, or within a cache line."""
    return odd if pitch % SECTOR else P_CROSSING if pitch % TILE_K else 0.0


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


def of_players() -> Iterator[Tile]:
    """Tiles of gemm/v16_pingpong."""
    heights = (
        (TURNS, 64, (32, *range(64, 257, 16))),
        (TURNS, 128, range(64, 193, 16)),
        (TOGETHER, 128, range(64, 257, 16)),
        (TOGETHER, 256, range(96, 193, 16)),
    )
    shares = ((1, 1), (1, 2), (2, 1), (2, 2), (4, 1), (1, 4), (2, 4), (4, 2))
    for kind, columns, rows in heights:
        for height, (share_a, share_b), halves in product(rows, shares, (False, True)):
            if height % (8 * share_a) == 0:
                yield Tile(kind, height, columns, 1, 1, share_a, share_b, halves)


OF_PLAYERS = tuple(of_players())
