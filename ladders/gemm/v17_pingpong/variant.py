"""gemm/v17_pingpong: draft."""

from dataclasses import dataclass
from functools import cache

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v12_eighths"  # takes what the kernel here does not make faster
TILE_K = 64  # terms of a sum in a stage: rows of 128 bytes
UNIT = 8  # elements of 16 bits that the copy engine moves at least
SECTOR = 16  # elements in 32 bytes: a line of a box that starts within such a sector takes twice as long
MOST_STAGES = 16
SHARED_BYTES = 226 * 1024  # of a block, for stages and sums
LEAST_PIECES = 32  # rows of a piece
AHEAD = 2
BAND = 16  # rows of tiles
THREADS = 384
DEPTH = 1
AT_ONCE = {1: 132, 2: 66, 4: 30, 8: 15}  # clusters of so many blocks


@dataclass(frozen=True)
class Tile:
    """A tile of c, and its blocks."""

    rows: int
    columns: int
    share_a: int = 1  # blocks beside each other that share rows of a
    share_b: int = 1  # blocks below each other that share columns of b
    halves: bool = False  # whether rows are every second one: those start at the same place in a sector
    together: bool = False  # whether both warpgroups compute one tile

    @property
    def pairs(self) -> int:
        """Products of 64 columns that a warpgroup computes in each step."""
        return self.columns // (128 if self.together else 64)

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.share_a * self.share_b

    @property
    def step_bytes(self) -> int:
        """Of a stage."""
        return (self.rows + self.columns) * TILE_K * 2

    def count(self, p: GemmShape) -> int:
        """The number of clusters of tiles that cover c, in all entries of the batch."""
        m, batch = (p.m // 2, 2) if self.halves else (p.m, p.batch)
        return batch * ceil_div(m, self.rows * self.share_b) * ceil_div(p.n, self.columns * self.share_a)

    @property
    def stages(self) -> int:
        """Of the ring."""
        return min(MOST_STAGES, (SHARED_BYTES - 2 * 128 * LEAST_PIECES) // self.step_bytes)

    @property
    def pieces(self) -> tuple[int, int]:
        """Rows of a piece of c, and buffers for pieces, as large as fit."""
        room = (SHARED_BYTES - self.stages * self.step_bytes) // (2 * 128)
        heights = [rows for rows in range(16, self.rows + 1, 16) if self.rows % rows == 0]
        fitting = [(rows, n) for rows in heights for n in (1, 2) if rows * n <= min(room, self.rows)]
        return max(fitting, key=lambda x: (x[0] * x[1], x[1]))


@cache
def choose(p: GemmShape) -> Tile | None:
    """The tile."""
    return None


def refuses(p: GemmShape) -> str:
    """What wgmma multiplies."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def defines(p: GemmShape) -> dict[str, int]:
    """The tile, types and layouts, which the compiler has to know."""
    tile = choose(p) or Tile(128, 128)
    piece, buffers = tile.pieces
    return {
        **{"ROWS": tile.rows, "PAIRS": tile.pairs, "TILE_K": TILE_K, "THREADS": THREADS},
        **{"STAGES": tile.stages, "PIECE": piece, "BUFFERS": buffers},
        **{"SHARE_A": tile.share_a, "SHARE_B": tile.share_b, "HALVES": tile.halves, "TOGETHER": tile.together, "DEPTH": DEPTH},
        **{"BAND": BAND // tile.share_b, "AHEAD": AHEAD if "b" in p.constants else 0},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "B_TURNED": p.layout[1] == "t"},
    }


def maps(p: GemmShape, tile: Tile) -> list[TensorMap]:
    """How tensor copies see a, b and c: entry, line, and place in the line. Halves are two entries."""
    boxes = (tile.rows // tile.share_a, 64 // tile.share_b, tile.pieces[0])
    found = []
    for name, height, pitch, length in zip("abc", boxes, p.pitches, p.lengths, strict=True):
        lines = p.arrays[name].shape[1]
        shape, strides = (p.batch, lines, length), (lines * pitch, pitch)
        if tile.halves and name != "b":
            shape, strides = (2, lines // 2, length), (pitch, 2 * pitch)
        found.append(TensorMap(name, (1, height, TILE_K), shape, strides))
    return found


def plan(p: GemmShape) -> list[Launch | Call]:
    """Blocks or clusters that take tile after tile, or a call."""
    tile = choose(p)
    if tile is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    piece, buffers = tile.pieces
    shared = tile.stages * tile.step_bytes + 2 * buffers * piece * 128
    rounds = ceil_div(tile.count(p), AT_ONCE[tile.cluster])
    blocks = ceil_div(tile.count(p), rounds) * tile.cluster  # no more than rounds need
    m, batch = (p.m // 2, 2) if tile.halves else (p.m, p.batch)
    args = (*maps(p, tile), m, p.n, p.k, batch, float(p.alpha))
    return [Launch("gemm_pingpong", (blocks,), (THREADS,), args, shared, cluster=tile.cluster, early=True)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v11_ahead",
    precision="fp16",
    min_arch=90,
    idea="two warpgroups with a tile each: one stores while the other one multiplies",
)
