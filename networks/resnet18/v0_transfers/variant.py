"""networks/resnet18/v0_transfers: each layer a kernel, and its result goes to the host and back."""

from collections.abc import Iterator

import numpy as np

from mini_dnn.nn.models.resnet import NORM_ARRAYS, Convolution
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.variant import Call, Launch, RoundTrip, Step, Variant, ceil_div

THREADS = 256  # per block
CONVOLUTION = "conv2d_padded/v0_naive"  # any variant of it that takes fp32 nchw
BITS = {"fp32": 32, "fp16": 16, "uint8": 8}  # of a pixel


def scratch(s: ResNetShape) -> dict[str, tuple[int, ...]]:
    """Images in fp32, the map of each convolution, and what the last layers take."""
    found = {conv.name: (s.N, conv.K, conv.P, conv.P) for conv in s.sizes.convolutions}
    if s.dtype != "fp32":
        found["pixels"] = (s.N, s.channels, s.image, s.image)
    if s.stem == "imagenet":
        found["pooled"] = (s.N, s.sizes.conv1.K, s.sizes.pooled, s.sizes.pooled)
    return {**found, "features": (s.N, s.sizes.widths[-1]), "zeros": (max(s.sizes.widths),)}


def each(kernel: str, count: int, *args: str | int, at: int = 1) -> Launch:
    """A thread for each of so many elements; ``count`` goes where the kernel takes it."""
    everything = (*args[:at], np.int64(count), *args[at:])
    return Launch(kernel, (ceil_div(count, THREADS),), (THREADS,), everything)


def each_warp(kernel: str, count: int, *args: str | int) -> Launch:
    """A warp for each of them."""
    return Launch(kernel, (ceil_div(count * 32, THREADS),), (THREADS,), args)


def setup(s: ResNetShape) -> list[Step]:
    """A convolution's bias is zero: the norm behind it has one."""
    return [each("clear", max(s.sizes.widths), "zeros")]


def layer(s: ResNetShape, conv: Convolution, x: str) -> Iterator[tuple[Step | Call, str]]:
    """A convolution of the buffer ``x`` and its norm."""
    arrays = {"x": x, "w": f"{conv.name}.weight", "bias": "zeros", "y": conv.name}
    yield Call(CONVOLUTION, s.layer(conv), arrays), conv.name
    norm = [f"{conv.norm}.{name}" for name in NORM_ARRAYS]
    yield each("batch_norm", s.N * conv.K * conv.P**2, conv.name, *norm, conv.K, conv.P**2, at=5), conv.name


def layers(s: ResNetShape) -> Iterator[tuple[Step | Call, str]]:
    """Each step, and the buffer that it leaves its result in."""
    conv, x = s.sizes.conv1, "images"
    if s.dtype != "fp32":
        moments = ("mean", "deviation") if s.dtype == "uint8" else ("zeros", "zeros")  # or what is not read
        count = s.N * s.channels * s.image**2
        yield each("convert", count, x, *moments, "pixels", s.channels, s.image**2, at=4), "pixels"
        x = "pixels"
    yield from layer(s, conv, x)
    yield each("relu", s.N * conv.K * conv.P**2, x := conv.name), x
    if s.stem == "imagenet":
        count = s.N * conv.K * s.sizes.pooled**2
        yield each("max_pool", count, x, "pooled", conv.P, s.sizes.pooled, at=2), "pooled"
        x = "pooled"
    for block in s.sizes.all_blocks:
        y, shortcut = block.conv2.name, x
        count = s.N * block.conv2.K * block.conv2.P**2
        yield from layer(s, block.conv1, x)
        yield each("relu", count, block.conv1.name), block.conv1.name
        yield from layer(s, block.conv2, block.conv1.name)
        if block.downsample:
            shortcut = block.downsample.name
            yield from layer(s, block.downsample, x)
        yield each("add", count, y, shortcut, at=2), y
        yield each("relu", count, y), y
        x = y
    width, pixels = s.sizes.widths[-1], s.sizes.all_blocks[-1].conv2.P ** 2
    yield each_warp("average_pool", s.N * width, x, "features", s.N * width, pixels), "features"
    scores = ("features", "fc.weight", "fc.bias", "scores", s.N * s.classes, width, s.classes)
    yield each_warp("linear", s.N * s.classes, *scores), "scores"


def plan(s: ResNetShape) -> list[Step | Call]:
    """The layers in the order of the network, each with the way to the host and back; scores stay."""
    steps = [(step, RoundTrip(buffer)) for step, buffer in layers(s)]
    return [part for pair in steps for part in pair][:-1]


VARIANT = Variant(
    op="resnet",
    plan=plan,
    setup=setup,
    scratch=scratch,
    defines=lambda s: {"IMAGES": BITS[s.dtype]},
    idea="each layer on the GPU by itself: its result goes to the host, and comes back for the next one",
)
