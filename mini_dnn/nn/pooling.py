"""Max pooling with stride and padding, and average pooling to a given size."""

from __future__ import annotations

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import Layer, Shape
from mini_dnn.nn.numpy_padded import channels_last, channels_second, output_size
from mini_dnn.nn.numpy_pool import (
    max_pool_backward,
    max_pool_forward,
    overlapping_max_backward,
    overlapping_max_forward,
)


class MaxPool2d(Layer):
    """Maxima of square windows.

    Parameters
    ----------
    size
        Rows and columns of a window.
    ceil_mode
        Whether windows that are truncated by the lower and right edges count (34 by 4 gives 9, otherwise 8).
    stride
        The distance between windows; by default their size.
    padding
        Rows and columns beyond each edge that windows may reach into; at most half the size. Elements there
        are never a maximum.

    Raises
    ------
    ShapeError
        The sizes are invalid or do not match.
    """

    def __init__(
        self, size: int, ceil_mode: bool = False, stride: int | None = None, padding: int = 0
    ) -> None:
        self.size, self.padding, self.ceil_mode = size, padding, ceil_mode
        self.stride = size if stride is None else stride
        self._is_apart = self.stride == size and not padding  # windows do not overlap
        if size < 1 or self.stride < 1 or not 0 <= 2 * padding <= size:
            raise ShapeError(
                "pooling needs a size and a stride of 1 or more, and a padding of at most half the size; "
                f"found {size}, {self.stride}, {padding}"
            )
        if ceil_mode and not self._is_apart:
            raise ShapeError(
                "pooling has no ceil mode with a stride or a padding of its own; "
                f"found {self.stride}, {padding}"
            )

    def __repr__(self) -> str:
        ceil = ", ceil" if self.ceil_mode else ""
        stride = f", stride {self.stride}" if self.stride != self.size else ""
        padding = f", padding {self.padding}" if self.padding else ""
        return f"MaxPool2d({self.size}x{self.size}{ceil}{stride}{padding})"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, C, H, W) to (N, C, P, Q)."""
        beyond = self.size - 1 if self.ceil_mode else 0  # the lower and right edges
        least = max(1, self.size - 2 * self.padding - beyond)
        if len(shape) != 4 or min(shape[2:]) < least:
            raise ShapeError(f"{self!r} takes (N, C, H, W) with H and W >= {least}; found {shape}")
        H, W = (side + beyond for side in shape[2:])
        return *shape[:2], *output_size((H, W), (self.size,) * 2, self.stride, self.padding)

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """(N, C, H, W) to (N, C, P, Q)."""
        P, Q = self.output_shape(x.shape)[2:]
        if self._is_apart:
            y = max_pool_forward(x, self.size, P, Q)
        else:
            x = channels_last(x)
            y = overlapping_max_forward(x, self.size, self.stride, self.padding, P, Q)
        if training:
            self._saved = x, y
        return y if self._is_apart else channels_second(y)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Pass each dy to the maximum of its window; if there are several, to one of them."""
        x, y = self._take_saved()
        if self._is_apart:
            return max_pool_backward(x, y, dy, self.size)
        dx = overlapping_max_backward(x, y, channels_last(dy), self.size, self.stride, self.padding)
        return channels_second(dx)


class AdaptiveAvgPool2d(Layer):
    """Means of windows that divide an image of any size into ``size`` rows and columns.

    Window i of n takes rows from ``floor(i H / n)`` to before ``ceil((i + 1) H / n)``, as in PyTorch.

    Parameters
    ----------
    size
        Rows and columns of the output.

    Raises
    ------
    ShapeError
        ``size`` is less than 1.
    """

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ShapeError(f"adaptive pooling gives 1 row or more; found {size}")
        self.size = size

    def __repr__(self) -> str:
        return f"AdaptiveAvgPool2d({self.size}x{self.size})"

    def output_shape(self, shape: Shape) -> Shape:
        """(N, C, H, W) to (N, C, size, size)."""
        if len(shape) != 4 or min(shape[2:]) < 1:
            raise ShapeError(f"{self!r} takes (N, C, H, W); found {shape}")
        return *shape[:2], self.size, self.size

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        """Rows first, then columns: each is a product with a matrix of shares."""
        self.output_shape(x.shape)
        if training:
            self._saved = x.shape
        down, across = (_shares(length, self.size, x.dtype) for length in x.shape[2:])
        return np.asarray(np.einsum("ph,nchw,qw->ncpq", down, x, across, optimize=True))

    def backward(self, dy: np.ndarray) -> np.ndarray:
        """Spread each dy over its window."""
        down, across = (_shares(length, self.size, dy.dtype) for length in self._take_saved()[2:])
        return np.asarray(np.einsum("ph,ncpq,qw->nchw", down, dy, across, optimize=True))


def _shares(length: int, size: int, dtype: np.dtype) -> np.ndarray:
    """(size, length): the weight of each line in each window."""
    found = np.zeros((size, length), dtype)
    for i in range(size):
        first, last = i * length // size, -(-(i + 1) * length // size)
        found[i, first:last] = 1 / (last - first)
    return found
