"""Layers: forward and backward passes in NumPy, in float32 or float64.

A forward pass with ``training=True`` stores what the backward pass needs. `Layer.backward` receives dy, the
gradient of the loss with respect to the layer's output. It stores the gradients with respect to the
parameters and returns dx.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import Layer, Parameter, Shape, he_normal
from mini_dnn.nn.numpy_conv import conv2d_backward_input, conv2d_backward_weight, conv2d_forward
from mini_dnn.nn.numpy_padded import (
    output_size,
    padded_backward_input,
    padded_backward_weight,
    padded_forward,
)

Convolve = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (x, w) -> y, a new array
Multiply = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (x, w) -> x wᵀ, a new array

__all__ = ["Conv2d", "Flatten", "Layer", "Linear", "Parameter", "ReLU", "Shape", "Softmax"]


class Conv2d(Layer):
    """Convolution (cross-correlation).

    With stride 1 and without padding, it runs in `mini_dnn.nn.numpy_conv`, otherwise in
    `mini_dnn.nn.numpy_padded`, whose results have the channels last in memory.

    Parameters
    ----------
    in_channels, out_channels
        C and M.
    kernel_size
        R and S, the rows and columns of a filter.
    rng
        The generator for the initial filters. A bias is initialised with 0.
    dtype
        The type of the filters: float32 or float64.
    stride
        The distance between windows, in rows and columns.
    padding
        Zeros on each side; fewer than R and S.
    bias
        Whether to add a number to each output channel.

    Raises
    ------
    ShapeError
        The stride or the padding is not valid.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, int],
        rng: np.random.Generator,
        dtype: npt.DTypeLike = np.float32,
        stride: int = 1,
        padding: int = 0,
        bias: bool = False,
    ) -> None:
        if stride < 1 or not 0 <= padding < min(kernel_size):
            raise ShapeError(
                f"a convolution has a stride of 1 or more and a padding less than its filter's sides; found "
                f"stride {stride}, padding {padding}, filter {kernel_size[0]} x {kernel_size[1]}"
            )
        self.stride, self.padding = stride, padding
        self.weight = he_normal(rng, (out_channels, in_channels, *kernel_size), dtype)
        self.bias = Parameter.of(np.zeros(out_channels, dtype)) if bias else None
        # Replace to run the forward pass elsewhere.
        self.convolve: Convolve = conv2d_forward if self.is_plain else self._convolve

    def __repr__(self) -> str:
        M, C, R, S = self.weight.value.shape
        stride = f", stride {self.stride}" if self.stride != 1 else ""
        padding = f", padding {self.padding}" if self.padding else ""
        return f"Conv2d({C} -> {M}, {R}x{S}{stride}{padding}{', bias' if self.bias else ''})"

    @property
    def is_plain(self) -> bool:
        """Whether the stride is 1 and the padding 0."""
        return self.stride == 1 and self.padding == 0

    def output_shape(self, shape: Shape) -> Shape:
        """(N, C, H, W) to (N, M, P, Q), where P = (H + 2 padding - R) / stride + 1, rounded down."""
        M, C, R, S = self.weight.value.shape
        if len(shape) != 4 or shape[1] != C:
            raise ShapeError(f"{self!r} takes (N, {C}, H, W); found {shape}")
        N, _, H, W = shape
        P, Q = output_size((H, W), (R, S), self.stride, self.padding)
        if P < 1 or Q < 1:
            padded = f" with its padding of {self.padding}" if self.padding else ""
            raise ShapeError(
                f"the filter {R} x {S} is larger than the image {H} x {W}{padded}; a valid convolution needs "
                "R <= H and S <= W: pad the image or use a smaller filter"
            )
        return (N, M, P, Q)

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, C, H, W) to (N, M, P, Q), through `convolve`."""
        self.output_shape(x.shape)
        if training:
            self._saved = x
        y = self.convolve(x, self.weight.value)
        if self.bias:
            y += self.bias.value[:, None, None]
        return y

    def _convolve(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return padded_forward(x, w, self.stride, self.padding)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of the filters and of the bias, and return dx."""
        H, W = self._saved.shape[2:] if self._saved is not None else (0, 0)
        self.backward_parameters(dy)
        if self.is_plain:
            return conv2d_backward_input(self.weight.value, dy, H, W)
        return padded_backward_input(self.weight.value, dy, self.stride, self.padding, H, W)

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the gradients of the filters and of the bias."""
        R, S = self.weight.value.shape[2:]
        x = self._take_saved()
        if self.is_plain:
            self.weight.grad = conv2d_backward_weight(x, dy, R, S)
        else:
            self.weight.grad = padded_backward_weight(x, dy, R, S, self.stride, self.padding)
        if self.bias:
            self.bias.grad = dy.sum(axis=(0, 2, 3))

    def parameters(self) -> dict[str, Parameter]:
        """``weight`` (M, C, R, S), and ``bias`` (M,) if there is one."""
        return {"weight": self.weight, **({"bias": self.bias} if self.bias else {})}


class ReLU(Layer):
    """max(x, 0), elementwise."""

    def __repr__(self) -> str:
        return "ReLU"

    def output_shape(self, shape: Shape) -> Shape:
        """Any shape, unchanged."""
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """Replace negative values by 0, in place with ``overwrite``."""
        y = np.maximum(x, 0, out=x if overwrite else None)
        if training:
            self._saved = y > 0
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Return dy where x was positive, and 0 elsewhere. The gradient at 0 is 0."""
        return dy * self._take_saved()


class Flatten(Layer):
    """Merge all axes but the first into one."""

    def __repr__(self) -> str:
        return "Flatten"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, ...) to (N, features)."""
        if len(shape) < 2:
            raise ShapeError(f"{self!r} takes (N, ...) of two or more axes; found {shape}")
        return shape[0], int(np.prod(shape[1:]))

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, ...) to (N, features), a view if x is contiguous."""
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
        The generator for the initial weights. The bias is initialised with 0.
    dtype
        The type of weights and bias: float32 or float64.
    gain
        The variance of the initial weights, multiplied by ``in_features``.
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
        """(..., in_features) to (..., out_features), through `multiply`, a function of matrices."""
        shape = self.output_shape(x.shape)
        lines = x.reshape(-1, x.shape[-1])
        if training:
            self._saved = lines
        return (self.multiply(lines, self.weight.value) + self.bias.value).reshape(shape)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of weight and bias, and return dx."""
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
        """(N, classes), unchanged."""
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
