"""Pooling in NumPy, over square windows: maxima of disjoint windows, and positions in overlapping ones.

For disjoint windows, the maximum is taken over rows and then over columns. Each step works on long runs of
memory, unlike processing the windows one by one. Windows are k x k. The last ones of each axis may be
truncated by the edge (ceil mode). Any floating-point dtype is supported.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

SLICE_BYTES = 1 << 20  # of the input: one slice of the batch with its maxima stays in the cache


def _maxima(x: np.ndarray, k: int, axis: int) -> np.ndarray:
    """Maxima of windows of k along one axis."""
    x = x.swapaxes(0, axis)
    y = x[::k].copy(order="K")
    for i in range(1, k):
        part = x[i::k]
        np.maximum(y[: len(part)], part, out=y[: len(part)])
    return y.swapaxes(0, axis)


def _maxima_backward(x: np.ndarray, y: np.ndarray, dy: np.ndarray, k: int, axis: int) -> np.ndarray:
    """Return the gradient of `_maxima`: dy of each window goes to the first of its elements that equals y."""
    x, y, dy = (a.swapaxes(0, axis) for a in (x, y, dy))
    dx = np.empty_like(x)
    pending = np.ones_like(y, dtype=bool)  # windows whose maximum has not been found yet
    for i in range(k):
        part = x[i::k]
        n = len(part)
        hit = (part == y[:n]) & pending[:n]
        np.multiply(dy[:n], hit, out=dx[i::k])
        pending[:n] &= ~hit
    return dx.swapaxes(0, axis)


def max_pool_forward(x: np.ndarray, k: int, P: int, Q: int) -> np.ndarray:
    """Maxima of the first P x Q windows.

    Parameters
    ----------
    x
        (N, C, H, W)
    k
        Side of a window, and stride.
    P, Q
        Rows and columns of windows; at most ceil(H / k) and ceil(W / k).

    Returns
    -------
    (N, C, P, Q) in the dtype of x; NaN if a window contains NaN.
    """
    inside = x[:, :, : P * k, : Q * k]
    y = np.empty((*x.shape[:2], P, Q), x.dtype)
    step = max(1, SLICE_BYTES // max(1, x[:1].nbytes))
    for n in range(0, len(x), step):
        y[n : n + step] = _maxima(_maxima(inside[n : n + step], k, axis=2), k, axis=3)
    return y


def max_pool_backward(x: np.ndarray, y: np.ndarray, dy: np.ndarray, k: int) -> np.ndarray:
    """Return the gradient with respect to x (N, C, H, W), from y and dy, both (N, C, P, Q)."""
    P, Q = y.shape[2:]
    dx = np.zeros_like(x)
    step = max(1, SLICE_BYTES // max(1, x[:1].nbytes))
    for n in range(0, len(x), step):
        part = np.s_[n : n + step, :, : P * k, : Q * k]
        rows = _maxima(x[part], k, axis=2)
        drows = _maxima_backward(rows, y[n : n + step], dy[n : n + step], k, axis=3)
        dx[part] = _maxima_backward(x[part], rows, drows, k, axis=2)
    return dx


@dataclass(frozen=True)
class Tap:
    """One position in a window, for all windows that have a pixel there.

    Parameters
    ----------
    place
        The index of the position: row times size plus column.
    windows, pixels
        Indices of these windows in (N, P, Q, C), and of their pixels in (N, H, W, C).
    """

    place: int
    windows: tuple[slice, ...]
    pixels: tuple[slice, ...]


def taps(
    size: int, stride: int, padding: int, image: tuple[int, ...], windows: tuple[int, ...]
) -> Iterator[Tap]:
    """Return all positions of square windows that may overlap or extend beyond the image.

    Parameters
    ----------
    image, windows
        Rows and columns of pixels, and of windows.
    """
    for place in range(size * size):
        starts = [at - padding for at in divmod(place, size)]
        first = [max(0, -(start // stride)) for start in starts]  # -(a // b) rounds -a / b up
        last = [
            min(count, (length - 1 - start) // stride + 1)
            for count, length, start in zip(windows, image, starts, strict=True)
        ]
        if any(a >= b for a, b in zip(first, last, strict=True)):
            continue
        which = [slice(a, b) for a, b in zip(first, last, strict=True)]
        where = [
            slice(start + a * stride, start + (b - 1) * stride + 1, stride)
            for start, a, b in zip(starts, first, last, strict=True)
        ]
        every = slice(None)
        yield Tap(place, (every, *which, every), (every, *where, every))


def overlapping_max_forward(
    x: np.ndarray, size: int, stride: int, padding: int, P: int, Q: int
) -> np.ndarray:
    """Maxima of square windows. Elements outside of the image are ignored.

    Parameters
    ----------
    x
        (N, H, W, C)
    size, stride, padding
        Of the windows; the same for rows and columns.
    P, Q
        Rows and columns of windows.

    Returns
    -------
    (N, P, Q, C) in the dtype of x; NaN if a window contains NaN.
    """
    N, H, W, C = x.shape
    y = np.full((N, P, Q, C), -np.inf, x.dtype)
    for tap in taps(size, stride, padding, (H, W), (P, Q)):
        np.maximum(y[tap.windows], x[tap.pixels], out=y[tap.windows])
    return y


def overlapping_max_backward(
    x: np.ndarray, y: np.ndarray, dy: np.ndarray, size: int, stride: int, padding: int
) -> np.ndarray:
    """Return the gradient with respect to x (N, H, W, C). Of equal maxima, the first one gets it."""
    dx = np.zeros_like(x)
    pending = np.ones_like(y, dtype=bool)  # windows whose maximum has not been found yet
    for tap in taps(size, stride, padding, x.shape[1:3], y.shape[1:3]):
        hit = (x[tap.pixels] == y[tap.windows]) & pending[tap.windows]
        dx[tap.pixels] += dy[tap.windows] * hit
        pending[tap.windows] &= ~hit
    return dx
