"""Plans of residual networks on kernels of ``mini_dnn/implicit.cuh``, ``stem.cuh`` and ``residual.cuh``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from mini_dnn.nn.models.resnet import NORM_ARRAYS, Block, Convolution
from mini_dnn.ops.resnet_shape import ResNetShape
from mini_dnn.plans import implicit, implicit_rows
from mini_dnn.plans.implicit import Layer, Names
from mini_dnn.variant import Array, Launch, ceil_div

THREADS = 256  # of a block, in what is small
BITS = {"fp32": 32, "fp16": 16, "uint8": 8}  # of a pixel
MOST_CHANNELS = 4  # of an image: a pixel is four halves
STEM_K, STEM_COLUMNS = 7 * 32, 64
FEW_IMAGES = 2  # whose means each block takes again
HEAD_IMAGES = 4  # of a block, where there are more
SLOTS = ("first", "second", "third")  # what layers hand on takes turns in them


@dataclass(frozen=True)
class Stem:
    """What a block of the first kernel makes, and how many blocks a multiprocessor has."""

    rows: int
    columns: int
    warpgroups: int
    blocks: int

    @property
    def shared_bytes(self) -> int:
        """As `stem::Tile` counts them."""
        rows, units = 2 * self.rows + 1, 2 * self.columns + 4
        tiles = ceil_div(rows * units, 64)
        plane = ceil_div(tiles * 64 + 3 * units + 4, 8) * 8
        return 7 * 4 * 1024 + 2 * plane * 16 + tiles * 64 * 128

    def count(self, s: ResNetShape) -> int:
        """Blocks of an image."""
        return ceil_div(s.sizes.pooled, self.rows) * ceil_div(s.sizes.pooled, self.columns)


LARGE, SMALL = Stem(7, 14, 4, 2), Stem(2, 14, 3, 2)


def stem_of(s: ResNetShape) -> Stem:
    """Large parts compute less twice; small ones give work to all multiprocessors."""
    return LARGE if s.N * LARGE.count(s) >= implicit.SMS else SMALL


def refuses(s: ResNetShape) -> str:
    """What the kernels do not take."""
    if s.stem != "imagenet":
        return f"its stem is 7 x 7 with a maximum of 3 x 3, and this network's is {s.stem!r}"
    if s.channels > MOST_CHANNELS:
        return f"an image has at most {MOST_CHANNELS} channels, and these have {s.channels}"
    return next((fault for layer, _ in layers(s) if (fault := layer.fault)), "")


def layers(s: ResNetShape) -> list[tuple[Layer, Block]]:
    """Two of each block: its downsample is a part of the second."""
    found = []
    for block in s.sizes.all_blocks:
        inner = s.layer(block.conv1, "fp16", "nhwc", relu=True)
        outer = s.layer(block.conv2, "fp16", "nhwc", relu=True, residual=block.downsample is None)
        down = block.downsample
        found += [(Layer(inner), block), (Layer(outer, down.C, down.stride) if down else Layer(outer), block)]
    return found


def in_rows(layer: Layer) -> bool:
    """Whether its pixels come once."""
    return not layer.more_C and implicit_rows.pays(layer.shape)


def kernels(s: ResNetShape, tiles: Iterable[implicit.Tile]) -> dict[str, int]:
    """Definitions: which tiles there are kernels for, the stem's parts, and bits of a pixel."""
    chosen = {implicit.choose(layer, tuple(tiles)) for layer, _ in layers(s) if not in_rows(layer)}
    stem = stem_of(s)
    return {
        **{f"HAS_{tile.kernel.upper()}": 1 for tile in implicit.TILES if tile in chosen},
        **({"HAS_CONVOLVE_ROWS": 1} if any(in_rows(layer) for layer, _ in layers(s)) else {}),
        **{"IMAGES": BITS[s.dtype], "STEM_ROWS": stem.rows, "STEM_COLUMNS": stem.columns},
        "STEM_WARPGROUPS": stem.warpgroups,
        "STEM_BLOCKS": stem.blocks,
    }


def packed(conv: Convolution) -> tuple[str, str]:
    """Names of a convolution's weights in halves, and of its bias, with batch norm in both."""
    name = conv.name.replace(".", "_")
    return f"{name}_half", f"{name}_bias"


def scratch(s: ResNetShape) -> dict[str, Any]:
    """What layers hand on, and weights as the kernels take them."""
    sizes = s.sizes
    widest = max(sizes.widths[0] * sizes.pooled**2, *(b.conv1.K * b.conv1.P**2 for b in sizes.all_blocks))
    found: dict[str, Any] = {name: Array((s.N * widest,), "float16") for name in SLOTS}
    shapes = {sizes.conv1: STEM_K}
    for layer, block in layers(s):
        shapes[block.conv1 if block.conv1 not in shapes else block.conv2] = layer.line
    for conv, line in shapes.items():
        weights, bias = packed(conv)
        found |= {weights: Array((conv.K, line), "float16"), bias: (conv.K,)}
    return found | {"features": (s.N, sizes.widths[-1])}


def setup(s: ResNetShape) -> list[Launch]:
    """Batch norm into weights and bias, and those to halves in the kernels' order."""

    def given(conv: Convolution) -> list[str]:
        return [f"{conv.name}.weight", *(f"{conv.norm}.{name}" for name in NORM_ARRAYS)]

    def fold(conv: Convolution, into: Convolution, line: int, offset: int) -> Launch:
        count = conv.K * conv.C * conv.R**2
        numbers = (conv.K, conv.C, conv.R, line, offset, int(offset > 0))
        args: tuple[str | int, ...] = (*given(conv), *packed(into), *numbers)
        return Launch("fold", (ceil_div(count, THREADS),), (THREADS,), args)

    stem = s.sizes.conv1
    args: tuple[str | int, ...] = (*given(stem), *packed(stem), stem.K, stem.C)
    steps = [Launch("fold_stem", (ceil_div(stem.K * STEM_K, THREADS),), (THREADS,), args)]
    for block in s.sizes.all_blocks:
        down = block.downsample
        own = block.conv2.C * block.conv2.R**2
        line = own + (down.C if down else 0)
        steps.append(fold(block.conv1, block.conv1, block.conv1.C * block.conv1.R**2, 0))
        steps.append(fold(block.conv2, block.conv2, line, 0))
        steps += [fold(down, block.conv2, line, own)] if down else []
    return steps


def plan(s: ResNetShape, tiles: Iterable[implicit.Tile], early: bool) -> list[Launch]:
    """The stem, two launches a block, and the head."""
    tiles = tuple(tiles)
    x, inner, free = SLOTS
    steps = [_stem(s, x, early)]
    for block in s.sizes.all_blocks:
        first, second = (layer for layer, of in layers(s) if of == block)
        names = Names(x, *packed(block.conv1), inner)
        # what is added to an element lies where its sum goes
        y = free if block.downsample else x
        after = Names(inner, *packed(block.conv2), y, "" if block.downsample else x, x, block.conv1.H)
        for layer, of in ((first, names), (second, after)):
            tile = implicit.choose(layer, tiles)
            if in_rows(layer):
                steps.append(implicit_rows.launch(layer.shape, of, "convolve_rows", early))
            else:
                steps.append(implicit.launch(layer, tile, of, tile.kernel, early))
        x, free = (free, x) if block.downsample else (x, free)
    return [*steps, *_head(s, x, early)]


def _stem(s: ResNetShape, y: str, early: bool) -> Launch:
    part, sizes = stem_of(s), s.sizes
    conv, side = sizes.conv1, sizes.pooled
    norm = ("mean", "deviation") if s.dtype == "uint8" else (packed(conv)[1],) * 2  # what is not read
    args = ("images", *norm, *packed(conv), y, s.channels, s.image, conv.P, side, conv.K)
    grid = (part.count(s), s.N, conv.K // STEM_COLUMNS)
    block = (part.warpgroups * 128,)
    return Launch("stem_and_pool", grid, block, args, part.shared_bytes, early=early)


def _head(s: ResNetShape, x: str, early: bool) -> list[Launch]:
    last = s.sizes.all_blocks[-1].conv2
    pixels, C, classes = last.P**2, last.K, ceil_div(s.classes, THREADS // 32)  # a warp for each
    if s.N <= FEW_IMAGES:
        one = (x, "fc.weight", "fc.bias", "scores", pixels, C, s.classes)
        return [Launch("head", (classes, s.N), (THREADS,), one, C * 4, early=early)]
    args = ("features", "fc.weight", "fc.bias", "scores", s.N, C, s.classes, HEAD_IMAGES)
    grid = (classes, ceil_div(s.N, HEAD_IMAGES))
    return [
        Launch("take_means", (C // 64, s.N), (THREADS,), (x, "features", pixels, C), early=early),
        Launch("score", grid, (THREADS,), args, early=early),
    ]


def late(tiles: Iterable[implicit.Tile]) -> tuple[implicit.Tile, ...]:
    """Those whose blocks do not share steps."""
    return tuple(tile for tile in tiles if tile.split == 1)
