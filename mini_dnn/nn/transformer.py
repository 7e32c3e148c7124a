"""Layers of a transformer: layer norm, GELU, multi-head attention and residual branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import pi, sqrt

import numpy as np
import numpy.typing as npt

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import Layer, Parameter, Shape
from mini_dnn.nn.layers import Linear
from mini_dnn.nn.numpy_attention import attention_backward, attention_forward
from mini_dnn.nn.residual import Row

Attend = Callable[[np.ndarray, float], np.ndarray]  # (qkv (N, T, 3, H, d), scale) -> o (N, T, H, d), new

EPSILON = 1e-6  # added to a variance
CUBIC = 0.044715  # of GELU's tanh form


class LayerNorm(Layer):
    """Subtract the mean of each line, divide by its standard deviation, apply a weight and a bias.

    J. L. Ba, J. R. Kiros, G. E. Hinton, "Layer Normalization", arXiv:1607.06450.

    Parameters
    ----------
    width
        The length of a line.
    dtype
        The type of weight and bias, which are initialised with 1 and 0.
    """

    def __init__(self, width: int, dtype: npt.DTypeLike = np.float32) -> None:
        self.weight = Parameter.of(np.ones(width, dtype))
        self.bias = Parameter.of(np.zeros(width, dtype))

    def __repr__(self) -> str:
        return f"LayerNorm({len(self.bias.value)})"

    def output_shape(self, shape: Shape) -> Shape:
        """(..., width), unchanged."""
        width = len(self.bias.value)
        if len(shape) < 2 or shape[-1] != width:
            raise ShapeError(f"{self!r} takes (N, {width}), or more axes before the last; found {shape}")
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(..., width), a new array."""
        self.output_shape(x.shape)
        normal = x - _mean(x)
        inverse = 1 / np.sqrt(_mean(normal * normal) + x.dtype.type(EPSILON))
        normal *= inverse
        if training:
            self._saved = normal, inverse
        y = normal * self.weight.value
        y += self.bias.value
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of weight and bias, and return dx."""
        normal, inverse = self._take_saved()
        self._store(dy, normal)
        dx = dy * self.weight.value
        slope = _mean(dx * normal)
        dx -= _mean(dx)
        dx -= normal * slope
        dx *= inverse
        return dx

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the gradients of weight and bias."""
        self._store(dy, self._take_saved()[0])

    def _store(self, dy: np.ndarray, normal: np.ndarray) -> None:
        width = dy.shape[-1]
        self.weight.grad = np.einsum("ij,ij->j", dy.reshape(-1, width), normal.reshape(-1, width))
        self.bias.grad = dy.reshape(-1, width).sum(axis=0)

    def parameters(self) -> dict[str, Parameter]:
        """``weight`` and ``bias`` (width,)."""
        return {"weight": self.weight, "bias": self.bias}


class GELU(Layer):
    """x Φ(x) in its tanh form: 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))).

    D. Hendrycks, K. Gimpel, "Gaussian Error Linear Units", arXiv:1606.08415, section 2. It differs from the
    form with erf by 5e-4 at most; PyTorch calls it ``approximate="tanh"``.
    """

    def __repr__(self) -> str:
        return "GELU(tanh)"

    def output_shape(self, shape: Shape) -> Shape:
        """Any shape, unchanged."""
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """Elementwise. In training, the slope is computed too, because both share most of the work."""
        root = sqrt(2 / pi)
        square = x * x
        t = square * (root * CUBIC)
        t += root
        t *= x
        np.tanh(t, out=t)
        if training:  # (1 + t) / 2 + x (1 - t²) / 2 · root (1 + 3 CUBIC x²)
            slope = square
            slope *= 3 * root * CUBIC
            slope += root
            slope *= x
            slope *= 1 - t * t
            slope += t
            slope += 1
            slope *= 0.5
            self._saved = slope
        t += 1
        t *= 0.5
        return np.multiply(t, x, out=t)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """The product of dy and the slope."""
        return np.asarray(dy * self._take_saved())


class MultiHeadAttention(Layer):
    """Packed projection to queries, keys and values, attention in each head, projection back.

    Parameters
    ----------
    width
        The length of a token.
    heads
        The number of heads.
    rng, dtype
        See `Linear`.

    Raises
    ------
    ShapeError
        The width is not a multiple of the number of heads.
    """

    def __init__(
        self, width: int, heads: int, rng: np.random.Generator, dtype: npt.DTypeLike = np.float32
    ) -> None:
        if heads < 1 or width % heads:
            raise ShapeError(f"{heads} heads cannot share a width of {width}: use a divisor of it")
        self.heads, self.head_width = heads, width // heads
        self.qkv = Linear(width, 3 * width, rng, dtype, gain=1)
        self.out = Linear(width, width, rng, dtype, gain=1)
        self.attend: Attend = _attend  # replace to run it elsewhere, outside of training

    def __repr__(self) -> str:
        return f"MultiHeadAttention({self.heads} x {self.head_width})"

    def inner(self) -> Mapping[str, Layer]:
        """``qkv``, whose outputs are (3, heads, head width), and ``out``."""
        return {"qkv": self.qkv, "out": self.out}

    def output_shape(self, shape: Shape) -> Shape:
        """(N, T, width), unchanged."""
        width = self.heads * self.head_width
        if len(shape) != 3 or shape[2] != width:
            raise ShapeError(f"{self!r} takes (N, T, {width}); found {shape}")
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, T, width), through `attend` outside of training."""
        N, T, _ = self.output_shape(x.shape)
        scale = 1 / sqrt(self.head_width)
        qkv = self.qkv.forward(x, training).reshape(N, T, 3, self.heads, self.head_width)
        if training:
            o, p = attention_forward(qkv, scale)
            self._saved = qkv, o, p
        else:
            o = self.attend(qkv, scale)
        return self.out.forward(o.reshape(x.shape), training)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of both projections, and return dx."""
        qkv, o, p = self._take_saved()
        do = self.out.backward(dy).reshape(o.shape)
        dqkv = attention_backward(qkv, o, p, do, 1 / sqrt(self.head_width))
        return self.qkv.backward(dqkv.reshape(*dy.shape[:2], -1))


def _attend(qkv: np.ndarray, scale: float) -> np.ndarray:
    return attention_forward(qkv, scale)[0]


class Residual(Row):
    """x plus the output of a sequence of layers, which has the shape of x."""

    def output_shape(self, shape: Shape) -> Shape:
        """Any shape that the layers do not change."""
        found = super().output_shape(shape)
        if found != shape:
            raise ShapeError(f"{self!r} adds a branch to its input, but makes {found} of {shape}")
        return shape

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """The sum of x and the branch, in the memory of x with ``overwrite``."""
        return np.add(x, super().forward(x, training), out=x if overwrite else None)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of the branch, and return dx."""
        return super().backward(dy) + dy


def _mean(x: np.ndarray) -> np.ndarray:
    """Return means of lines, (..., 1). A product with a vector is five times as fast as NumPy's sum."""
    return (x @ np.full((x.shape[-1], 1), 1 / x.shape[-1], x.dtype)).reshape(*x.shape[:-1], 1)
