"""Models of the time of products in fp32, by which rungs of the ladder `gemm` decide which one is faster."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import inf

from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import ceil_div

# Clusters that an H100 or H200 runs at once, by the number of their blocks
AT_ONCE = {1: 132, 2: 66, 3: 40, 4: 30, 6: 16, 8: 14}


def in_fours(p: GemmShape, number: int) -> bool:
    """Whether the lines of an operand (0: a, 1: b) consist of fours that start at multiples of 16 bytes."""
    return p.lengths[number] % 4 == p.pitches[number] % 4 == 0


# ---- gemm/v18_thirds. All constants of the models are in microseconds on an H100.

THIRDS_ROWS = 64  # of c in a block
THIRDS_K = 64  # terms of a sum in a step
THIRDS_START = {64: 2.9, 128: 3.9}  # of a round without steps, by the columns of a tile
THIRDS_STEP = {64: 0.95, 128: 1.48}
THIRDS_STEP_ALONE = {64: 1.15, 128: 1.55}  # if only one tile needs each float of a or of b
THIRDS_APART = 1.3  # factor of a step if lines do not consist of aligned fours
THIRDS_SHARE = 0.95  # more if the blocks of a cluster share k


@dataclass(frozen=True)
class Thirds:
    """A tile of c, and the number of blocks that share its k."""

    columns: int
    split: int

    def clusters(self, p: GemmShape) -> int:
        """The number of clusters: one for each tile of c."""
        return ceil_div(p.m, THIRDS_ROWS) * ceil_div(p.n, self.columns) * p.batch

    def microseconds(self, p: GemmShape) -> float:
        """The model of the time: rounds of clusters, and the steps of a block in each round."""
        steps = ceil_div(p.k, THIRDS_K)
        if steps < self.split:
            return inf
        rounds = ceil_div(self.clusters(p), AT_ONCE[self.split])
        alone = p.m <= THIRDS_ROWS or p.n <= self.columns
        step = (THIRDS_STEP_ALONE if alone else THIRDS_STEP)[self.columns]
        if not (in_fours(p, 0) and in_fours(p, 1)):
            step *= THIRDS_APART
        round_time = THIRDS_START[self.columns] + ceil_div(steps, self.split) * step
        return rounds * round_time + (THIRDS_SHARE if self.split > 1 else 0)


THIRDS = [Thirds(columns, split) for columns in THIRDS_START for split in (1, 2, 3, 4, 8)]


@cache
def fastest_thirds(p: GemmShape) -> Thirds:
    """The tile that the model predicts to be fastest."""
    return min(THIRDS, key=lambda tile: tile.microseconds(p))


# ---- gemm/v13_split

SPLIT_START = 8.0  # of both launches
SPLIT_ROW = 0.002  # for each row of a, however short it is
SPLIT_BYTES, SPLIT_STORE_BYTES = 2.4e6, 1.2e6  # per microsecond
SPLIT_ROWS = 128  # of a tile
SPLIT_STEP = {64: 0.53, 128: 0.95, 192: 1.36}


def microseconds_of_v13(p: GemmShape) -> float:
    """The model of the time: both operands are split, and then products or stores take longer."""
    down, steps = ceil_div(p.m, SPLIT_ROWS) * p.batch, ceil_div(p.k, THIRDS_K)  # tiles, and steps of each
    rounds = {columns: ceil_div(down * ceil_div(p.n, columns), AT_ONCE[1]) for columns in SPLIT_STEP}
    products = min(rounds[columns] * steps * step for columns, step in SPLIT_STEP.items())
    in_pairs = p.pitches[2] % 2 == 0  # floats are stored in pairs, or one at a time
    stores = 4 * p.batch * p.m * p.n / SPLIT_STORE_BYTES * (1 if in_pairs else 2)
    moved = 8 * p.batch * (p.m + p.n) * p.k  # bytes: a float is read, and two halves are written
    split = SPLIT_START + moved / SPLIT_BYTES + p.batch * p.m * SPLIT_ROW
    return split + max(products, stores)
