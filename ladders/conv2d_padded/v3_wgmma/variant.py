"""conv2d_padded/v3_wgmma: tiles of windows by the copy engine, products by warpgroups, clusters that share sums."""

from dataclasses import dataclass
from functools import cache

from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

STEP = 64  # channels of a step: 128 bytes
SHARED = 114688  # bytes of dynamic shared memory that two blocks of a multiprocessor can have each
# One H100 or H200. A cluster lies within a GPC, into which not every number of blocks fits.
SMS = 132
FMA_CLOCK = 2048  # products and sums a clock of a multiprocessor's tensor cores
BYTES_CLOCK = 55  # that a multiprocessor takes in from L2
OPERAND_CLOCK = 110  # bytes a clock that its tensor cores take in from shared memory
STORE_CLOCK = 16  # elements of y that leave a multiprocessor in a clock
START_CLOCKS = 2500  # first loads, last stores
SPLIT_CLOCKS = 1200  # until sums of a cluster are added up


@dataclass(frozen=True)
class Tile:
    """A tile of y, steps under way, blocks that share its steps, and blocks of a multiprocessor."""

    rows: int
    columns: int
    stages: int
    split: int = 1
    blocks: int = 1

    @property
    def shared_bytes(self) -> int:
        """Of a block: stages, then what goes out, or sums of other blocks."""
        out = self.rows * self.columns
        out = out * 2 if self.split == 1 else out * 4 * (self.split - 1) // self.split
        return self.stages * (self.rows + self.columns) * STEP * 2 + out

    def tiles(self, p: PaddedShape) -> int:
        """Of y."""
        return ceil_div(p.N * p.P * p.Q, self.rows) * (p.K // self.columns)

    def clocks(self, p: PaddedShape) -> float:
        """The model: rounds of tiles, each as long as its products or its loads, whichever take longer."""
        steps = ceil_div(p.taps // STEP, self.split)
        operands = self.rows * STEP * 2 + self.rows // 64 * self.columns * STEP * 2
        products = max(self.rows * self.columns * STEP / FMA_CLOCK, operands / OPERAND_CLOCK)
        loads = (self.rows + self.columns) * STEP * 2 / BYTES_CLOCK
        each = steps * max(products, loads) + SPLIT_CLOCKS * (self.split > 1)
        store = self.rows * self.columns / STORE_CLOCK
        busy = self.tiles(p) * self.split / SMS
        rounds = ceil_div(self.tiles(p) * self.split, SMS)
        if self.blocks == 1 or rounds == 1:
            return START_CLOCKS + rounds * (each + store)
        # several blocks: what one stores, another one multiplies meanwhile
        return START_CLOCKS + store + max(busy + 0.5, rounds * 0.9) * each


TILES = (
    Tile(192, 128, 4),
    Tile(128, 128, 5),
    Tile(128, 64, 3, blocks=2),
    Tile(64, 64, 5, blocks=2),
    Tile(64, 64, 5, 2, blocks=2),
    Tile(64, 64, 5, 4, blocks=2),
    Tile(64, 64, 5, 8, blocks=2),
)


@cache
def choose(p: PaddedShape) -> Tile:
    """The tile that the model finds fastest; the first of several."""
    possible = [t for t in TILES if p.K % t.columns == 0 and p.taps // STEP >= t.split]
    return min((t for t in possible if t.split == 1 or t.tiles(p) * t.split <= SMS), key=lambda t: t.clocks(p))


def refuses(p: PaddedShape) -> str:
    """What the copy engine and the tensor cores take."""
    if p.dtype != "fp16" or p.layout != "nhwc":
        return f"it multiplies halves whose channels lie side by side, and this is {p.dtype} {p.layout}"
    if p.C % STEP or p.K % STEP:
        return f"C and K are {p.C} and {p.K}; a step is {STEP} channels, and a tile {STEP} columns or more"
    return "strides above 8 are beyond a tensor map" if p.stride > 8 else ""


def defines(p: PaddedShape) -> dict[str, int]:
    """The tile, and what follows the sums."""
    tile = choose(p)
    sizes = {"TILE_ROWS": tile.rows, "TILE_COLUMNS": tile.columns, "TILE_STAGES": tile.stages}
    return sizes | {
        **{"TILE_SPLIT": tile.split, "BLOCKS": tile.blocks},
        **{"RELU": int(p.relu), "RESIDUAL": int(p.residual)},
    }


def plan(p: PaddedShape) -> list[Launch]:
    """A cluster for each tile, or as many blocks as there is room for."""
    tile = choose(p)
    windows = p.N * p.P * p.Q
    x = TensorMap("x", (tile.rows, STEP), windows=(p.R, p.stride, p.padding))
    w = TensorMap("w", (tile.columns, STEP), (p.K, p.taps))
    y = TensorMap("y", (16, STEP), (windows, p.K))
    residual = "residual" if p.residual else "y"  # what is not read
    added = TensorMap(residual, (16, STEP), (windows, p.K))
    sizes = (windows, p.K, p.P, p.Q, p.C, p.R, p.stride, p.padding)
    args = (x, w, added, y, residual, "y", "bias", *sizes)
    blocks = min(tile.tiles(p) * tile.split, SMS * tile.blocks)
    launch = Launch(
        *("convolve", (blocks,), (tile.rows * 2 + 32,), args),
        **{"shared_bytes": tile.shared_bytes, "cluster": tile.split, "early": True},
    )
    return [launch]


VARIANT = Variant(
    op="conv2d_padded",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="conv2d_padded/v0_naive",
    precision="fp16",
    min_arch=90,
    idea="the copy engine fetches the pixels that windows see; warpgroups multiply them while it fetches more",
)
