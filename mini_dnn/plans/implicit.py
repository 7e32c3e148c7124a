"""How the kernels of ``mini_dnn/implicit.cuh`` divide a convolution into tiles, and their launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from mini_dnn.ops.conv2d_padded_shape import PaddedShape
from mini_dnn.variant import Launch, TensorMap, ceil_div

STEP = 64  # channels per step: 128 bytes
LINES = 16  # windows that a warp stores at a time
MOST_STRIDE = 8  # the limit of a tensor map
# The model below is fitted to measured layers of ResNet-18 on an H100 and an H200. A cluster must fit in a
# GPC, so not every number of blocks fits.
SMS = 132
MHZ = 1755
FMA_CLOCK = 1840  # multiply-adds per clock of a multiprocessor's tensor cores, nine tenths of their peak
BYTES_CLOCK = 56  # bytes per clock that a multiprocessor receives from L2
OPERAND_CLOCK = 110  # bytes per clock that its tensor cores receive from shared memory
LATENCY = 2500  # clocks until the data of a requested step arrive
START_CLOCKS = 3300  # clocks for first loads and last stores
STORE_CLOCKS = 2600  # clocks between two tiles of 16,384 sums if the multiprocessor has no other work
SHARED_STORE_CLOCKS = 600  # clocks between two tiles if it has other work
SPLIT_CLOCKS = 1500  # clocks until the sums of a cluster are added up, and once more for each 16,384 sums


@dataclass(frozen=True)
class Layer:
    """A convolution, and a shortcut of one pixel whose products are added to its sums.

    Parameters
    ----------
    shape
        The convolution, of halves whose channels are adjacent.
    more_C, more_stride
        The channels of the shortcut's input, and the stride of its windows. With 0 channels, there is none.
    """

    shape: PaddedShape
    more_C: int = 0
    more_stride: int = 1

    @property
    def windows(self) -> int:
        """The rows of the product."""
        return self.shape.N * self.shape.P * self.shape.Q

    @property
    def line(self) -> int:
        """The weights of an output channel: those of the convolution, then those of the shortcut."""
        return self.shape.taps + self.more_C

    @property
    def steps(self) -> int:
        """The steps of a tile."""
        return self.line // STEP

    @property
    def fault(self) -> str:
        """Why the kernels do not support the layer, or an empty string."""
        p = self.shape
        if p.dtype != "fp16" or p.layout != "nhwc":
            return f"it multiplies halves whose channels lie side by side, and this is {p.dtype} {p.layout}"
        if p.C % STEP or p.K % STEP or self.more_C % STEP:
            return (
                f"C and K are {p.C} and {p.K}; a step is {STEP} channels, and a tile {STEP} columns or more"
            )
        return f"its stride is {p.stride}; at most {MOST_STRIDE}" if p.stride > MOST_STRIDE else ""


@dataclass(frozen=True)
class Tile:
    """A tile of y.

    Parameters
    ----------
    rows, columns
        Windows and output channels of a block.
    stages
        Steps that are in flight.
    split
        Blocks of a cluster that share the steps of a tile.
    blocks
        Blocks per multiprocessor.
    """

    rows: int
    columns: int
    stages: int
    split: int = 1
    blocks: int = 1

    @property
    def kernel(self) -> str:
        """The name of the kernel, if there is one for each tile."""
        return f"convolve_{self.rows}x{self.columns}_{self.stages}_{self.split}"

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block: stages, then the output, or sums of other blocks."""
        out = self.rows * self.columns
        out = out * 2 if self.split == 1 else out * 4 * (self.split - 1) // self.split
        return self.stages * (self.rows + self.columns) * STEP * 2 + out

    def count(self, layer: Layer) -> int:
        """Return the number of tiles of y."""
        return ceil_div(layer.windows, self.rows) * (layer.shape.K // self.columns)

    def fits(self, layer: Layer) -> bool:
        """Whether it fits the layer.

        Blocks that share a tile have only that tile, and all run at the same time.
        """
        if layer.shape.K % self.columns or layer.steps < self.split:
            return False
        return self.split == 1 or self.count(layer) * self.split <= SMS

    def clocks(self, layer: Layer) -> float:
        """Model the time in rounds of tiles.

        A step takes as long as its products, its loads or its latency.
        """
        blocks = self.count(layer) * self.split
        rounds, sums = ceil_div(blocks, SMS), self.rows * self.columns
        resident = min(self.blocks, rounds)
        operands = (self.rows + self.rows // 64 * self.columns) * STEP * 2
        step = max(
            sums * STEP / FMA_CLOCK,
            operands / OPERAND_CLOCK,
            (self.rows + self.columns) * STEP * 2 / BYTES_CLOCK,
            LATENCY / (self.stages * resident),
        )
        # several blocks of a multiprocessor end at different times
        tiles = rounds if resident == 1 else max(blocks / SMS + 0.4, 0.9 * rounds)
        store = (STORE_CLOCKS if resident == 1 else SHARED_STORE_CLOCKS) * sums / 16384
        found = START_CLOCKS + tiles * (ceil_div(layer.steps, self.split) * step + store)
        return found + (self.split > 1) * SPLIT_CLOCKS * (1 + sums / 16384)


TILES = (
    Tile(192, 128, 4),
    Tile(128, 128, 6),
    Tile(128, 128, 6, 2),
    Tile(128, 128, 5, 4),
    Tile(128, 64, 8),
    Tile(128, 64, 4, blocks=2),
    Tile(64, 128, 6, 2),
    Tile(64, 128, 6, 4),
    Tile(64, 64, 6, blocks=2),
    Tile(64, 64, 5, 2, blocks=2),
    Tile(64, 64, 5, 4, blocks=2),
    Tile(64, 64, 5, 8, blocks=2),
)


@cache
def choose(layer: Layer, tiles: Iterable[Tile] = TILES) -> Tile:
    """Return the tile that is fastest in the model, the first one of several."""
    return min((t for t in tiles if t.fits(layer)), key=lambda t: t.clocks(layer))


@dataclass(frozen=True)
class Names:
    """The names of a layer's buffers. Without a residual or a shortcut, those buffers are not read."""

    x: str
    w: str
    bias: str
    y: str
    residual: str = ""
    more: str = ""
    more_side: int = 0  # rows and columns of the shortcut's input images


def launch(layer: Layer, tile: Tile, names: Names, kernel: str, early: bool) -> Launch:
    """Launch a cluster for each tile, or as many blocks as there is room for."""
    p = layer.shape
    lines = (layer.windows, p.K)
    x = TensorMap(names.x, (tile.rows, STEP), (p.N, p.H, p.W, p.C), windows=(p.R, p.stride, p.padding))
    more = x
    if layer.more_C:
        sides = (p.N, names.more_side, names.more_side, layer.more_C)
        more = TensorMap(names.more, (tile.rows, STEP), sides, windows=(1, layer.more_stride, 0))
    w = TensorMap(names.w, (tile.columns, STEP), (p.K, layer.line))
    y = TensorMap(names.y, (LINES, STEP), lines)
    residual = names.residual or names.y
    maps = (x, more, w, TensorMap(residual, (LINES, STEP), lines), y)
    sizes = (layer.windows, p.K, p.P, p.Q, p.C, p.R, p.stride, p.padding, layer.more_C, layer.more_stride)
    args = (*maps, residual, names.y, names.bias, *sizes, int(p.relu), int(p.residual))
    blocks = min(tile.count(layer) * tile.split, SMS * tile.blocks)
    return Launch(
        *(kernel, (blocks,), (tile.rows * 2 + 32,), args, tile.shared_bytes), cluster=tile.split, early=early
    )
