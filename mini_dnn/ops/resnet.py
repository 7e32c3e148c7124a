"""Residual networks, each as one operation: images in, scores out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from mini_dnn.nn.models.resnet import FASHION, RESNET18, Block, Convolution
from mini_dnn.nn.residual import EPSILON
from mini_dnn.ops.compare import CONFIDENCE, HALF_SUBNORMAL, HALVES, ROUND_OFF
from mini_dnn.ops.conv2d_padded_numpy import convolve
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Arrays
from mini_dnn.ops.resnet_shape import ResNetShape, arrays_of

__all__ = ["OPERATION", "ResNetShape"]

SPREAD = 0.2  # standard deviation of a norm's random bias and mean
ALIKE = 4.0  # how much more errors of neighbours may add up than independent ones
COURSE_BATCHES = (1, 8, 32, 64)
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's channels

Norm = Callable[[Arrays, Convolution, np.ndarray], np.ndarray]
Join = Callable[[np.ndarray, np.ndarray], np.ndarray]


def relu(x: np.ndarray) -> np.ndarray:
    """Replace negative numbers by 0."""
    return np.maximum(x, 0)


def normalised(arrays: Arrays, conv: Convolution, x: np.ndarray) -> np.ndarray:
    """Apply batch norm to ``x (N,K,P,P)`` with the mean and variance from training."""
    gain, shift, mean, variance = (
        arrays[f"{conv.norm}.{name}"].astype(np.float64)[:, None, None]
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / np.sqrt(variance + EPSILON) * gain + shift


def _by_variance(arrays: Arrays, conv: Convolution, x: np.ndarray) -> np.ndarray:
    squared = {
        **arrays,
        f"{conv.norm}.running_var": arrays[f"{conv.norm}.running_var"].astype(np.float64) ** 2,
    }
    return normalised(squared, conv, x)


def _joined(branch: np.ndarray, shortcut: np.ndarray) -> np.ndarray:
    return relu(branch + shortcut)


def pixels(p: ResNetShape, arrays: Arrays) -> np.ndarray:
    """The input of the first convolution."""
    images = arrays["images"].astype(np.float64)
    if p.dtype != "uint8":
        return images
    mean, deviation = (arrays[name].astype(np.float64)[:, None, None] for name in ("mean", "deviation"))
    return (images / 255 - mean) / deviation


def max_pool(x: np.ndarray) -> np.ndarray:
    """Maxima of 3 x 3 windows, stride 2, padding 1."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))[:, :, ::2, ::2]
    found: np.ndarray = windows.max(axis=(4, 5))
    return found


def features(p: ResNetShape, arrays: Arrays, norm: Norm = normalised, join: Join = _joined) -> np.ndarray:
    """The input of the last layer, ``(N, width) float64``: means over the last block's pixels."""

    def layer(conv: Convolution, x: np.ndarray) -> np.ndarray:
        w = arrays[f"{conv.name}.weight"].astype(np.float64)
        return norm(arrays, conv, convolve(x, w, conv.stride, conv.padding))

    def block(at: Block, x: np.ndarray) -> np.ndarray:
        shortcut = layer(at.downsample, x) if at.downsample else x
        return join(layer(at.conv2, relu(layer(at.conv1, x))), shortcut)

    x = relu(layer(p.sizes.conv1, pixels(p, arrays)))
    x = max_pool(x) if p.stem == "imagenet" else x
    for at in p.sizes.all_blocks:
        x = block(at, x)
    found: np.ndarray = x.mean(axis=(2, 3))
    return found


def _scores(arrays: Arrays, found: np.ndarray) -> Arrays:
    return {"scores": found @ arrays["fc.weight"].astype(np.float64).T + arrays["fc.bias"]}


def answer(p: ResNetShape, arrays: Arrays) -> Arrays:
    """The scores in float64."""
    return _scores(arrays, features(p, arrays))


@dataclass(frozen=True)
class _Rounded:
    """Numbers in float64, with the variance of the error that each one has in a precision."""

    x: np.ndarray
    error: np.ndarray

    def joined(self, other: _Rounded, unit: float) -> _Rounded:
        """Return the rounded sum of both."""
        x = self.x + other.x
        return _Rounded(x, self.error + other.error + (unit * x) ** 2)

    def relu(self) -> _Rounded:
        """Apply ReLU. Numbers that are certainly below 0 have no error any more."""
        alive = self.x > -CONFIDENCE * np.sqrt(self.error)
        return _Rounded(relu(self.x), np.where(alive, self.error, 0))


def _layer(p: ResNetShape, arrays: Arrays, conv: Convolution, given: _Rounded, precision: str) -> _Rounded:
    """Compute a convolution and its norm, with the errors of its input, weights, sums and stored results."""
    operand, accumulate = ROUND_OFF[precision]
    w = arrays[f"{conv.name}.weight"].astype(np.float64)
    how = conv.stride, conv.padding
    sums = convolve(given.x, w, *how)
    relative = 2 * operand**2 + conv.C * conv.R**2 * accumulate**2
    error = convolve(relative * given.x**2 + given.error, w**2, *how) + ((operand + accumulate) * sums) ** 2
    gain, variance = (arrays[f"{conv.norm}.{name}"].astype(np.float64) for name in ("weight", "running_var"))
    error *= (gain**2 / (variance + EPSILON))[:, None, None]
    x = normalised(arrays, conv, sums)
    return _Rounded(x, error + ((operand + 4 * accumulate) * x) ** 2)


def bound(p: ResNetShape, arrays: Arrays, precision: str) -> Arrays:
    """The error bound of a score: the roundings of all layers, each of which is amplified by later layers.

    Errors of different elements are assumed to be independent, so that their variances propagate through the
    network like squares. Those of neighbours are not quite independent, because they share their weights: see
    `ALIKE`.
    """
    operand, accumulate = ROUND_OFF[precision]
    unit = operand + 4 * accumulate
    x = pixels(p, arrays)
    now = _layer(p, arrays, p.sizes.conv1, _Rounded(x, (unit * x) ** 2), precision).relu()
    if p.stem == "imagenet":
        now = _Rounded(max_pool(now.x), max_pool(now.error))
    for at in p.sizes.all_blocks:
        inner = _layer(p, arrays, at.conv1, now, precision).relu()
        shortcut = _layer(p, arrays, at.downsample, now, precision) if at.downsample else now
        now = _layer(p, arrays, at.conv2, inner, precision).joined(shortcut, unit).relu()
    found = now.x.mean(axis=(2, 3))
    error = np.sqrt(now.error).mean(axis=(2, 3)) + unit * found
    w = arrays["fc.weight"].astype(np.float64)
    products = np.sqrt((error**2 + w.shape[1] * (accumulate * found) ** 2) @ (w**2).T)
    scores = np.abs(_scores(arrays, found)["scores"]) + np.abs(arrays["fc.bias"])
    off = ALIKE * CONFIDENCE * products + unit * scores + HALF_SUBNORMAL * (precision in HALVES)
    return {"scores": off + np.finfo(np.float32).tiny}


def draw(p: ResNetShape, rng: np.random.Generator) -> Arrays:
    """Noise, the initial weights of a training, and norms that are not the identity."""
    images = rng.integers(0, 256, p.arrays["images"].shape, np.uint8)
    found: dict[str, np.ndarray] = {"images": images}
    if p.dtype == "uint8":
        chosen = np.arange(p.channels) % 3
        found |= {
            "mean": np.array(MEAN, np.float32)[chosen],
            "deviation": np.array(DEVIATION, np.float32)[chosen],
        }
    else:
        found["images"] = ((images / np.float32(255) - 0.5) * 4).astype(p.arrays["images"].dtype)
    for name, shape in p.weights.items():
        value = rng.standard_normal(shape, np.float32)
        if len(shape) > 1:
            value *= np.float32(np.sqrt(2 / np.prod(shape[1:])))
        elif name.endswith("running_var"):
            value = rng.uniform(0.5, 2, shape).astype(np.float32)
        elif name.endswith("bn2.weight"):
            value = np.float32(0.5) + np.float32(SPREAD) * value
        elif name.endswith(".weight"):
            value = 1 + np.float32(SPREAD) * value
        else:
            value *= np.float32(SPREAD)
        found[name] = value
    return found


def mistakes(p: ResNetShape, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Results of typical mistakes."""

    def other(norm: Norm = normalised, join: Join = _joined) -> Arrays:
        return _scores(arrays, features(p, arrays, norm, join))

    yield "batch norm divides by the variance, and not by its root", other(_by_variance)
    yield "the residuals are left out", other(join=lambda branch, shortcut: relu(branch))
    words = "residuals are added after ReLU, and not before it"
    yield words, other(join=lambda branch, shortcut: relu(branch) + shortcut)
    yield "ReLU after a block is left out", other(join=lambda branch, shortcut: branch + shortcut)
    found = features(p, arrays)
    yield (
        "the bias of the last layer is left out",
        _scores({**arrays, "fc.bias": 0 * arrays["fc.bias"]}, found),
    )
    if (last := p.sizes.all_blocks[-1].conv2.P) > 1:
        yield "features are sums over pixels, and not means", _scores(arrays, found * last**2)
    if p.dtype == "uint8":
        plain = {**arrays, "mean": 0 * arrays["mean"], "deviation": 0 * arrays["deviation"] + 1}
        yield "bytes are not normalised", answer(p, plain)


OPERATION = Operation(
    name="resnet",
    about="a residual network of basic blocks: images in, scores out",
    problem=ResNetShape,
    answer=answer,
    bound=bound,
    check=(  # sizes and widths that no tile divides, both stems, each type of images
        ResNetShape(2, 23, 3, "imagenet", "8-16-16-24", "1-2-1-1", 7, "fp16"),
        ResNetShape(1, 8, 1, "small", "8-8-16-16", "1-1-1-1", 3),
        ResNetShape(3, 11, 1, "small", "8-16-24-40", "2-1-1-2", 10, "uint8"),
    ),
    spare=(  # widths that tiles divide
        ResNetShape(1, 33, 3, "imagenet", "64-64-128-64", "1-1-1-1", 10, "uint8"),
        ResNetShape(2, 40, 3, "imagenet", "64-64-64-128", "2-1-1-1", 9, "fp16"),
        ResNetShape(3, 19, 1, "imagenet", "64-64-64-64", "1-1-1-1", 5),
    ),
    course={
        **{f"batch-{n}": ResNetShape.like(RESNET18, n, "fp16") for n in COURSE_BATCHES},
        "fashion-mnist": ResNetShape.like(FASHION, 10_000),
    },
    of=arrays_of,
    traits={
        "the stem of ImageNet (with a pool)": lambda p: p.stem == "imagenet",
        "several blocks in a stage": lambda p: max(p.sizes.blocks) > 1,
        "images of bytes": lambda p: p.dtype == "uint8",
        "widths that 16 does not divide": lambda p: any(width % 16 for width in p.sizes.widths),
    },
    draw=draw,
    mistakes=mistakes,
    axes={"n": "image", "k": "class"},
    cure="compare layer by layer with features() of mini_dnn/ops/resnet.py, which runs in float64",
    default="networks/resnet18/v3_shared",
    preferred=("networks/resnet18/v6_graph", "networks/resnet18/v4_tensor_cores"),
    baseline="networks/resnet18/v0_transfers",
)
