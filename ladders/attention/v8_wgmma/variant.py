"""attention/v8_wgmma: warpgroups multiply in turn, and the copy engine loads keys and values."""

import numpy as np

from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import Launch, TensorMap, Variant, ceil_div

GROUPS = 2  # warpgroups, 64 queries each
KEYS = 64  # of a block
STAGES = 4
THREADS = GROUPS * 128 + 32
BOX_BYTES = 64 * 128
LOG2_E = 1.4426950408889634  # the hardware computes powers of two


def refuses(p: AttentionShape) -> str:
    """The text of the limit: its products multiply halves."""
    return "it multiplies halves, and dtype is fp32; attention/v2 takes it" if p.dtype == "fp32" else ""


def tensor_map(p: AttentionShape, buffer: str) -> TensorMap:
    """Boxes of 64 tokens and 64 columns. Heads follow along the first axis, or the last if packed."""
    entry, head, token = p.strides
    if p.layout == "packed":
        return TensorMap(buffer, (1, 64, 64), (p.B, p.T, token), (entry, token))
    return TensorMap(buffer, (1, 64, 64), (p.B * p.H, p.T, p.d), (head, token))


def defines(p: AttentionShape) -> dict[str, int]:
    """Compile-time constants: sizes."""
    sizes = {"D": p.d, "KEYS": KEYS, "STAGES": STAGES, "GROUPS": GROUPS, "THREADS": THREADS}
    return {**sizes, "CAUSAL": p.causal}


def plan(p: AttentionShape) -> list[Launch]:
    """One launch: a block for GROUPS * 64 queries of a head."""
    *given, o = p.buffers
    each = p.H if p.layout == "packed" else 1  # heads that are side by side in a line
    maps = (tensor_map(p, name) for name in given)
    args = (*maps, o, p.T, each, p.part, float(np.float32(p.factor * LOG2_E)))
    grid = (p.B * p.H * ceil_div(p.T, GROUPS * 64),)
    shared = (GROUPS + 2 * STAGES) * BOX_BYTES * max(1, p.d // 64)
    return [Launch("attention", grid, (THREADS,), args, shared_bytes=shared, early=True)]


VARIANT = Variant(
    op="attention",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="attention/v7_online",
    precision="fp16",
    min_arch=90,
    idea="two warpgroups alternate between products and exponentials; a separate warp starts the copies",
)
