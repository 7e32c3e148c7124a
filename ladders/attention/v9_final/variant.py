"""attention/v9_final: persistent blocks, no maximum in the loop, odd queries separately."""

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

GROUPS = 3  # warpgroups that multiply, 64 queries each
MULTIPROCESSORS = 132  # of an H100 or H200; a block each
LOG2_E = 1.4426950408889634  # the hardware computes powers of two
MOST_KEYS = {32: 112, 64: 112, 128: 64}  # of a block, for each d: what registers allow
TAIL_KEYS = 96  # the same if warps for a tail need registers, too
# Last blocks that are padded further, by d, tail and keys. For only these, ptxas 13.0 runs out of registers
# and serialises the products (C7511).
LONGER = {(32, True, 80): 96, (64, False, 96): 112}
Q_STAGES, MOST_STAGES = 2, 8  # stages for the queries of items, and for blocks of keys and values
SHARED = 224 * 1024  # bytes of shared memory for all of them
TILE, FEW = 64, 8  # queries of a warpgroup, and most of a tail
TILE_BYTES = TILE * 128  # of 64 columns
THREADS = (GROUPS + 1) * 128
TAIL_BYTES = Q_STAGES * FEW * 128 + 2 * 20 * 32 * 4  # its queries, and states of two warps


def refuses(p: AttentionShape) -> str:
    """The text of the limit: wgmma multiplies halves."""
    return "it multiplies halves, and dtype is fp32; attention/v2 takes it" if p.dtype == "fp32" else ""


def has_tail(p: AttentionShape) -> bool:
    """Whether the few queries after the last full tile are computed separately."""
    return p.T > TILE and 0 < p.T % TILE <= FEW and not p.causal and p.d < 128


def blocks(p: AttentionShape) -> tuple[int, int]:
    """Keys of a block, and of the last one: they are padded to a multiple of 16, no further."""
    keys, most = ceil_div(p.T, 16) * 16, TAIL_KEYS if has_tail(p) else MOST_KEYS[p.d]
    block = min(keys, most)
    if p.causal or block == keys:
        return block, block
    last = (keys - 1) % block + 1
    return block, LONGER.get((p.d, has_tail(p), last), last)


def wide(p: AttentionShape) -> int:
    """The number of adjacent boxes of 64 columns that a head has."""
    return max(1, p.d // 64)


def stages(p: AttentionShape) -> int:
    """The number of blocks of keys and values that fit into shared memory with the queries."""
    queries = Q_STAGES * GROUPS * TILE_BYTES * wide(p) + TAIL_BYTES
    return min(MOST_STAGES, (SHARED - queries) // (2 * blocks(p)[0] * 128 * wide(p)))


def defines(p: AttentionShape) -> dict[str, int]:
    """Sizes that are compile-time constants, and registers of threads that multiply and of other threads."""
    block, last = blocks(p)
    more, fewer = (136, 104) if has_tail(p) else (160, 32)
    return {
        **{"D": p.d, "BLOCK": block, "LAST": last, "CAUSAL": p.causal, "NEGATIVE": p.factor < 0},
        **{"STAGES": stages(p), "Q_STAGES": Q_STAGES, "GROUP_COUNT": GROUPS, "THREADS": THREADS},
        **{"TAIL": has_tail(p), "TURNS": not p.causal, "MORE": more, "FEWER": fewer},
    }


def tensor_map(p: AttentionShape, buffer: str, rows: int) -> TensorMap:
    """Boxes of rows of a head. Heads follow each other along the first axis, or along the last if packed."""
    packed = p.layout == "packed"
    entry, head, token = p.out_strides if buffer == "o" else p.strides
    width = min(p.d, 64) if buffer == "o" else 64
    swizzle = 2 * width if width == 64 else 0
    shape = (p.B, p.T, token) if packed else (p.B * p.H, p.T, p.d)
    return TensorMap(buffer, (1, rows, width), shape, (entry if packed else head, token), swizzle)


def plan(p: AttentionShape) -> list[Launch]:
    """One launch with a block for each multiprocessor, or for each item if there are fewer."""
    tiles = p.T // TILE if has_tail(p) else ceil_div(p.T, TILE)
    items = p.B * p.H * ceil_div(tiles, GROUPS)
    q, k, v, o = p.buffers
    block = blocks(p)[0]
    maps = (
        *(tensor_map(p, name, rows) for name, rows in ((q, GROUPS * TILE), (k, block), (v, block))),
        *(tensor_map(p, o, 16), tensor_map(p, q, FEW)),
    )
    each = p.H if p.layout == "packed" else 1  # heads that are side by side in a line
    args = (*maps, o, p.T, p.B * p.H, each, p.part, float(np.float32(p.factor * LOG2_E)))
    shared = (stages(p) * 2 * block * 128 + Q_STAGES * GROUPS * TILE_BYTES) * wide(p)
    shared += TAIL_BYTES * has_tail(p)
    return [Launch("attention", (min(items, MULTIPROCESSORS),), (THREADS,), args, shared, early=True)]


VARIANT = Variant(
    op="attention",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="attention/v8_wgmma",
    precision="fp16",
    min_arch=90,
    idea="persistent blocks, no maximum in the loop, one warp computes indices, idle ones process the tail",
)
