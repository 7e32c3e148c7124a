"""Plans of residual networks in fp32, layer by layer, with kernels of ``networks/resnet18/v0_transfers``."""

from __future__ import annotations

from collections.abc import Iterator

from mini_dnn.nn.models.resnet import NORM_ARRAYS, Convolution
from mini_dnn.ops.resnet_shape import ResNetShape
from mini_dnn.plans.elements import BITS, each, each_warp
from mini_dnn.variant import Call, Step


def scratch(s: ResNetShape) -> dict[str, tuple[int, ...]]:
    """The images in fp32, the output of each convolution, and the buffers of the last layers."""
    found = {conv.name: (s.N, conv.K, conv.P, conv.P) for conv in s.sizes.convolutions}
    if s.dtype != "fp32":
        found["pixels"] = (s.N, s.channels, s.image, s.image)
    if s.stem == "imagenet":
        found["pooled"] = (s.N, s.sizes.conv1.K, s.sizes.pooled, s.sizes.pooled)
    return {**found, "features": (s.N, s.sizes.widths[-1]), "zeros": (max(s.sizes.widths),)}


def setup(s: ResNetShape) -> list[Step]:
    """The bias of a convolution is zero, because the batch norm that follows has one."""
    return [each("clear", max(s.sizes.widths), "zeros")]


def defines(s: ResNetShape) -> dict[str, int]:
    """The type of a pixel."""
    return {"IMAGES": BITS[s.dtype]}


def layers(s: ResNetShape, convolution: str) -> Iterator[tuple[Step | Call, str]]:
    """Yield each step, and the buffer with its result.

    Parameters
    ----------
    s
        The network and its batch size.
    convolution
        The variant of ``conv2d_padded`` that computes all convolutions. It must support fp32 ``nchw``.
    """
    conv, x = s.sizes.conv1, "images"
    if s.dtype != "fp32":
        # For float pixels any buffers will do: they are not read
        moments = ("mean", "deviation") if s.dtype == "uint8" else ("zeros", "zeros")
        count = s.N * s.channels * s.image**2
        yield each("convert", count, x, *moments, "pixels", s.channels, s.image**2, at=4), "pixels"
        x = "pixels"
    yield from _layer(s, conv, x, convolution)
    yield each("relu", s.N * conv.K * conv.P**2, x := conv.name), x
    if s.stem == "imagenet":
        count = s.N * conv.K * s.sizes.pooled**2
        yield each("max_pool", count, x, "pooled", conv.P, s.sizes.pooled, at=2), "pooled"
        x = "pooled"
    for block in s.sizes.all_blocks:
        y, shortcut = block.conv2.name, x
        count = s.N * block.conv2.K * block.conv2.P**2
        yield from _layer(s, block.conv1, x, convolution)
        yield each("relu", count, block.conv1.name), block.conv1.name
        yield from _layer(s, block.conv2, block.conv1.name, convolution)
        if block.downsample:
            shortcut = block.downsample.name
            yield from _layer(s, block.downsample, x, convolution)
        yield each("add", count, y, shortcut, at=2), y
        yield each("relu", count, y), y
        x = y
    width, pixels = s.sizes.widths[-1], s.sizes.all_blocks[-1].conv2.P ** 2
    yield each_warp("average_pool", s.N * width, x, "features", s.N * width, pixels), "features"
    scores = ("features", "fc.weight", "fc.bias", "scores", s.N * s.classes, width, s.classes)
    yield each_warp("linear", s.N * s.classes, *scores), "scores"


def steps(s: ResNetShape, convolution: str) -> list[Step | Call]:
    """The layers in the order of the network."""
    return [step for step, _ in layers(s, convolution)]


def _layer(s: ResNetShape, conv: Convolution, x: str, convolution: str) -> Iterator[tuple[Step | Call, str]]:
    """Yield a convolution of the buffer ``x`` and its batch norm."""
    arrays = {"x": x, "w": f"{conv.name}.weight", "bias": "zeros", "y": conv.name}
    yield Call(convolution, s.layer(conv), arrays), conv.name
    norm = [f"{conv.norm}.{name}" for name in NORM_ARRAYS]
    yield each("batch_norm", s.N * conv.K * conv.P**2, conv.name, *norm, conv.K, conv.P**2, at=5), conv.name
