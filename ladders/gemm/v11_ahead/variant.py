"""gemm/v11_ahead: tiles of many sizes that fill the rounds; constants are loaded before the wait."""

from functools import cache

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans.gemm_tiles import (
    AT_ONCE,
    FINAL,
    OF_OTHERS,
    ROUNDS,
    SINGLE,
    TILE_K,
    TILES,
    WIDE,
    Tile,
)
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS, FINAL_RUNG = "gemm/v10_small", "gemm/v8_final"  # compute what the kernels here do not make faster
UNIT = 8  # elements of 16 bits in 16 bytes, the smallest piece that the copy engine moves
MOST_STAGES, LEAST_STAGES = 8, 4  # stages of a ring
SHARED_BYTES = 226 * 1024  # of a block, for stages and sums
BUSY_AHEAD = 4  # stages of b that are loaded before the wait, if most multiprocessors have a tile
WIDE_STAGES, WIDE_AHEAD = 4, 2  # stages of a ring; those of b that are loaded before the wait
PART_BYTES = 2048  # of a warp: 16 rows and 64 columns of c before they are stored
BAND = 16  # rows of tiles in a band; tiles are computed band after band


@cache
def fastest(p: GemmShape) -> Tile | None:
    """The tile that the model predicts to be fastest; None if only other rungs support the problem."""
    lines = p.layout[0] == "n" and not any(pitch % UNIT for pitch in p.pitches)
    if p.out == "fp32" or p.beta or not lines or 1 in (p.m, p.n):
        return None
    return min((t for t in (*OF_OTHERS, *TILES) if t.takes(p)), key=lambda t: t.clocks(p))


def choose(p: GemmShape) -> Tile | None:
    """The same tile, or None if it is not one of the kernels here."""
    tile = fastest(p)
    return None if tile in OF_OTHERS else tile


def steps(p: GemmShape, tile: Tile) -> int:
    """The most steps of a block."""
    return ceil_div(ceil_div(p.k, TILE_K), tile.split)


def stages(p: GemmShape, tile: Tile) -> int:
    """The number of stages of a ring. Only few numbers are used, so that few kernels are compiled."""
    if tile.kind == WIDE:
        return WIDE_STAGES
    most = min(MOST_STAGES, (SHARED_BYTES - sums_bytes(tile)) // tile.step_bytes)
    if tile.kind == ROUNDS:
        return most
    return next((count for count in (2, 4) if min(steps(p, tile), most) <= count <= most), most)


def pieces(tile: Tile) -> tuple[int, int]:
    """For tiles of several rounds: the rows of a piece of c, and the number of buffers for pieces."""
    row = tile.columns // tile.pairs * 2
    least = min(LEAST_STAGES, (SHARED_BYTES - 32 * row) // tile.step_bytes)
    room = (SHARED_BYTES - least * tile.step_bytes) // row
    heights = [rows for rows in range(16, tile.rows + 1, 16) if tile.rows % rows == 0]
    fitting = [(rows, count) for rows in heights for count in (1, 2) if rows * count <= min(room, tile.rows)]
    return max(fitting, key=lambda x: (x[0] * x[1], x[1]))


def sums_bytes(tile: Tile) -> int:
    """The number of bytes for results before they are stored, and for sums from other blocks."""
    if tile.kind == WIDE:
        return tile.rows // 16 * (2 if tile.columns == 256 else tile.columns // 64) * PART_BYTES
    if tile.kind == ROUNDS:
        rows, buffers = pieces(tile)
        return rows * buffers * tile.columns // tile.pairs * 2
    sums = tile.rows // tile.split * tile.columns
    return sums * 2 + (tile.split - 1) * sums * 4


def refuses(p: GemmShape) -> str:
    """The text of the limit: its products multiply elements of 16 bits."""
    return "it multiplies 16 bits, and dtype is fp32; gemm/v9 takes that" if p.dtype == "fp32" else ""


def threads(tile: Tile) -> int:
    """Threads of a block: warpgroups that multiply, and two warps or a warpgroup that load."""
    of_products = (tile.rows if tile.kind == WIDE else tile.columns) // 64 // tile.pairs * 128
    return of_products + (128 if tile.pairs > 1 else 64)


def ahead(p: GemmShape, tile: Tile) -> int:
    """The number of stages of b that are loaded before the wait: fewer if they would delay loads of a."""
    if "b" not in p.constants:
        return 0
    if tile.kind != SINGLE:
        return WIDE_AHEAD
    busy = tile.split == 1 and 2 * tile.count(p) > AT_ONCE[1]
    return min(stages(p, tile), BUSY_AHEAD) if busy else stages(p, tile)


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: the tile, types and layouts."""
    tile = choose(p) or TILES[0]  # the same for all problems without one, so that fewer kernels are compiled
    piece, buffers = pieces(tile)
    return {
        **{"ROWS": tile.rows, "COLUMNS": tile.columns, "TILE_K": TILE_K, "THREADS": threads(tile)},
        **{"STAGES": stages(p, tile), "BLOCKS": tile.blocks, "SPLIT": tile.split, "WIDE": tile.kind == WIDE},
        **{"WHOLE": steps(p, tile) <= stages(p, tile), "AHEAD": ahead(p, tile)},
        **{"ROUNDS": tile.kind == ROUNDS, "PAIRS": tile.pairs, "PIECE": piece, "BUFFERS": buffers},
        **{
            "SHARE_A": tile.share_a,
            "SHARE_B": tile.share_b,
            "HALVES": tile.halves,
            "BAND": BAND // tile.share_b,
        },
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], "B_TURNED": p.layout[1] == "t"},
    }


def maps(p: GemmShape, tile: Tile) -> list[TensorMap]:
    """The tensor maps of a, b and c: entry, line, place in the line. With `halves`, there are two entries."""
    if tile.kind == ROUNDS:
        of_a, of_b, of_c = tile.rows // tile.share_a, 64 // tile.share_b, pieces(tile)[0]
    else:  # c: rows of a warp, or of a block
        of_a, of_b, of_c = tile.rows, 64, 16 if tile.kind == WIDE else tile.rows // tile.split
    found = []
    for name, height, pitch, length in zip("abc", (of_a, of_b, of_c), p.pitches, p.lengths, strict=True):
        lines = p.arrays[name].shape[1]
        shape, strides = (p.batch, lines, length), (lines * pitch, pitch)
        if tile.halves and name != "b":
            shape, strides = (2, lines // 2, length), (pitch, 2 * pitch)
        found.append(TensorMap(name, (1, height, TILE_K), shape, strides))
    return found


def plan(p: GemmShape) -> list[Launch | Call]:
    """A launch with blocks or clusters for the tiles, or a call of another rung."""
    tile = choose(p)
    if tile is None:
        other = FINAL_RUNG if (best := fastest(p)) and best.kind == FINAL else OTHERS
        return [Call(other, p, {name: name for name in p.arrays})]
    shared = stages(p, tile) * tile.step_bytes + sums_bytes(tile)
    if tile.kind == ROUNDS:
        rounds = ceil_div(tile.count(p), AT_ONCE[tile.cluster])
        grid: tuple[int, ...] = (ceil_div(tile.count(p), rounds) * tile.cluster,)  # no more than rounds need
        m, batch = (p.m // 2, 2) if tile.halves else (p.m, p.batch)
        kernel, numbers = "gemm_rounds", (m, p.n, p.k, batch, float(p.alpha))
    else:
        grid = (ceil_div(p.m, tile.rows) * tile.split, ceil_div(p.n, tile.columns), p.batch)
        kernel, numbers = "gemm_ahead", (p.k, float(p.alpha))
    args = (*maps(p, tile), *numbers)
    return [Launch(kernel, grid, (threads(tile),), args, shared, cluster=tile.cluster, early=True)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v10_small",
    precision="fp16",
    min_arch=90,
    idea="constant operands are loaded before the previous kernel has ended; tiles that fill the rounds",
)
