"""gemm/v11_ahead: tiles of few rows, whose columns of b are loaded before the previous kernel has ended."""

from dataclasses import dataclass
from functools import cache

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v10_small"  # takes what the kernel here does not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
UNIT = 8  # elements of 16 bits that the copy engine moves at least
MULTIPROCESSORS = 132  # of an H100 or H200
MOST_STAGES = 8  # of a ring
# Where a block for each tile was found to be faster than what OTHERS does
MOST_K, SHORT_K = 1024, 640  # a sum; and one for which half of the multiprocessors need not have a tile
FEWEST_ROWS = 17  # of a, as fewer leave most of a tile empty
FULL = 0.8  # part of the rows of tiles that c must have, if the tiles are high and b is not constant


@dataclass(frozen=True)
class Tile:
    """A tile of c: rows, columns, and the blocks of a multiprocessor that may be there at once."""

    rows: int
    columns: int
    blocks: int

    def count(self, p: GemmShape) -> int:
        """Tiles of all products."""
        return p.batch * ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns)

    def suits(self, p: GemmShape) -> bool:
        """Whether there is a multiprocessor for each tile, and tiles are full enough."""
        full = p.m >= FULL * self.rows * ceil_div(p.m, self.rows)
        busy = p.k <= SHORT_K or 2 * self.count(p) >= MULTIPROCESSORS
        return self.count(p) <= MULTIPROCESSORS and busy and (full or self.rows < 128 or bool(p.constants))


TILES = (Tile(16, 64, 2), Tile(32, 64, 2), Tile(64, 64, 1), Tile(128, 64, 1))


@cache
def choose(p: GemmShape) -> Tile | None:
    """The lowest tile of those that suit the problem; None if there is none."""
    lines = p.layout[0] == "n" and not any(pitch % UNIT for pitch in p.pitches)
    small = p.m >= FEWEST_ROWS and p.k <= MOST_K and p.n > 1
    if p.out == "fp32" or p.beta or not lines or not small:
        return None
    return next((tile for tile in TILES if tile.suits(p)), None)


def stages(p: GemmShape) -> int:
    """Of each ring: few numbers of them, so that there are few kernels to compile."""
    return next(count for count in (2, 4, MOST_STAGES) if count * TILE_K >= p.k or count == MOST_STAGES)


def refuses(p: GemmShape) -> str:
    """What tensor cores multiply here."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def threads(tile: Tile) -> int:
    """Of a block: warpgroups that multiply, and two warps that load."""
    return tile.columns // 64 * 128 + 64


def defines(p: GemmShape) -> dict[str, int]:
    """The tile, types and layouts, which the compiler has to know."""
    tile = choose(p) or TILES[0]  # the same for all problems that do not look at it: fewer kernels to compile
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": TILE_K, "THREADS": threads(tile)},
        **{"STAGES": stages(p), "BLOCKS": tile.blocks, "WHOLE": p.k <= stages(p) * TILE_K},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "B_TURNED": p.layout[1] == "t"},
        "AHEAD": "b" in p.constants,
    }


def plan(p: GemmShape) -> list[Launch | Call]:
    """A block for each tile, or a call."""
    tile = choose(p)
    if tile is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    boxes = {"a": (1, tile.rows, TILE_K), "b": (1, 64, 64), "c": (1, tile.rows, 64)}
    maps = []
    for (name, box), pitch, length in zip(boxes.items(), p.pitches, p.lengths, strict=True):
        lines = p.arrays[name].shape[1]
        maps.append(TensorMap(name, box, (p.batch, lines, length), (lines * pitch, pitch)))
    shared = stages(p) * (tile.rows + tile.columns) * TILE_K * 2 + tile.rows * tile.columns * 2
    args = (*maps, p.m, p.n, p.k, float(p.alpha))
    return [Launch("gemm_ahead", (tile.count(p),), (threads(tile),), args, shared, early=True)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v10_small",
    precision="fp16",
    min_arch=90,
    idea="constant operands are loaded before the previous kernel has ended",
)
