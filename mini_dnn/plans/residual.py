"""Plans of residual networks: kernels of ``mini_dnn/implicit.cuh``, ``stem.cuh`` and ``residual.cuh``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mini_dnn.nn.models.resnet import NORM_ARRAYS, Block, Convolution
from mini_dnn.ops.resnet_shape import ResNetShape
from mini_dnn.plans import implicit, implicit_rows
from mini_dnn.plans.elements import BITS, THREADS
from mini_dnn.plans.implicit import STEP, Layer, Names
from mini_dnn.variant import Array, Launch, ceil_div

MOST_CHANNELS = {"imagenet": 4, "small": 7}  # of an image: a pixel is four halves, or a window is 64 halves
STEM_K, STEM_COLUMNS = 7 * 32, 64
STRIP_COLUMNS, STRIP_ROWS, STRIP_THREADS = 14, 4, 128  # as in the header
STRIP_BLOCKS = 4  # per multiprocessor; the same as in the header
FEW_IMAGES = 2  # up to this many, each block computes the means again
HEAD_IMAGES = 4  # images per block if there are more
SLOTS = ("first", "second", "third")  # the buffers between layers, used in turn


@dataclass(frozen=True)
class Stem:
    """The part of the output that a block of the first kernel computes, and the blocks per multiprocessor."""

    rows: int
    columns: int
    warpgroups: int
    blocks: int

    @property
    def shared_bytes(self) -> int:
        """The shared memory, computed as in `stem::Tile`."""
        rows, units = 2 * self.rows + 1, 2 * self.columns + 4
        tiles = ceil_div(rows * units, 64)
        plane = ceil_div(tiles * 64 + 3 * units + 4, 8) * 8
        return 7 * 4 * 1024 + 2 * plane * 16 + tiles * 64 * 128

    def count(self, s: ResNetShape) -> int:
        """Return the number of blocks for an image."""
        return ceil_div(s.sizes.pooled, self.rows) * ceil_div(s.sizes.pooled, self.columns)


LARGE, SMALL = Stem(7, 14, 4, 2), Stem(2, 14, 3, 2)


def stem_of(s: ResNetShape) -> Stem:
    """Choose the parts: large ones repeat less work, and small ones give work to all multiprocessors."""
    return LARGE if s.N * LARGE.count(s) >= implicit.SMS else SMALL


def in_strips(s: ResNetShape) -> bool:
    """Whether the first kernel processes strips of the image: 16 bytes of a row begin at multiples of 8."""
    return s.stem == "imagenet" and s.image % 8 == 0


def strip_steps(s: ResNetShape) -> int:
    """Return the steps of a block: as few as possible without giving a multiprocessor too many blocks."""
    strips = s.N * ceil_div(s.sizes.pooled, STRIP_COLUMNS) * (wide(s.sizes.conv1.K) // STEM_COLUMNS)
    parts = max(1, STRIP_BLOCKS * implicit.SMS // strips)
    return ceil_div(s.sizes.conv1.P // STRIP_ROWS, parts)


def refuses(s: ResNetShape) -> str:
    """Return what the kernels do not support."""
    if s.channels > MOST_CHANNELS[s.stem]:
        return f"an image has at most {MOST_CHANNELS[s.stem]} channels, and these have {s.channels}"
    return next((fault for layer, _ in layers(s) if (fault := layer.fault)), "")


def wide(channels: int) -> int:
    """Round channels up to steps of 64, as the kernels need. The additional channels are zero."""
    return ceil_div(channels, STEP) * STEP


def blocks(s: ResNetShape) -> list[Block]:
    """Return the network's blocks, with as many channels as the kernels need."""

    def widened(conv: Convolution) -> Convolution:
        return replace(conv, C=wide(conv.C), K=wide(conv.K))

    return [
        Block(b.name, widened(b.conv1), widened(b.conv2), widened(b.downsample) if b.downsample else None)
        for b in s.sizes.all_blocks
    ]


def windows(s: ResNetShape) -> Layer:
    """A small stem as a convolution of one pixel, whose 64 channels are a window of the image."""
    conv = s.sizes.conv1
    one = replace(conv, C=STEP, K=wide(conv.K), R=1, padding=0)
    return Layer(s.layer(one, "fp16", "nhwc", relu=True))


def layers(s: ResNetShape) -> list[tuple[Layer, Block]]:
    """Return the two layers of each block. A downsample is part of the second one."""
    found = []
    for block in blocks(s):
        inner = s.layer(block.conv1, "fp16", "nhwc", relu=True)
        outer = s.layer(block.conv2, "fp16", "nhwc", relu=True, residual=block.downsample is None)
        down = block.downsample
        found += [(Layer(inner), block), (Layer(outer, down.C, down.stride) if down else Layer(outer), block)]
    return found


def in_rows(layer: Layer) -> bool:
    """Whether each of its pixels is loaded only once."""
    return not layer.more_C and implicit_rows.pays(layer.shape)


def kernels(s: ResNetShape, tiles: Iterable[implicit.Tile]) -> dict[str, int]:
    """Return the definitions: the tiles that need a kernel, the stem's parts, and the bits of a pixel."""
    found = [layer for layer, _ in layers(s)] + [windows(s)] * (s.stem == "small")
    chosen = {implicit.choose(layer, tuple(tiles)) for layer in found if not in_rows(layer)}
    given = {f"HAS_{tile.kernel.upper()}": 1 for tile in implicit.TILES if tile in chosen}
    if any(in_rows(layer) for layer in found):
        given["HAS_CONVOLVE_ROWS"] = 1
    given["IMAGES"] = BITS[s.dtype]
    if in_strips(s):
        given["STEM_STEPS"] = strip_steps(s)
    elif s.stem == "imagenet":
        stem = stem_of(s)
        given |= {"STEM_ROWS": stem.rows, "STEM_COLUMNS": stem.columns}
        given |= {"STEM_WARPGROUPS": stem.warpgroups, "STEM_BLOCKS": stem.blocks}
    return given


def packed(conv: Convolution) -> tuple[str, str]:
    """The names of a convolution's half-precision weights and of its bias, both with batch norm folded in."""
    name = conv.name.replace(".", "_")
    return f"{name}_half", f"{name}_bias"


def scratch(s: ResNetShape) -> dict[str, Any]:
    """The buffers between layers, and the weights in the layout of the kernels."""
    conv1, last = s.sizes.conv1, wide(s.sizes.widths[-1])
    sides = [(wide(conv1.K), s.sizes.pooled), *((b.conv1.K, b.conv1.P) for b in blocks(s))]
    widest = max(K * P**2 for K, P in sides)
    found: dict[str, Any] = {name: Array((s.N * widest,), "float16") for name in SLOTS}
    if s.stem == "small":
        found["windows"] = Array((s.N, conv1.P, conv1.P, STEP), "float16")
    shapes = {conv1: (wide(conv1.K), STEM_K if s.stem == "imagenet" else STEP)}
    for layer, block in layers(s):
        shapes[block.conv1 if block.conv1 not in shapes else block.conv2] = (layer.shape.K, layer.line)
    for conv, shape in shapes.items():
        weights, bias = packed(conv)
        found |= {weights: Array(shape, "float16"), bias: shape[:1]}
    if last != s.sizes.widths[-1]:
        found["fc_wide"] = (s.classes, last)
    return found | {"features": (s.N, last)}


def setup(s: ResNetShape) -> list[Launch]:
    """Fold batch norm into weights and bias, and convert the weights to halves in the kernels' order."""

    def given(conv: Convolution) -> list[str]:
        return [f"{conv.name}.weight", *(f"{conv.norm}.{name}" for name in NORM_ARRAYS)]

    def fold(conv: Convolution, into: Convolution, line: int, offset: int) -> Launch:
        C, R = (conv.C, conv.R) if conv != conv1 else (conv.C * conv.R**2, 1)  # windows of a small stem
        numbers = (conv.K, C, R, wide(conv.K), wide(C), line, offset, int(offset > 0))
        args: tuple[str | int, ...] = (*given(conv), *packed(into), *numbers)
        return Launch("fold", (ceil_div(wide(conv.K) * wide(C) * R**2, THREADS),), (THREADS,), args)

    conv1 = s.sizes.conv1
    if s.stem == "imagenet":
        args: tuple[str | int, ...] = (*given(conv1), *packed(conv1), conv1.K, conv1.C, wide(conv1.K))
        steps = [Launch("fold_stem", (ceil_div(wide(conv1.K) * STEM_K, THREADS),), (THREADS,), args)]
    else:
        steps = [fold(conv1, conv1, STEP, 0)]
    for block, wider in zip(s.sizes.all_blocks, blocks(s), strict=True):
        down = block.downsample
        own = wider.conv2.C * wider.conv2.R**2
        line = own + (wide(down.C) if down else 0)
        steps.append(fold(block.conv1, block.conv1, wider.conv1.C * wider.conv1.R**2, 0))
        steps.append(fold(block.conv2, block.conv2, line, 0))
        steps += [fold(down, block.conv2, line, own)] if down else []
    last = s.sizes.widths[-1]
    if wide(last) != last:
        args = ("fc.weight", "fc_wide", s.classes, last, wide(last))
        steps.append(Launch("widen", (ceil_div(s.classes * wide(last), THREADS),), (THREADS,), args))
    return steps


def plan(s: ResNetShape, tiles: Iterable[implicit.Tile], early: bool) -> list[Launch]:
    """Return the stem, two launches for each block, and the head."""
    tiles = tuple(tiles)

    def convolve(layer: Layer, names: Names) -> Launch:
        if in_rows(layer):
            return implicit_rows.launch(layer.shape, names, "convolve_rows", early)
        tile = implicit.choose(layer, tiles)
        return implicit.launch(layer, tile, names, tile.kernel, early)

    x, inner, free = SLOTS
    if s.stem == "imagenet":
        steps = [_stem(s, x, early)]
    else:
        names = Names("windows", *packed(s.sizes.conv1), x)
        steps = [_windows(s, early), convolve(windows(s), names)]
    for block in blocks(s):
        first, second = (layer for layer, of in layers(s) if of == block)
        steps.append(convolve(first, Names(x, *packed(block.conv1), inner)))
        # each residual element is at the place where its sum is stored
        y = free if block.downsample else x
        residual = "" if block.downsample else x
        steps.append(convolve(second, Names(inner, *packed(block.conv2), y, residual, x, block.conv1.H)))
        x, free = (free, x) if block.downsample else (x, free)
    return [*steps, *_head(s, x, early)]


def _moments(s: ResNetShape) -> tuple[str, str]:
    """The names of mean and deviation if pixels are bytes; otherwise buffers that are not read."""
    return ("mean", "deviation") if s.dtype == "uint8" else (packed(s.sizes.conv1)[1],) * 2


def _windows(s: ResNetShape, early: bool) -> Launch:
    count = s.N * s.image**2 * STEP // 8  # a thread processes eight channels
    args = ("images", *_moments(s), "windows", np.int64(count), s.channels, s.image)
    return Launch("take_windows", (ceil_div(count, THREADS),), (THREADS,), args, early=early)


def _stem(s: ResNetShape, y: str, early: bool) -> Launch:
    part, sizes = stem_of(s), s.sizes
    conv, side = sizes.conv1, sizes.pooled
    args = ("images", *_moments(s), *packed(conv), y, s.channels, s.image, conv.P, side, wide(conv.K))
    if in_strips(s):
        parts = ceil_div(conv.P // STRIP_ROWS, strip_steps(s))
        shape = (ceil_div(side, STRIP_COLUMNS) * parts, s.N, wide(conv.K) // STEM_COLUMNS)
        return Launch("stem_in_strips", shape, (STRIP_THREADS,), args, early=early)
    grid = (part.count(s), s.N, wide(conv.K) // STEM_COLUMNS)
    block = (part.warpgroups * 128,)
    return Launch("stem_and_pool", grid, block, args, part.shared_bytes, early=early)


def _head(s: ResNetShape, x: str, early: bool) -> list[Launch]:
    last = s.sizes.all_blocks[-1].conv2
    pixels, C, classes = last.P**2, wide(last.K), ceil_div(s.classes, THREADS // 32)  # a warp for each
    weights = "fc.weight" if C == last.K else "fc_wide"
    if s.N <= FEW_IMAGES:
        one = (x, weights, "fc.bias", "scores", pixels, C, s.classes)
        return [Launch("head", (classes, s.N), (THREADS,), one, C * 4, early=early)]
    args = ("features", weights, "fc.bias", "scores", s.N, C, s.classes, HEAD_IMAGES)
    grid = (classes, ceil_div(s.N, HEAD_IMAGES))
    return [
        Launch("take_means", (C // 64, s.N), (THREADS,), (x, "features", pixels, C), early=early),
        Launch("score", grid, (THREADS,), args, early=early),
    ]


def fields(tiles: Iterable[implicit.Tile], early: bool) -> dict[str, Any]:
    """Return the fields of `Variant` for a rung that launches these kernels, except for parent and idea.

    Parameters
    ----------
    tiles
        The tiles to choose from for each layer.
    early
        Whether a kernel may begin before the previous one has ended.
    """
    tiles = tuple(tiles)
    return {
        "op": "resnet",
        "plan": lambda s: plan(s, tiles, early),
        "setup": setup,
        "scratch": scratch,
        "defines": lambda s: kernels(s, tiles),
        "refuses": refuses,
        "precision": "fp16",
        "min_arch": 90,
    }


def late(tiles: Iterable[implicit.Tile]) -> tuple[implicit.Tile, ...]:
    """Return the tiles whose blocks do not share steps."""
    return tuple(tile for tile in tiles if tile.split == 1)
