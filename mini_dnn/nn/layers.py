"""Layers: forward and backward passes in NumPy, in float32 or float64.

A forward pass with ``training=True`` keeps what the backward pass uses up: `Layer.backward` takes dy,
the gradient of the loss by the layer's output, stores those by the parameters and returns dx.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import Layer, Parameter, Shape, he_normal
from mini_dnn.nn.numpy_conv import conv2d_backward_input, conv2d_backward_weight, conv2d_forward
from mini_dnn.nn.numpy_pool import max_pool_backward, max_pool_forward

Convolve = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (x, w) -> y, a new array
Multiply = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (x, w) -> x wᵀ, a new array

__all__ = ["Conv2d", "Flatten", "Layer", "Linear", "MaxPool2d", "Parameter", "ReLU", "Shape", "Softmax"]


class Conv2d(Layer):
    """Valid convolution (cross-correlation) with stride 1 and no bias.

    Parameters
    ----------
    in_channels, out_channels
        C and M.
    kernel_size
        R and S, the rows and columns of a filter.
    rng
        Draws the initial filters.
    dtype
        Of the filters: float32 or float64.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, int],
        rng: np.random.Generator,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        self.weight = he_normal(rng, (out_channels, in_channels, *kernel_size), dtype)
        self.convolve: Convolve = conv2d_forward  # replace to run the forward pass elsewhere

    def __repr__(self) -> str:
        M, C, R, S = self.weight.value.shape
        return f"Conv2d({C} -> {M}, {R}x{S})"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, C, H, W) to (N, M, H - R + 1, W - S + 1)."""
        M, C, R, S = self.weight.value.shape
        if len(shape) != 4 or shape[1] != C:
            raise ShapeError(f"{self!r} takes (N, {C}, H, W); found {shape}")
        N, _, H, W = shape
        if R > H or S > W:
            raise ShapeError(
                f"the filter {R} x {S} is larger than the image {H} x {W}; a valid convolution needs R <= H "
                "and S <= W: pad the image or take a smaller filter"
            )
        return (N, M, H - R + 1, W - S + 1)

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, C, H, W) to (N, M, P, Q), through `convolve`."""
        self.output_shape(x.shape)
        if training:
            self._saved = x
        return self.convolve(x, self.weight.value)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradient of the filters, return dx."""
        self.backward_parameters(dy)
        R, S = self.weight.value.shape[2:]
        return conv2d_backward_input(self.weight.value, dy, dy.shape[2] + R - 1, dy.shape[3] + S - 1)

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the gradient of the filters."""
        R, S = self.weight.value.shape[2:]
        self.weight.grad = conv2d_backward_weight(self._take_saved(), dy, R, S)

    def parameters(self) -> dict[str, Parameter]:
        """``weight`` (M, C, R, S)."""
        return {"weight": self.weight}


class ReLU(Layer):
    """max(x, 0), elementwise."""

    def __repr__(self) -> str:
        return "ReLU"

    def output_shape(self, shape: Shape) -> Shape:
        """Any shape, kept."""
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """Clear what is negative, in place with ``overwrite``."""
        y = np.maximum(x, 0, out=x if overwrite else None)
        if training:
            self._saved = y > 0
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Let through dy where x was positive; the gradient at 0 is 0."""
        return dy * self._take_saved()


class MaxPool2d(Layer):
    """Maxima of square windows that do not overlap.

    Parameters
    ----------
    size
        Rows and columns of a window, and the stride.
    ceil_mode
        Whether windows that the lower and right edges cut short count (34 by 4 gives 9, else 8).
    """

    def __init__(self, size: int, ceil_mode: bool = False) -> None:
        self.size = size
        self.ceil_mode = ceil_mode

    def __repr__(self) -> str:
        return f"MaxPool2d({self.size}x{self.size}{', ceil' if self.ceil_mode else ''})"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, C, H, W) to (N, C, P, Q)."""
        least = 1 if self.ceil_mode else self.size
        if len(shape) != 4 or min(shape[2:]) < least:
            raise ShapeError(f"{self!r} takes (N, C, H, W) with H and W >= {least}; found {shape}")
        extra = self.size - 1 if self.ceil_mode else 0
        return shape[0], shape[1], (shape[2] + extra) // self.size, (shape[3] + extra) // self.size

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, C, H, W) to (N, C, P, Q)."""
        y = max_pool_forward(x, self.size, *self.output_shape(x.shape)[2:])
        if training:
            self._saved = x, y
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Send each dy to its window's maximum, of equal ones to one only."""
        x, y = self._take_saved()
        return max_pool_backward(x, y, dy, self.size)


class Flatten(Layer):
    """All axes but the first into one."""

    def __repr__(self) -> str:
        return "Flatten"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, ...) to (N, features)."""
        if len(shape) < 2:
            raise ShapeError(f"{self!r} takes (N, ...) of two or more axes; found {shape}")
        return shape[0], int(np.prod(shape[1:]))

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, ...) to (N, features), a view where x is contiguous."""
        if training:
            self._saved = x.shape
        return x.reshape(self.output_shape(x.shape))

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Undo the reshaping."""
        return dy.reshape(self._take_saved())


class Linear(Layer):
    """y = x Wᵀ + b, for each line of x.

    Parameters
    ----------
    in_features, out_features
        Length of a line of x, and of y.
    rng
        Draws the initial weights; the bias starts at 0.
    dtype
        Of weights and bias: float32 or float64.
    gain
        Variance of the initial weights, times ``in_features``.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        rng: np.random.Generator,
        dtype: npt.DTypeLike = np.float32,
        gain: float = 2.0,
    ) -> None:
        self.weight = he_normal(rng, (out_features, in_features), dtype, gain)
        self.bias = Parameter.of(np.zeros(out_features, dtype))
        self.multiply: Multiply = _multiply  # replace to run the forward pass elsewhere

    def __repr__(self) -> str:
        outputs, inputs = self.weight.value.shape
        return f"Linear({inputs} -> {outputs})"

    def output_shape(self, shape: Shape) -> Shape:
        """(..., in_features) to (..., out_features)."""
        outputs, inputs = self.weight.value.shape
        if len(shape) < 2 or shape[-1] != inputs:
            raise ShapeError(f"{self!r} takes (N, {inputs}), or more axes before the last; found {shape}")
        return *shape[:-1], outputs

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(..., in_features) to (..., out_features), through `multiply`, which takes and gives matrices."""
        shape = self.output_shape(x.shape)
        lines = x.reshape(-1, x.shape[-1])
        if training:
            self._saved = lines
        return (self.multiply(lines, self.weight.value) + self.bias.value).reshape(shape)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of weight and bias, return dx."""
        self.backward_parameters(dy)
        return dy @ self.weight.value

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the gradients of weight and bias."""
        lines = dy.reshape(-1, dy.shape[-1])
        self.weight.grad = lines.T @ self._take_saved()
        self.bias.grad = lines.sum(axis=0)

    def parameters(self) -> dict[str, Parameter]:
        """``weight`` (out_features, in_features) and ``bias`` (out_features,)."""
        return {"weight": self.weight, "bias": self.bias}


def _multiply(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return np.asarray(x @ w.T)


class Softmax(Layer):
    """exp(x) / sum exp(x) over the last axis: logits to probabilities."""

    def __repr__(self) -> str:
        return "Softmax"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, classes), kept."""
        if len(shape) != 2:
            raise ShapeError(f"{self!r} takes (N, classes); found {shape}")
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """Shift each row by its maximum first, so that no exponential overflows."""
        self.output_shape(x.shape)
        y = np.exp(x - x.max(axis=1, keepdims=True))
        y /= y.sum(axis=1, keepdims=True)
        if training:
            self._saved = y
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Multiply by the Jacobian diag(y) - y yᵀ of each row."""
        y = self._take_saved()
        return y * (dy - (dy * y).sum(axis=1, keepdims=True))
