"""attention/v10_heads: three whole heads in shared memory, whole rows of scores in registers."""

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Call, Launch, TensorMap, Variant, ceil_div

OTHERS = "attention/v9_final"  # computes what does not fit
TILE, TILES = 64, 3  # queries of a warpgroup, and full warpgroups
FEW, WARP_ROWS = 8, 16  # the most queries after the tiles; queries of a warp
LEAST, MOST = 137, 200  # tokens: three tiles of queries, and three heads that fit into shared memory
FIRST = 128  # keys of the first part; the others are the second part
SLOTS = 3  # heads in shared memory
THREADS = (TILES + 1) * 128
MULTIPROCESSORS = 132  # of an H100 or H200; a block each
MORE, FEWER = 152, 56  # registers of a thread with a tile, and of another one
BEHIND_BYTES = 1024 + 256 + 768  # zeros, barriers, and powers of the few queries
LOG2_E = 1.4426950408889634  # the hardware computes powers of two


def fits(p: AttentionShape) -> bool:
    """Whether the kernel supports the problem; `OTHERS` computes all others."""
    return p.dtype == "fp16" and p.d == 64 and not p.causal and LEAST <= p.T <= MOST


def refuses(p: AttentionShape) -> str:
    """The text of the limit: wgmma multiplies halves."""
    return "it multiplies halves, and dtype is fp32; attention/v2 takes it" if p.dtype == "fp32" else ""


def keys(T: int) -> int:
    """Keys with their padding. 208 would not fit into shared memory, so 200 end with half a product."""
    return min(ceil_div(T, 16) * 16, MOST)


def defines(p: AttentionShape) -> dict[str, int]:
    """Sizes of a head."""
    T = p.T if fits(p) else MOST
    return {
        **{"D": 64, "KEYS": keys(T), "FIRST": FIRST, "TAIL": TILES * TILE < T},
        **{"SLOTS": SLOTS, "TILES": TILES, "THREADS": THREADS, "NEGATIVE": p.factor < 0},
        **{"MORE": MORE, "FEWER": FEWER},
    }


def tensor_map(p: AttentionShape, buffer: str, rows: int) -> TensorMap:
    """Boxes of rows of a head. Heads follow each other along the first axis, or the last if packed."""
    packed = p.layout == "packed"
    entry, head, token = p.out_strides if buffer == "o" else p.strides
    shape = (p.B, p.T, token) if packed else (p.B * p.H, p.T, p.d)
    return TensorMap(buffer, (1, rows, p.d), shape, (entry if packed else head, token), 2 * p.d)


def plan(p: AttentionShape) -> list[Launch | Call]:
    """One launch with a block for each multiprocessor, or for each head if there are fewer."""
    if not fits(p):
        return [Call(OTHERS, p, {name: name for name in p.arrays})]
    q, k, v, o = p.buffers
    several = keys(p.T)
    boxes = ((q, TILE), (q, FEW), (k, FIRST), (k, several - FIRST), (v, several), (o, WARP_ROWS))
    each = p.H if p.layout == "packed" else 1  # heads that are side by side in a line
    args = (o, p.T, p.B * p.H, each, p.part, float(np.float32(p.factor * LOG2_E)))
    rows = TILES * TILE + (FEW if p.T > TILES * TILE else 0)
    shared = SLOTS * (rows + 2 * several) * 128 + BEHIND_BYTES
    grid = (min(p.B * p.H, MULTIPROCESSORS),)
    return [
        Launch(
            "attention",
            grid,
            (THREADS,),
            (*(tensor_map(p, *box) for box in boxes), *args),
            shared,
            early=True,
        )
    ]


VARIANT = Variant(
    op="attention",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="attention/v9_final",
    precision="fp16",
    min_arch=90,
    idea="three whole heads in shared memory, whole rows of scores in registers",
)
