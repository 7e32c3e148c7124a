"""gemm/v11_ahead: tiles of few rows, whose columns of b are loaded before the previous kernel has ended."""

from dataclasses import dataclass
from functools import cache

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v10_small"  # takes what the kernel here does not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
UNIT = 8  # elements of 16 bits that the copy engine moves at least
AT_ONCE = {1: 132, 2: 66}  # clusters of so many blocks, on an H100 or H200
MOST_STAGES = 8  # of a ring
SHARED_BYTES = 226 * 1024  # of a block, for stages and sums
# Where a block for each tile was found to be faster than what OTHERS does
MOST_K, SHORT_K = 1024, 640  # a sum; and one for which half of the multiprocessors need not have a tile
FEWEST_ROWS = 17  # of a, as fewer leave most of a tile empty
FULL = 0.8  # part of the rows of tiles that c must have, if the tiles are high and b is not constant
# Where two blocks that share the k of a tile were
FEWEST_CLUSTERS = 32
HALF_FULL = 0.76  # part of the rows of tiles that c must have
LONG_K = 2560  # a sum for which nearly all multiprocessors must have a tile
MANY_CLUSTERS = 56  # are nearly all
PARTS, MOST_PARTS = (64, 128), 33  # the tile of OTHERS whose k is shared through memory; tiles that fit
K_OF_PARTS = 192  # the longest sum that is faster than there, for each such tile
HIGH = 128  # rows of the tiles that OTHERS has besides
BUSY_AHEAD = 4  # stages of b that are loaded before the wait, if most multiprocessors have a tile
# Wide tiles
WIDE_STAGES = 4
WIDE_K = 128  # terms in the last steps, which multiply half of the columns at a time; a sum must be longer
WIDE_UNITS = (32, 64)  # units of the pitches of a and b: otherwise, boxes share lines that L2 reads twice
WIDE_AHEAD = 2  # stages of b that are loaded before the wait
WARP_BYTES = 4096  # of c on their way out


@dataclass(frozen=True)
class Tile:
    """A tile of c, and its blocks."""

    rows: int
    columns: int
    blocks: int  # of a multiprocessor at once
    split: int = 1  # blocks of a cluster that share the k of a tile
    wide: bool = False  # whether columns of c are columns of the instruction, and 64 rows are a warpgroup's

    @property
    def step_bytes(self) -> int:
        """Of a stage."""
        return (self.rows + self.columns) * TILE_K * 2

    def count(self, p: GemmShape) -> int:
        """Tiles of all products."""
        return p.batch * ceil_div(p.m, self.rows) * ceil_div(p.n, self.columns)

    def suits(self, p: GemmShape) -> bool:
        """Whether all tiles are processed at once, by enough blocks, and tiles are full enough."""
        count = self.count(p)
        if count > AT_ONCE[self.split]:
            return False
        if self.wide:  # a round of them, where SQUARE tiles take more than one
            lines = p.pitches[0] % WIDE_UNITS[0] == p.pitches[1] % WIDE_UNITS[1] == 0
            return lines and p.k > WIDE_K and SQUARE.count(p) > AT_ONCE[1]
        if self.split > 1:
            enough = p.k > SHORT_K and count >= FEWEST_CLUSTERS and full(p.m, self.rows, HALF_FULL)
            return enough and not others_share(p, count)
        busy = p.k <= SHORT_K or 2 * count >= AT_ONCE[1]
        return p.k <= MOST_K and busy and (full(p.m, self.rows, FULL) or self.rows < 128 or bool(p.constants))


TILES = (
    *(Tile(rows, 64, 1, split=2) for rows in (32, 64, 96)),
    *(Tile(16, 64, 2), Tile(32, 64, 2), Tile(64, 64, 1), Tile(128, 64, 1)),
    Tile(128, 64, 1, split=2),  # where k is too long for the one before
    *(Tile(128, columns, 1, wide=True) for columns in (192, 256)),
)
SQUARE = Tile(128, 128, 1)  # one that OTHERS has


def full(m: int, rows: int, part: float) -> bool:
    """Whether c has this part of the rows of tiles."""
    return m >= part * rows * ceil_div(m, rows)


def others_share(p: GemmShape, clusters: int) -> bool:
    """Whether OTHERS is faster with a long k: it shares it among more blocks, or has high tiles for it."""
    parts = p.batch * ceil_div(p.m, PARTS[0]) * ceil_div(p.n, PARTS[1])
    if parts <= MOST_PARTS:
        return p.k > K_OF_PARTS * parts
    return p.k > LONG_K and clusters < MANY_CLUSTERS and full(p.m, HIGH, FULL)


@cache
def choose(p: GemmShape) -> Tile | None:
    """The first tile of those that suit the problem; None if there is none."""
    lines = p.layout[0] == "n" and not any(pitch % UNIT for pitch in p.pitches)
    if p.out == "fp32" or p.beta or not lines or p.m < FEWEST_ROWS or p.n == 1:
        return None
    return next((tile for tile in TILES if tile.suits(p)), None)


def steps(p: GemmShape, tile: Tile) -> int:
    """Of a block, at most."""
    return ceil_div(ceil_div(p.k, TILE_K), tile.split)


def stages(p: GemmShape, tile: Tile) -> int:
    """Of each ring: few numbers of them, so that there are few kernels to compile."""
    if tile.wide:
        return WIDE_STAGES
    most = min(MOST_STAGES, (SHARED_BYTES - sums_bytes(tile)) // tile.step_bytes)
    return next((count for count in (2, 4) if min(steps(p, tile), most) <= count <= most), most)


def sums_bytes(tile: Tile) -> int:
    """Of results on their way out, and of sums from another block."""
    if tile.wide:
        return tile.rows // 16 * WARP_BYTES
    sums = tile.rows // tile.split * tile.columns
    return sums * 2 + (tile.split - 1) * sums * 4


def refuses(p: GemmShape) -> str:
    """What tensor cores multiply here."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def threads(tile: Tile) -> int:
    """Of a block: warpgroups that multiply, and two warps that load."""
    return (tile.rows if tile.wide else tile.columns) // 64 * 128 + 64


def ahead(p: GemmShape, tile: Tile) -> int:
    """Stages of b that are loaded before the wait: all, or fewer where they delay loads of a."""
    if "b" not in p.constants:
        return 0
    if tile.wide:
        return WIDE_AHEAD
    busy = tile.split == 1 and 2 * tile.count(p) > AT_ONCE[1]
    return min(stages(p, tile), BUSY_AHEAD) if busy else stages(p, tile)


def defines(p: GemmShape) -> dict[str, int]:
    """The tile, types and layouts, which the compiler has to know."""
    tile = choose(p) or TILES[0]  # the same for all problems that do not look at it: fewer kernels to compile
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": TILE_K, "THREADS": threads(tile)},
        **{"STAGES": stages(p, tile), "BLOCKS": tile.blocks, "SPLIT": tile.split, "WIDE": tile.wide, "SHARE_A": 1, "SHARE_B": 1, "PAIRS": 1, "ROUNDS": 0},
        **{"WHOLE": steps(p, tile) <= stages(p, tile)},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "B_TURNED": p.layout[1] == "t"},
        "AHEAD": ahead(p, tile),
    }


def plan(p: GemmShape) -> list[Launch | Call]:
    """A block or a cluster for each tile, or a call."""
    tile = choose(p)
    if tile is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    of_c = 16 if tile.wide else tile.rows // tile.split  # rows of a warp, or of a block
    boxes = {"a": (1, tile.rows, TILE_K), "b": (1, 64, 64), "c": (1, of_c, 64)}
    maps = []
    for (name, box), pitch, length in zip(boxes.items(), p.pitches, p.lengths, strict=True):
        lines = p.arrays[name].shape[1]
        maps.append(TensorMap(name, box, (p.batch, lines, length), (lines * pitch, pitch)))
    shared = stages(p, tile) * tile.step_bytes + sums_bytes(tile)
    grid = (ceil_div(p.m, tile.rows) * tile.split, ceil_div(p.n, tile.columns), p.batch)
    args = (*maps, p.k, float(p.alpha))
    launch = Launch("gemm_ahead", grid, (threads(tile),), args, shared, cluster=tile.split, early=True)
    return [launch]


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
