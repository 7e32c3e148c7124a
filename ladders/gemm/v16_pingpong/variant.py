"""gemm/v16_pingpong: warpgroups that multiply in turn, or together; other warps start the copies."""

from functools import cache

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans.gemm_tiles import (
    AT_ONCE,
    FINAL,
    OF_OTHERS,
    OF_PLAYERS,
    PARTS,
    ROUNDS,
    SINGLE,
    SMALL,
    TILE_K,
    TILES,
    TOGETHER,
    WIDE,
    Tile,
)
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "gemm/v15_idle"  # computes what the kernel here does not make faster
UNIT = 8  # elements of 16 bits in 16 bytes, the smallest piece that the copy engine moves
MOST_STAGES = 16  # stages of the ring
SHARED_BYTES = 226 * 1024  # of a block, for stages and pieces of c
LEAST_ROWS = 32  # rows of a piece of c, if a tile has so many
AHEAD = 2  # stages of b that are loaded before the wait, if b is constant
BAND = 16  # rows of tiles in a band; tiles are computed band after band
LINE = 128  # bytes of a row of a piece: 64 columns
THREADS = 384  # two warpgroups that multiply, and one whose warps move data
LEAST_WORK = 2e8  # multiply-adds: for less work, other rungs start faster

# Times of other rungs relative to the model of their tiles: medians of 125 products on H100s
RELATIVE = {WIDE: 1.16, ROUNDS: 1.21, PARTS: 0.87, SMALL: 1.0}
OF_FINAL, OF_SMALL_FINAL = 1.2, 0.9  # tiles of 128 x 256, and others of gemm/v8_final
OF_SINGLE, OF_LINES, OF_SPLIT, OF_AGAIN = (
    1.15,  # single tiles
    0.95,  # if all lines start with a line of the cache
    1.15,  # if blocks share k
    1.4,  # if they take several rounds
)


def relative(tile: Tile, p: GemmShape) -> float:
    """The measured time of a tile of another rung, relative to the model."""
    if tile.kind == FINAL:
        return OF_FINAL if tile.columns == 256 else OF_SMALL_FINAL
    if tile.kind != SINGLE:
        return RELATIVE[tile.kind]
    if tile.count(p) > AT_ONCE[tile.cluster] * tile.blocks:
        return OF_AGAIN
    whole = not any(pitch % TILE_K for pitch in p.pitches[:2])
    return OF_SPLIT if tile.split > 1 else OF_LINES if whole else OF_SINGLE


@cache
def choose(p: GemmShape) -> Tile | None:
    """The tile that the model predicts to be fastest; None if another rung has a faster one."""
    lines = p.layout[0] == "n" and not any(pitch % UNIT for pitch in p.pitches)
    if p.out == "fp32" or p.beta or not lines or 1 in (p.m, p.n) or p.batch * p.m * p.n * p.k < LEAST_WORK:
        return None
    tile = min((t for t in OF_PLAYERS if t.takes(p)), key=lambda t: t.clocks(p), default=None)
    other = min((t for t in (*OF_OTHERS, *TILES) if t.takes(p)), key=lambda t: t.clocks(p))
    return tile if tile and tile.clocks(p) < other.clocks(p) * relative(other, p) else None


def stages(tile: Tile) -> int:
    """The number of stages of the ring: as many as fit beside pieces of c."""
    return min(MOST_STAGES, (SHARED_BYTES - 2 * LINE * min(tile.rows, LEAST_ROWS)) // tile.step_bytes)


def pieces(tile: Tile) -> tuple[int, int]:
    """The rows of a piece of c, and the number of buffers of each warpgroup: as many as fit."""
    room = (SHARED_BYTES - stages(tile) * tile.step_bytes) // (2 * LINE)
    heights = [rows for rows in range(16, tile.rows + 1, 16) if tile.rows % rows == 0]
    fitting = [(rows, count) for rows in heights for count in (1, 2) if rows * count <= min(room, tile.rows)]
    return max(fitting, key=lambda x: (x[0] * x[1], x[1]))


def refuses(p: GemmShape) -> str:
    """The text of the limit: wgmma multiplies elements of 16 bits."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: the tile, types and layouts."""
    tile = choose(p) or OF_PLAYERS[0]  # the same for all problems without one: fewer kernels
    piece, buffers = pieces(tile)
    return {
        **{"ROWS": tile.rows, "PAIRS": tile.pairs, "TILE_K": TILE_K, "THREADS": THREADS},
        **{"STAGES": stages(tile), "PIECE": piece, "BUFFERS": buffers},
        **{
            "SHARE_A": tile.share_a,
            "SHARE_B": tile.share_b,
            "HALVES": tile.halves,
            "TOGETHER": tile.kind == TOGETHER,
        },
        **{"BAND": BAND // tile.share_b, "AHEAD": AHEAD if "b" in p.constants else 0},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "B_TURNED": p.layout[1] == "t"},
    }


def maps(p: GemmShape, tile: Tile) -> list[TensorMap]:
    """The tensor maps of a, b and c: entry, line, place in the line. With `halves`, there are two entries."""
    boxes = (tile.rows // tile.share_a, 64 // tile.share_b, pieces(tile)[0])
    found = []
    for name, height, pitch, length in zip("abc", boxes, p.pitches, p.lengths, strict=True):
        lines = p.arrays[name].shape[1]
        shape, strides = (p.batch, lines, length), (lines * pitch, pitch)
        if tile.halves and name != "b":
            shape, strides = (2, lines // 2, length), (pitch, 2 * pitch)
        found.append(TensorMap(name, (1, height, TILE_K), shape, strides))
    return found


def plan(p: GemmShape) -> list[Launch | Call]:
    """Blocks or clusters that process tile after tile, or a call of another rung."""
    tile = choose(p)
    if tile is None:
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    piece, buffers = pieces(tile)
    shared = stages(tile) * tile.step_bytes + 2 * buffers * piece * LINE
    rounds = ceil_div(tile.count(p), AT_ONCE[tile.cluster])
    blocks = ceil_div(tile.count(p), rounds) * tile.cluster  # no more than the number of rounds needs
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
