"""How kernels of ``mini_dnn/implicit.cuh`` cut a convolution into tiles, and their launches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from mini_dnn.ops.conv2d_padded_shape import PaddedShape
from mini_dnn.variant import Launch, TensorMap, ceil_div

STEP = 64  # channels of a step: 128 bytes
LINES = 16  # windows that a warp sends out at once
MOST_STRIDE = 8  # of a tensor map
# One H100 or H200, fitted to measured layers of ResNet-18. A cluster lies within a GPC, into which not every
# number of blocks fits.
SMS = 132
MHZ = 1755
FMA_CLOCK = 1840  # products and sums a clock of a multiprocessor's tensor cores, nine tenths of their rate
BYTES_CLOCK = 56  # that a multiprocessor takes in from L2
OPERAND_CLOCK = 110  # bytes a clock that its tensor cores take in from shared memory
LATENCY = 2500  # clocks until a step that was asked for has come
START_CLOCKS = 3300  # first loads, last stores
STORE_CLOCKS = 2600  # between two tiles of 16,384 sums, if the multiprocessor has nothing else to do
SHARED_STORE_CLOCKS = 600  # if it has
SPLIT_CLOCKS = 1500  # until sums of a cluster are added up, and once more for 16,384 of them


@dataclass(frozen=True)
class Layer:
    """A convolution, and a shortcut of one pixel whose products join its sums.

    Parameters
    ----------
    shape
        The convolution: of halves whose channels lie side by side.
    more_C, more_stride
        Channels of what the shortcut is applied to, and the stride of its windows; 0 channels: there is none.
    """

    shape: PaddedShape
    more_C: int = 0
    more_stride: int = 1

    @property
    def windows(self) -> int:
        """Rows of the product."""
        return self.shape.N * self.shape.P * self.shape.Q

    @property
    def line(self) -> int:
        """Weights of an output channel: those of the convolution, then those of the shortcut."""
        return self.shape.taps + self.more_C

    @property
    def steps(self) -> int:
        """Of a tile."""
        return self.line // STEP

    @property
    def fault(self) -> str:
        """Why the kernels do not take it; empty if they do."""
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
        Steps under way.
    split
        Blocks of a cluster that share the steps of a tile.
    blocks
        Of a multiprocessor.
    """

    rows: int
    columns: int
    stages: int
    split: int = 1
    blocks: int = 1

    @property
    def kernel(self) -> str:
        """Name of the kernel, where there is one for each tile."""
        return f"convolve_{self.rows}x{self.columns}_{self.stages}_{self.split}"

    @property
    def shared_bytes(self) -> int:
        """Of a block: stages, then what goes out, or sums of other blocks."""
        out = self.rows * self.columns
        out = out * 2 if self.split == 1 else out * 4 * (self.split - 1) // self.split
        return self.stages * (self.rows + self.columns) * STEP * 2 + out

    def count(self, layer: Layer) -> int:
        """Tiles of y."""
        return ceil_div(layer.windows, self.rows) * (layer.shape.K // self.columns)

    def fits(self, layer: Layer) -> bool:
        """Whether it cuts the layer; blocks that share a tile have only that one, all at once."""
        if layer.shape.K % self.columns or layer.steps < self.split:
            return False
        return self.split == 1 or self.count(layer) * self.split <= SMS

    def clocks(self, layer: Layer) -> float:
        """The model: rounds of tiles; a step takes as long as its products, its loads or its way."""
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
    """The tile that the model finds fastest; the first of several."""
    return min((t for t in tiles if t.fits(layer)), key=lambda t: t.clocks(layer))


@dataclass(frozen=True)
class Names:
    """Buffers of a layer; without a residual or a shortcut those are not read."""

    x: str
    w: str
    bias: str
    y: str
    residual: str = ""
    more: str = ""
    more_side: int = 0  # rows and columns of the images that the shortcut is applied to


def launch(layer: Layer, tile: Tile, names: Names, kernel: str, early: bool) -> Launch:
    """A cluster for each tile, or as many blocks as there is room for."""
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
        *(kernel, (blocks,), (tile.rows * 2 + 32,), args, tile.shared_bytes),
        cluster=tile.split,
        early=early,
    )
