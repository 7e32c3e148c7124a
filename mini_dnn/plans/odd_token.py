"""Plans of attention for 64 n + 1 tokens, on the kernels of ``attention/v11_odd_token`` and its children."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Call, Launch, TensorMap, ceil_div

OTHERS = "attention/v10_heads"  # computes other lengths
GROUPS = 3  # warpgroups that multiply, 64 queries each
MULTIPROCESSORS = 132  # of an H100 or H200, which run one block each
LOG2_E = 1.4426950408889634  # the hardware computes powers of two
TILE, BLOCK = 64, 96  # queries of a warpgroup, keys of a block
LEAST, LEAST_SPLIT = 200, 3 * 3 * BLOCK  # tokens, in general and if a head's last tile is split
STAGES, Q_STAGES = 7, 2  # blocks of keys and values, and items, in shared memory at a time
TILE_BYTES = TILE * 128
THREADS = (GROUPS + 1) * 128
TOKENS_BYTES = Q_STAGES * 16 * 128 + 2 * 10 * 8 * 4  # odd tokens, and what two warps hand to a third one


def fits(p: AttentionShape) -> bool:
    """Whether the kernel supports the problem; `OTHERS` computes all others."""
    tiles, odd = divmod(p.T, TILE)
    plain = p.dtype == "fp16" and p.d == 64 and not p.causal and p.factor > 0
    return plain and p.T > LEAST and odd == 1 and (tiles % GROUPS == 0 or split_pays(p))


def refuses(p: AttentionShape) -> str:
    """The text of the limit: wgmma multiplies halves."""
    return "it multiplies halves, and dtype is fp32; attention/v2 takes it" if p.dtype == "fp32" else ""


def split_pays(p: AttentionShape) -> bool:
    """Whether splitting a head's last tile makes the busiest block faster.

    A single tile takes three quarters of the time of three tiles. If it is split, so that each warpgroup has
    at least four of its blocks of keys, it takes half of the time of three.
    """
    whole, more = divmod(p.T // TILE, GROUPS)
    alone = ceil_div(p.B * p.H * (whole + 1), MULTIPROCESSORS)  # items, if it is not split
    return (
        more == 1
        and p.T > LEAST_SPLIT
        and ceil_div(units(p), MULTIPROCESSORS) < alone - alone // (whole + 1) / 4
    )


def last_keys(p: AttentionShape) -> int:
    """The number of keys in the last block, without the odd key."""
    return (p.T - 2) % BLOCK + 1 if fits(p) else BLOCK


def units(p: AttentionShape) -> int:
    """The number of units of work: items of three tiles, or the last tiles of two heads."""
    whole, more = divmod(p.T // TILE, GROUPS)
    heads = p.B * p.H
    return ceil_div(heads, 2) * (2 * whole + 1) if more else heads * whole


def defines(p: AttentionShape, more: int, fewer: int) -> dict[str, int]:
    """Sizes that are compile-time constants; some are for headers of ``v9_final``.

    A thread that multiplies has ``more`` registers, and any other thread ``fewer``.
    """
    return {
        **{"D": 64, "BLOCK": BLOCK, "LAST": last_keys(p), "CAUSAL": 0, "NEGATIVE": 0, "TAIL": 1},
        **{"STAGES": STAGES, "Q_STAGES": Q_STAGES, "GROUP_COUNT": GROUPS, "THREADS": THREADS},
        **{"MORE": more, "FEWER": fewer},
    }


def tensor_map(p: AttentionShape, buffer: str, rows: int) -> TensorMap:
    """Boxes of rows of a head. Heads follow each other along the first axis, or along the last if packed."""
    packed = p.layout == "packed"
    entry, head, token = p.out_strides if buffer == "o" else p.strides
    shape = (p.B, p.T, token) if packed else (p.B * p.H, p.T, p.d)
    strides, swizzle = (entry if packed else head, token), 2 * p.d if rows > 1 else 0
    return TensorMap(buffer, (1, rows, p.d), shape, strides, swizzle)


def plan(p: AttentionShape) -> list[Launch | Call]:
    """One launch of as many blocks as there are multiprocessors, or units of work."""
    if not fits(p):
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    q, k, v, o = p.buffers
    boxes = ((q, GROUPS * TILE), (k, BLOCK), (v, BLOCK), (o, 16), (q, 1), (k, 1), (v, 1))
    maps = (tensor_map(p, name, rows) for name, rows in boxes)
    each = p.H if p.layout == "packed" else 1  # heads that lie side by side
    args: tuple[Any, ...] = (*maps, o, p.T - 1, p.B * p.H, each, p.part, float(np.float32(p.factor * LOG2_E)))
    shared = STAGES * 2 * BLOCK * 128 + Q_STAGES * GROUPS * TILE_BYTES + TOKENS_BYTES
    grid = min(units(p), MULTIPROCESSORS)
    return [Launch("attention", (grid,), (THREADS,), args, shared, early=True)]
