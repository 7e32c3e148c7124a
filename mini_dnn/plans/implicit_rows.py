"""Tiles and launches of the kernels in ``mini_dnn/implicit_rows.cuh``: convolutions of 64 channels."""

from __future__ import annotations

from mini_dnn.ops.conv2d_padded_shape import PaddedShape
from mini_dnn.plans.implicit import SMS, STEP, Names
from mini_dnn.variant import Launch, TensorMap, ceil_div

CHANNELS, PIXELS, LINE, TAPS, STAGES, WARPGROUPS = 64, 120, 128, 9, 4, 2  # as in the header
MOST_W = 2 * PIXELS // 3 - 2  # a stage has 240 pixels: at least three rows, with a zero on each side
SHARED_BYTES = TAPS * CHANNELS * LINE + STAGES * 2 * PIXELS * LINE + WARPGROUPS * PIXELS * LINE


def fault(p: PaddedShape) -> str:
    """Return why the kernels do not support the problem, or an empty string."""
    if p.dtype != "fp16" or p.layout != "nhwc":
        return f"it multiplies halves whose channels lie side by side, and this is {p.dtype} {p.layout}"
    if (p.C, p.K, p.R, p.stride, p.padding) != (CHANNELS, CHANNELS, 3, 1, 1):
        return "it takes 64 channels in and out, 3 x 3, stride 1, padding 1; conv2d_padded/v3 takes others"
    if p.W > MOST_W:
        return f"a row has {p.W} pixels, and it takes {MOST_W} at most; conv2d_padded/v3 takes more"
    return ""


def tiles(p: PaddedShape) -> int:
    """Return the number of tiles: each has as many rows as 120 pixels give, with zeros on both sides."""
    return p.N * ceil_div(p.H, PIXELS // (p.W + 2))


def pays(p: PaddedShape) -> bool:
    """Whether there is a tile for each warpgroup of all multiprocessors.

    Then it is faster than `implicit`.
    """
    return not fault(p) and tiles(p) >= WARPGROUPS * SMS * 3 // 4


def launch(p: PaddedShape, names: Names, kernel: str, early: bool) -> Launch:
    """Launch a block for each multiprocessor."""
    lines = (p.N * p.P * p.Q, p.K)
    x = TensorMap(names.x, (1, p.W + 2, p.C), (p.N * p.H, p.W, p.C))
    w = TensorMap(names.w, (CHANNELS, STEP), (p.K, p.taps))
    y = TensorMap(names.y, (p.W, p.K), lines)
    residual = TensorMap(names.residual or names.y, (p.W, p.K), lines)  # not read if there is none
    args = (x, w, residual, y, names.bias, p.N, p.H, p.W, int(p.relu), int(p.residual))
    blocks = (min(tiles(p), SMS),)
    return Launch(kernel, blocks, (WARPGROUPS * 128 + 32,), args, SHARED_BYTES, early=early)
