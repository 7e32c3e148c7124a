"""Images as tokens: patches, the class token, learned positions. Tokens are (N, T, D): images, tokens, width.

Source: A. Dosovitskiy et al., "An Image is Worth 16x16 Words", arXiv:2010.11929.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt, pi

import numpy as np
import numpy.typing as npt

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import Layer, Parameter, Shape
from mini_dnn.nn.layers import Linear

SPREAD = 0.02  # initial standard deviation of the class token
WAVE = 0.5  # initial amplitude of the waves in positions
LONGEST = 100.0  # the longest wavelength, as a multiple of the shortest one, 3 patches


class PatchEmbedding(Layer):
    """Divides images into square patches and computes a token from each, with one linear layer.

    Parameters
    ----------
    channels
        The channels of the images.
    patch
        The rows and columns of a patch.
    width
        The length of a token.
    rng, dtype
        See `Linear`.
    """

    def __init__(
        self,
        channels: int,
        patch: int,
        width: int,
        rng: np.random.Generator,
        dtype: npt.DTypeLike = np.float32,
    ) -> None:
        self.channels, self.patch = channels, patch
        self.linear = Linear(channels * patch * patch, width, rng, dtype, gain=1)

    def __repr__(self) -> str:
        return f"PatchEmbedding({self.channels}x{self.patch}x{self.patch} -> {len(self.linear.bias.value)})"

    def inner(self) -> Mapping[str, Layer]:
        """``linear``: its weight (width, channels x patch x patch) is a convolution's, flattened."""
        return {"linear": self.linear}

    def output_shape(self, shape: Shape) -> Shape:
        """(N, C, H, W) to (N, patches, width)."""
        if len(shape) != 4 or shape[1] != self.channels or shape[2] % self.patch or shape[3] % self.patch:
            raise ShapeError(
                f"{self!r} takes (N, {self.channels}, H, W) with H and W multiples of {self.patch}; "
                f"found {shape}"
            )
        return shape[0], shape[2] * shape[3] // self.patch**2, len(self.linear.bias.value)

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, C, H, W) to (N, patches, width), with the patches in row-major order."""
        N, patches, _ = self.output_shape(x.shape)
        _, C, H, W = x.shape
        s = self.patch
        cut = x.reshape(N, C, H // s, s, W // s, s).transpose(0, 2, 4, 1, 3, 5)
        if training:
            self._saved = x.shape
        return self.linear.forward(cut.reshape(N, patches, C * s * s), training)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the linear layer's gradients, and return dx."""
        N, C, H, W = self._take_saved()
        s = self.patch
        cut = self.linear.backward(dy).reshape(N, H // s, W // s, C, s, s)
        return cut.transpose(0, 3, 1, 4, 2, 5).reshape(N, C, H, W)

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the linear layer's gradients."""
        self._take_saved()
        self.linear.backward_parameters(dy)


class Positions(Layer):
    """Prepends the class token, and adds a learned position to each token.

    The positions of patches of a square image are initialised with sines and cosines of rows and columns, and
    other positions with 0.

    Parameters
    ----------
    tokens
        The number of tokens in the output, including the class token.
    width
        The length of a token.
    rng, dtype
        See `Linear`.

    Raises
    ------
    ShapeError
        The width is not a multiple of 4.
    """

    def __init__(
        self, tokens: int, width: int, rng: np.random.Generator, dtype: npt.DTypeLike = np.float32
    ) -> None:
        if width % 4:
            raise ShapeError(f"positions need a width that is a multiple of 4; found {width}")
        self.class_token = Parameter.of((rng.standard_normal(width) * SPREAD).astype(dtype))
        self.position = Parameter.of(np.zeros((tokens, width), dtype))
        side = isqrt(tokens - 1)
        if side * side == tokens - 1:  # patches of a square image
            self.position.value[1:] = _waves(side, width)

    def __repr__(self) -> str:
        tokens, width = self.position.value.shape
        return f"Positions({tokens} x {width})"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, tokens - 1, width) to (N, tokens, width)."""
        tokens, width = self.position.value.shape
        if len(shape) != 3 or shape[1:] != (tokens - 1, width):
            raise ShapeError(f"{self!r} takes (N, {tokens - 1}, {width}); found {shape}")
        return shape[0], tokens, width

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, tokens - 1, width) to (N, tokens, width)."""
        y = np.empty(self.output_shape(x.shape), np.result_type(x, self.position.value))
        y[:, 0] = self.class_token.value + self.position.value[0]
        np.add(x, self.position.value[1:], out=y[:, 1:])
        return y

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Store the gradients of class token and positions, and return dx."""
        self.backward_parameters(dy)
        return dy[:, 1:]

    def backward_parameters(self, dy: np.ndarray) -> None:
        """Store the gradients of class token and positions."""
        self.position.grad = dy.sum(axis=0)
        self.class_token.grad = self.position.grad[0].copy()

    def parameters(self) -> dict[str, Parameter]:
        """``class`` (width,) and ``position`` (tokens, width)."""
        return {"class": self.class_token, "position": self.position}


def _waves(side: int, width: int) -> np.ndarray:
    """Return sines and cosines of rows and columns, ``(side², width)``, from short waves to long ones."""
    steps = np.linspace(0, 1, width // 4)
    angles = np.arange(side)[:, None] * (2 * pi / 3 * LONGEST**-steps)
    waves = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    rows, columns = np.repeat(waves, side, axis=0), np.tile(waves, (side, 1))
    return WAVE * np.concatenate([rows, columns], axis=1)


class ClassToken(Layer):
    """Selects the first token of each image."""

    def __repr__(self) -> str:
        return "ClassToken"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, T, D) to (N, D)."""
        if len(shape) != 3:
            raise ShapeError(f"{self!r} takes (N, T, D); found {shape}")
        return shape[0], shape[2]

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, T, D) to (N, D), a copy."""
        self.output_shape(x.shape)
        if training:
            self._saved = x.shape
        return x[:, 0].copy()

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Return dy for the first token, and 0 for the others."""
        dx = np.zeros(self._take_saved(), dy.dtype)
        dx[:, 0] = dy
        return dx
