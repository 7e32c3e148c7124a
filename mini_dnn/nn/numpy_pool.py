"""Max-pooling in NumPy, over square windows that do not overlap.

The maximum is taken over rows, then over columns: each step works on long stretches of memory, where
picking windows one by one would not. Windows are k x k; the last ones of each axis may be cut short by
the edge (ceil mode). Any floating-point dtype.
"""

import numpy as np

SLICE_BYTES = 1 << 20  # of the input: one slice of the batch and its maxima stay in the cache


def _maxima(x: np.ndarray, k: int, axis: int) -> np.ndarray:
    """Maxima of windows of k along one axis."""
    x = x.swapaxes(0, axis)
    y = x[::k].copy(order="K")
    for i in range(1, k):
        part = x[i::k]
        np.maximum(y[: len(part)], part, out=y[: len(part)])
    return y.swapaxes(0, axis)


def _maxima_backward(x: np.ndarray, y: np.ndarray, dy: np.ndarray, k: int, axis: int) -> np.ndarray:
    """Gradient of `_maxima`: dy of each window goes to the first of its elements that equals y."""
    x, y, dy = (a.swapaxes(0, axis) for a in (x, y, dy))
    dx = np.empty_like(x)
    pending = np.ones_like(y, dtype=bool)  # windows whose maximum has not been met yet
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
    (N, C, P, Q) in x's dtype; NaN where a window holds NaN.
    """
    inside = x[:, :, : P * k, : Q * k]
    y = np.empty((*x.shape[:2], P, Q), x.dtype)
    step = max(1, SLICE_BYTES // max(1, x[:1].nbytes))
    for n in range(0, len(x), step):
        y[n : n + step] = _maxima(_maxima(inside[n : n + step], k, axis=2), k, axis=3)
    return y


def max_pool_backward(x: np.ndarray, y: np.ndarray, dy: np.ndarray, k: int) -> np.ndarray:
    """Gradient by x (N, C, H, W), from the output y and its gradient dy, both (N, C, P, Q)."""
    P, Q = y.shape[2:]
    dx = np.zeros_like(x)
    step = max(1, SLICE_BYTES // max(1, x[:1].nbytes))
    for n in range(0, len(x), step):
        part = np.s_[n : n + step, :, : P * k, : Q * k]
        rows = _maxima(x[part], k, axis=2)
        drows = _maxima_backward(rows, y[n : n + step], dy[n : n + step], k, axis=3)
        dx[part] = _maxima_backward(x[part], rows, drows, k, axis=2)
    return dx
