"""Layers of a residual network: batch norm, layers in a row, and the basic block.

Between layers, the channels of an image are last in memory, see `mini_dnn.nn.numpy_padded`. Axes are still
(N, C, H, W).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import Layer, Parameter, Running, Shape
from mini_dnn.nn.layers import Conv2d, ReLU
from mini_dnn.nn.numpy_padded import channels_last, channels_second

EPSILON = 1e-5  # added to a variance


class BatchNorm2d(Layer):
    """Subtract the mean of each channel, divide by its standard deviation, apply a weight and a bias.

    In training, mean and variance are those of the batch, and running means of both are kept. Otherwise, the
    running means are used. If a batch is processed in parts, each part has its own mean and variance.

    S. Ioffe, C. Szegedy, "Batch Normalization", arXiv:1502.03167.

    Parameters
    ----------
    channels
        C.
    dtype
        Of weight and bias, which start at 1 and 0.
    """

    def __init__(self, channels: int, dtype: npt.DTypeLike = np.float32) -> None:
        self.weight = Parameter.of(np.ones(channels, dtype))
        self.bias = Parameter.of(np.zeros(channels, dtype))
        self.mean = Running.of(np.zeros(channels, dtype))
        self.variance = Running.of(np.ones(channels, dtype))

    def __repr__(self) -> str:
        return f"BatchNorm2d({len(self.bias.value)})"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, C, H, W), kept."""
        channels = len(self.bias.value)
        if len(shape) != 4 or shape[1] != channels:
            raise ShapeError(f"{self!r} takes (N, {channels}, H, W); found {shape}")
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, C, H, W), its channels last in memory; in place with ``overwrite``."""
        self.output_shape(x.shape)
        return channels_second(self._train(x) if training else self._infer(x, overwrite))

    def _infer(self, x: np.ndarray, overwrite: bool) -> np.ndarray:
        scale = self.weight.value / np.sqrt(self.variance.value + self.weight.value.dtype.type(EPSILON))
        last = channels_last(x)
        lines = _lines(last)
        mine = overwrite or not np.may_share_memory(last, x)
        y = np.multiply(lines, _repeated(scale, last), out=lines if mine else None)
        y += _repeated(self.bias.value - self.mean.value * scale, last)
        return y.reshape(last.shape)

    def _train(self, x: np.ndarray) -> np.ndarray:
        last = channels_last(x)
        lines, count = _lines(last), last.size // last.shape[3]
        mean = _sum(lines, last) / count
        normal = lines - _repeated(mean, last)
        variance = _sum(normal * normal, last) / count
        inverse = 1 / np.sqrt(variance + x.dtype.type(EPSILON))
        normal *= _repeated(inverse, last)
        self._saved = normal.reshape(last.shape), inverse
        self.mean.grad = self.mean.value - mean
        self.variance.grad = self.variance.value - variance * x.dtype.type(count / max(1, count - 1))
        y = normal * _repeated(self.weight.value, last)
        y += _repeated(self.bias.value, last)
        return y.reshape(last.shape)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of weight and bias, and return dx."""
        normal, inverse = self._take_saved()
        last = channels_last(dy)
        self._store(last, normal)
        count = last.dtype.type(last.size // last.shape[3])
        scale = self.weight.value * inverse
        dx = _lines(last) * _repeated(scale, last)
        less = _lines(normal) * _repeated(scale * self.weight.grad / count, last)
        less += _repeated(scale * self.bias.grad / count, last)
        dx -= less
        return channels_second(dx.reshape(last.shape))

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the gradients of weight and bias."""
        self._store(channels_last(dy), self._take_saved()[0])

    def _store(self, dy: np.ndarray, normal: np.ndarray) -> None:
        self.weight.grad = _sum(_lines(dy) * _lines(normal), dy)
        self.bias.grad = _sum(_lines(dy), dy)

    def parameters(self) -> dict[str, Parameter]:
        """``weight``, ``bias``, ``running_mean`` and ``running_var`` (C,)."""
        return {
            "weight": self.weight,
            "bias": self.bias,
            "running_mean": self.mean,
            "running_var": self.variance,
        }


def _lines(x: np.ndarray) -> np.ndarray:
    """View (N, H, W, C) as a matrix (N H, W C), because NumPy is slow if the last axis is as short as C."""
    N, H, W, C = x.shape
    return x.reshape(N * H, W * C)


def _repeated(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Repeat values (C,) for each pixel of a line of x (N, H, W, C)."""
    return np.tile(values, x.shape[2])


def _sum(lines: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return sums (C,) of lines of x (N, H, W, C). A product with a vector is five times as fast."""
    return (np.ones(len(lines), lines.dtype) @ lines).reshape(x.shape[2:]).sum(axis=0)


class Row(Layer):
    """A sequence of layers that acts as one layer.

    Parameters
    ----------
    layers
        The layers by name, in the order in which they run.
    """

    def __init__(self, layers: Mapping[str, Layer]) -> None:
        self.layers = dict(layers)

    def __repr__(self) -> str:
        inner = ", ".join(f"{name} {layer!r}" for name, layer in self.layers.items())
        return f"{type(self).__name__}({inner})"

    def inner(self) -> Mapping[str, Layer]:
        """The layers."""
        return self.layers

    def output_shape(self, shape: Shape) -> Shape:
        """The shape of the last layer's output."""
        for layer in self.layers.values():
            shape = layer.output_shape(shape)
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """Run all layers."""
        y = x
        for layer in self.layers.values():
            mine = overwrite or not np.may_share_memory(x, y)
            y = layer.forward(y, training, overwrite=mine and not training)
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of all layers, and return dx."""
        for layer in reversed(self.layers.values()):
            dy = layer.backward(dy)
        return dy


class BasicBlock(Layer):
    """relu(branch(x) + x): two 3×3 convolutions, each with a batch norm, and a shortcut around them.

    If the shape changes, the shortcut is a 1×1 convolution with a batch norm, ``downsample``.

    Parameters
    ----------
    in_channels, out_channels
        C and K.
    stride
        The stride of the first convolution and of the shortcut.
    rng, dtype
        See `Conv2d`.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        stride: int,
        rng: np.random.Generator,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        C, K = in_channels, out_channels
        self.stride = stride
        self.branch = Row(
            {
                "conv1": Conv2d(C, K, (3, 3), rng, dtype, stride, padding=1),
                "bn1": BatchNorm2d(K, dtype),
                "relu": ReLU(),
                "conv2": Conv2d(K, K, (3, 3), rng, dtype, padding=1),
                "bn2": BatchNorm2d(K, dtype),
            }
        )
        self.relu = ReLU()
        self.downsample: Row | None = None
        if stride != 1 or C != K:
            conv = Conv2d(C, K, (1, 1), rng, dtype, stride)
            self.downsample = Row({"0": conv, "1": BatchNorm2d(K, dtype)})

    def __repr__(self) -> str:
        K, C = self.branch.layers["conv1"].parameters()["weight"].value.shape[:2]
        return f"BasicBlock({C} -> {K}{f', stride {self.stride}' if self.stride != 1 else ''})"

    def inner(self) -> Mapping[str, Layer]:
        """``conv1``, ``bn1``, ``relu``, ``conv2``, ``bn2``, and ``downsample`` if there is one."""
        down: Mapping[str, Layer] = {"downsample": self.downsample} if self.downsample else {}
        return {**self.branch.layers, **down}

    def output_shape(self, shape: Shape) -> Shape:
        """(N, C, H, W) to (N, K, P, Q)."""
        return self.branch.output_shape(shape)

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, C, H, W) to (N, K, P, Q)."""
        y = self.branch.forward(x, training)
        y += self.downsample.forward(x, training) if self.downsample else x
        return self.relu.forward(y, training, overwrite=True)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of branch and shortcut, and return dx."""
        dy = self.relu.backward(dy)
        dx = self.branch.backward(dy)
        dx += self.downsample.backward(dy) if self.downsample else dy
        return dx
