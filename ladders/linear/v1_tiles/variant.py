"""linear/v1_tiles: tiles for a transformer's sizes; norm, bias, GELU and residual before the store."""

from dataclasses import dataclass
from functools import cache

import numpy as np

from mini_dnn.ops.linear import LinearShape
from mini_dnn.ops.linear_shape import ceil_groups
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

UNIT = 8  # halves in 16 bytes, the smallest piece that the copy engine moves
STAGED_BYTES = 2048  # of a warp: 16 rows and 64 columns of y before they are stored

# One H100 or H200, with one block per multiprocessor, because each takes nearly all shared memory.
BLOCKS = 132
FMA_CLOCK = 2048  # multiply-adds per clock of a multiprocessor's tensor cores
BYTES_CLOCK = 64  # bytes per clock that a multiprocessor receives from L2
STORE_CLOCK = 12  # elements of y that a multiprocessor completes and stores per clock
START_CLOCKS = 1500  # from the start of a tile to its first products, while nothing else runs


@dataclass(frozen=True)
class Tile:
    """A tile of y, the number of stages of its ring, and whether two blocks share lines of x."""

    rows: int
    columns: int
    stages: int
    share: int = 1

    def clusters(self, p: LinearShape) -> int:
        """The number of clusters, or of blocks, that have work."""
        return ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns * self.share)

    def clocks(self, p: LinearShape) -> float:
        """The model of the time: rounds of tiles, each as long as its products or its loads."""
        rounds = ceil_div(self.clusters(p), BLOCKS // self.share)
        products = self.rows * self.columns * 64 / FMA_CLOCK
        loads = (self.rows / self.share + self.columns) * 128 / BYTES_CLOCK
        store = self.rows * self.columns / STORE_CLOCK
        return rounds * (START_CLOCKS + ceil_div(p.k, 64) * max(products, loads) + store)


TILES = (
    Tile(192, 192, 4, share=2),
    Tile(192, 192, 4),
    Tile(128, 192, 5),
    Tile(128, 128, 6),
    Tile(64, 192, 6),
    Tile(64, 128, 8),
    Tile(64, 64, 8),
)


@cache
def choose(p: LinearShape) -> Tile:
    """The tile that the model predicts to be fastest, or the first of several."""
    return min(TILES, key=lambda t: t.clocks(p))


def refuses(p: LinearShape) -> str:
    """The text of the limit: the copy engine needs lines that start at multiples of 16 bytes."""
    pitches = {"k": p.k, "ldx": p.x_pitch, "ldr": p.r_pitch if p.residual != "none" else 0}
    pitches |= {"n": p.n} if p.out == "fp16" or p.residual != "none" else {}
    odd = [f"{name} is {pitch}" for name, pitch in pitches.items() if pitch % UNIT]
    if p.moments and p.out == "fp32":
        return "moments are those of halves, and y is fp32; linear/v0 takes that"
    return f"{', '.join(odd)}: no multiple of {UNIT}; linear/v0 takes that" if odd else ""


def threads(tile: Tile) -> int:
    """Threads of a block: warpgroups that multiply, and one that copies."""
    return tile.rows // 64 * 128 + 128


def defines(p: LinearShape) -> dict[str, int]:
    """The tile, and the operations that are applied to sums."""
    tile = choose(p)
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "STAGES": tile.stages, "SHARE": tile.share},
        **{"THREADS": threads(tile), "NORM": p.norm, "GELU": p.act == "gelu", "MOMENTS": p.moments},
        **{"RESIDUAL": p.residual != "none", "OUT_HALF": p.out == "fp16"},
        "X_MOMENTS": ceil_div(ceil_groups(p.k), 4) if p.norm else 1,  # per row, for each of four lanes
    }


def plan(p: LinearShape) -> list[Launch]:
    """One launch with a cluster for each tile, or with as many as are resident at once."""
    tile = choose(p)
    x = TensorMap("x", (tile.rows // tile.share, 64), (p.m, p.k), (p.x_pitch,))
    w = TensorMap("w", (tile.columns, 64), (p.n, p.k))
    y = TensorMap("y", (16, 64), (p.m, p.n)) if p.out == "fp16" else w  # otherwise it is not used
    x_moments = "x_moments" if p.norm else "bias"  # without a norm any buffer will do: it is not read
    residual = "x" if p.residual == "none" else "residual"
    lines = p.T if p.residual == "shared" else p.m
    arrays = ("bias", x_moments, residual, "y", "y_moments" if p.moments else "bias")
    args = (x, w, y, *arrays, p.m, p.n, p.k, np.int64(p.r_pitch), lines)
    tiles, at_once = tile.clusters(p), BLOCKS // tile.share
    clusters = ceil_div(tiles, ceil_div(tiles, at_once))  # no more than the number of rounds needs
    stages = tile.stages * (tile.rows + tile.columns) * 128
    shared = stages + tile.rows // 16 * STAGED_BYTES
    launch = Launch(
        *("linear", (clusters * tile.share,), (threads(tile),), args),
        **{"shared_bytes": shared, "cluster": tile.share, "early": True},
    )
    return [launch]


VARIANT = Variant(
    op="linear",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="linear/v0_naive",
    precision="fp16",
    min_arch=90,
    idea="tiles that fit a transformer; norm, bias, GELU and residual while sums are in registers",
)
