"""attention/v9_final."""

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

GROUPS = 3  # warpgroups that multiply, 64 queries each
MULTIPROCESSORS = 132  # of an H100 or H200; a block each
LOG2_E = 1.4426950408889634
MOST_KEYS = {32: 112, 64: 112, 128: 64}  # of a block, for each d
TAIL_KEYS = 96  # where warps for a tail need registers, too
MORE_KEYS = 16  # that the last block may have beyond that
Q_STAGES = 2
TILE, FEW = 64, 8  # queries of a warpgroup, and most of a tail
TAIL_BYTES = Q_STAGES * FEW * 128 + 2 * 20 * 32 * 4  # its queries, and states of two warps


def refuses(p: AttentionShape) -> str:
    """What wgmma multiplies."""
    return "it multiplies halves, and dtype is fp32; attention/v6 takes both" if p.dtype == "fp32" else ""


def has_tail(p: AttentionShape) -> bool:
    """Whether a few queries past the last full tile are done apart."""
    return p.T > TILE and 0 < p.T % TILE <= FEW and not p.causal and p.d < 128


def blocks(p: AttentionShape) -> tuple[int, int, int]:
    """Keys of a block, of the first, and of the last, which may be longer: keys are padded to 16 at most."""
    keys, most = ceil_div(p.T, 16) * 16, TAIL_KEYS if has_tail(p) else MOST_KEYS[p.d]
    if p.causal:
        block = min(keys, most)
        return block, block, block
    if keys <= most:
        return keys, keys, keys
    more = MORE_KEYS if has_tail(p) else 0
    if keys <= most + more:
        return keys, keys, keys
    last = (keys - 1) % most + 1
    return most, most, last + most if last <= more else last


def stage_keys(p: AttentionShape) -> int:
    """Keys that a stage has room for."""
    return max(blocks(p))


def stages(p: AttentionShape) -> int:
    """Of keys and values: what shared memory holds beside the queries."""
    wide = max(1, p.d // 64)
    return (224 * 1024 - TAIL_BYTES - Q_STAGES * GROUPS * 8192 * wide) // (2 * stage_keys(p) * 128 * wide)


def registers(p: AttentionShape) -> tuple[int, int]:
    """Of a thread that multiplies, and of one that copies or does the tail."""
    return (136, 104) if has_tail(p) else (160, 32)


def defines(p: AttentionShape) -> dict[str, int]:
    """Sizes of blocks, which the compiler has to know."""
    block, first, last = blocks(p)
    return {
        **{"D": p.d, "BLOCK": block, "FIRST": first, "LAST": last, "CAUSAL": p.causal, "TURNS": not p.causal},
        **{
            "STAGES": min(stages(p), 8),
            "Q_STAGES": Q_STAGES,
            "GROUP_COUNT": GROUPS,
            "THREADS": (GROUPS + 1) * 128,
        },
        **{"NEGATIVE": p.factor < 0, "TAIL": has_tail(p)},
        **dict(zip(("MORE", "FEWER"), registers(p), strict=True)),
    }


def tensor_map(p: AttentionShape, buffer: str, rows: int) -> TensorMap:
    """Boxes of rows of 64 numbers, of a head each: heads lie along the first axis, or the last if packed."""
    packed = p.layout == "packed"
    entry, head, token = p.out_strides if buffer == "o" else p.strides
    width = min(p.d, 64) if buffer == "o" else 64
    swizzle = 2 * width if width == 64 else 0
    shape = (p.B, p.T, token) if packed else (p.B * p.H, p.T, p.d)
    return TensorMap(buffer, (1, rows, width), shape, (entry if packed else head, token), swizzle)


def plan(p: AttentionShape) -> list[Launch]:
    """One launch of as many blocks as there are multiprocessors, or items."""
    tiles = p.T // TILE if has_tail(p) else ceil_div(p.T, TILE)
    items = p.B * p.H * ceil_div(tiles, GROUPS)
    q, k, v, o = p.buffers
    block = blocks(p)[0]
    rows = (GROUPS * 64, block, block, 16)
    maps = (tensor_map(p, name, count) for name, count in zip((q, k, v, o), rows, strict=True))
    each = p.H if p.layout == "packed" else 1
    wide = max(1, p.d // 64)
    shared = (
        defines(p)["STAGES"] * 2 * stage_keys(p) * 128 + Q_STAGES * GROUPS * 8192
    ) * wide + TAIL_BYTES * has_tail(p)
    scale = float(np.float32(p.factor * LOG2_E))
    few = tensor_map(p, q, FEW)
    more_k, more_v = (tensor_map(p, name, MORE_KEYS) for name in (k, v))
    args = (*maps, few, more_k, more_v, "o", p.T, p.B * p.H, each, p.part, scale)
    grid = (min(items, MULTIPROCESSORS),)
    return [Launch("attention", grid, (defines(p)["THREADS"],), args, shared_bytes=shared, early=True)]


VARIANT = Variant(
    op="attention",
    plan=plan,
    defines=defines,
    refuses=refuses,
    precision="fp16",
    min_arch=90,
    idea="what lengths ask for",
)
