"""Convolution in NumPy, forward and backward, with partial unrolling and many small GEMMs.

The usual unrolled matrix repeats each input value R S times. Here it is repeated S times, and a strided view
provides the rest, because *overlapping* matrices cost nothing::

    unrolled[n, row, c, s, q] = x[n, c, row, q + s]

With K in the order (r, c, s), output row p needs the input rows p ... p+R-1. These are K consecutive rows of
that buffer, a (K, Q) matrix that starts C S rows later for each p. One stacked ``np.matmul`` computes all
output rows of a slice of the batch and writes them to their final place, so no permutation is needed.

Two sizes determine the speed.

- A slice's buffer stays in the cache, so unrolled values are never written to memory.
- A single GEMM is smaller than the size at which OpenBLAS starts threads. Each of our threads takes a slice,
  including its unrolling. BLAS threads would wait for each other at the end of every GEMM. On AVX-512
  machines, such GEMMs also use OpenBLAS's kernels for small matrices, which do not pack their operands.

In the backward pass, the gradient of the input is a convolution of the zero-padded dy with the rotated
filters. The gradient of the filters is a product of dy and the unrolled input, where each filter row is again
an overlapping view.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided, sliding_window_view

SLICE_BYTES = 2 << 20  # unrolled values that a thread holds: about the L2 cache and its share of L3
SERIAL_MACS = (1 << 19) - 1  # largest M x N x K that OpenBLAS runs on one thread (interface/gemm.c)
MIN_GEMM_ROWS = 8  # narrower GEMMs lose more than BLAS threads gain

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Tile:
    """Output rows ``first ... last - 1`` of some images."""

    images: slice
    first: int
    last: int


@dataclass(frozen=True)
class _Tiling:
    """How the output (N, ., P, .) is divided: at most ``images`` images and ``rows`` rows per tile."""

    N: int
    P: int
    images: int
    rows: int
    threads: int

    def tiles(self, thread: int) -> Iterator[_Tile]:
        """Yield every ``threads``-th tile.

        The assignment is fixed, so a sum over a thread's tiles is reproducible.
        """
        cuts = [(n, p) for n in range(0, self.N, self.images) for p in range(0, self.P, self.rows)]
        for n, p in cuts[thread :: self.threads]:
            yield _Tile(slice(n, min(n + self.images, self.N)), p, min(p + self.rows, self.P))

    def run(self, work: Callable[[Iterator[_Tile]], Result]) -> list[Result]:
        """Call ``work`` in each thread with that thread's tiles, and return the results of the calls."""
        if self.threads == 1:
            return [work(self.tiles(0))]
        with ThreadPoolExecutor(self.threads) as pool:
            return list(pool.map(work, [self.tiles(t) for t in range(self.threads)]))


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _tiling(
    N: int, P: int, R: int, row_bytes: int, max_rows: int, serial_gemm: bool, product_bytes: int = 0
) -> _Tiling:
    """Divide the output so that a tile's unrolled rows fill ``SLICE_BYTES``, or 2 R rows if those are more.

    Parameters
    ----------
    row_bytes
        Bytes of one unrolled input row of one image.
    max_rows
        The largest number of output rows in a tile.
    serial_gemm
        Whether each GEMM runs on one thread. If not, BLAS uses the cores, and no threads are added.
    product_bytes
        Bytes that the GEMMs write for each image besides the output. They are limited like the unrolled rows.
    """
    rows = min(P, max_rows, max(SLICE_BYTES // row_bytes - R + 1, R))
    images = max(1, SLICE_BYTES // max(row_bytes * (rows + R - 1), product_bytes))
    tiles = -(-N // images) * -(-P // rows)
    threads = min(cores(), tiles) if serial_gemm else 1
    if rows == P:  # equal shares
        images = -(-N // (threads * -(-tiles // threads)))
    return _Tiling(N, P, images, rows, threads)


def _pad_rows(x: np.ndarray, start: int, left: int, out: np.ndarray) -> None:
    """Copy rows ``start ...`` of x (n, C, H, W) into ``out`` (n, C, rows, width) at column ``left``.

    Rows outside of x become 0. The columns beside it are not touched: they have been 0 since ``out`` was
    allocated.
    """
    H, W = x.shape[2:]
    rows = out.shape[2]
    lo, hi = max(0, -start), min(rows, H - start)
    out[:, :, :lo] = 0
    out[:, :, hi:] = 0
    out[:, :, lo:hi, left : left + W] = x[:, :, start + lo : start + hi]


def _gemm_rows(M: int, row_macs: int) -> tuple[int, bool]:
    """Return the output channels of a GEMM, a divisor of M, and whether such a GEMM stays on one thread."""
    group = max((g for g in range(1, M + 1) if M % g == 0 and g * row_macs <= SERIAL_MACS), default=0)
    serial = group >= min(M, MIN_GEMM_ROWS)
    return (group, True) if serial else (M, False)


def _correlate(x: np.ndarray, w: np.ndarray, out_size: tuple[int, int], top: int, left: int) -> np.ndarray:
    """Correlate x (N, C, H, W), surrounded by zeros, with w (M, C, R, S).

    Returns
    -------
    numpy.ndarray
        (N, M, P, Q) with ``(P, Q) = out_size``: ``y[p, q]`` sums ``x[p + r - top, q + s - left] w[r, s]``.
    """
    N, C, H, W = x.shape
    M, _, R, S = w.shape
    P, Q = out_size
    K = C * R * S
    dtype = np.result_type(x, w)
    group, serial = _gemm_rows(M, K * Q)
    tiling = _tiling(N, P, R, C * S * Q * dtype.itemsize, P, serial)
    weights = w.transpose(0, 2, 1, 3).reshape(M // group, 1, group, K).astype(dtype, copy=False)
    y = np.empty((N, M, P, Q), dtype)
    y_rows = y.reshape(N, M // group, group, P, Q).transpose(0, 1, 3, 2, 4)
    padded = (P + R - 1, Q + S - 1) != (H, W)

    def work(tiles: Iterator[_Tile]) -> None:
        n, rows = tiling.images, tiling.rows + R - 1
        unrolled = np.empty((n, rows, C, S, Q), dtype)
        image, row, _, tap, pixel = unrolled.strides
        col = as_strided(unrolled, (n, 1, tiling.rows, K, Q), (image, 0, row, tap, pixel))
        source = np.zeros((n, C, rows, Q + S - 1), dtype) if padded else x
        windows = sliding_window_view(source, S, axis=3).transpose(0, 2, 1, 4, 3)
        for t in tiles:
            k, p, rows = t.images.stop - t.images.start, t.last - t.first, t.last - t.first + R - 1
            if padded:
                _pad_rows(x[t.images], t.first - top, left, source[:k, :, :rows])
                unrolled[:k, :rows] = windows[:k, :rows]
            else:
                unrolled[:k, :rows] = windows[t.images, t.first : t.first + rows]
            np.matmul(weights, col[:k, :, :p], out=y_rows[t.images, :, t.first : t.last])

    tiling.run(work)
    return y


def conv2d_forward(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Valid convolution (cross-correlation, as networks have it) with stride 1.

    Parameters
    ----------
    x
        Input (N, C, H, W), float32 or float64.
    w
        Filters (M, C, R, S) of the same dtype, R <= H and S <= W. The caller checks the shapes.

    Returns
    -------
    numpy.ndarray
        (N, M, H - R + 1, W - S + 1), same dtype, C-contiguous.
    """
    return _correlate(x, w, (x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1), 0, 0)


def conv2d_backward_input(w: np.ndarray, dy: np.ndarray, H: int, W: int) -> np.ndarray:
    """Gradient of the loss with respect to the input of `conv2d_forward`.

    Parameters
    ----------
    w
        Filters (M, C, R, S), float32 or float64.
    dy
        Gradient with respect to the output, (N, M, H - R + 1, W - S + 1), same dtype.
    H, W
        Size of the input.

    Returns
    -------
    numpy.ndarray
        (N, C, H, W), same dtype.
    """
    R, S = w.shape[2:]
    turned = w[:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
    return _correlate(dy, turned, (H, W), R - 1, S - 1)


def conv2d_backward_weight(x: np.ndarray, dy: np.ndarray, R: int, S: int) -> np.ndarray:
    """Gradient of the loss with respect to the filters of `conv2d_forward`.

    The sum over the batch is kept in float64; within a slice BLAS sums in the input's dtype.

    Parameters
    ----------
    x
        Input (N, C, H, W), float32 or float64.
    dy
        Gradient with respect to the output, (N, M, H - R + 1, W - S + 1), same dtype.
    R, S
        Size of the filters.

    Returns
    -------
    numpy.ndarray
        (M, C, R, S), same dtype.
    """
    N, C = x.shape[:2]
    M, P, Q = dy.shape[1:]
    dtype = np.result_type(x, dy)
    max_rows = SERIAL_MACS // (M * C * S * Q)
    serial = max_rows >= min(P, R)  # fewer rows would unroll each input row more than twice
    row_bytes, product_bytes = C * S * Q * dtype.itemsize, R * M * C * S * dtype.itemsize
    tiling = _tiling(N, P, R, row_bytes, max_rows if serial else P, serial, product_bytes)
    windows = sliding_window_view(x, S, axis=3).transpose(0, 1, 4, 2, 3)

    def work(tiles: Iterator[_Tile]) -> np.ndarray:
        n, rows = tiling.images, tiling.rows + R - 1
        unrolled = np.empty((n, C, S, rows, Q), dtype)
        image, _, tap, row, pixel = unrolled.strides
        col = as_strided(unrolled, (n, R, tiling.rows * Q, C * S), (image, row, pixel, tap))
        dw = np.zeros((R, M, C * S))
        for t in tiles:
            k, p = t.images.stop - t.images.start, t.last - t.first
            unrolled[:k, :, :, : p + R - 1] = windows[t.images, :, :, t.first : t.last + R - 1]
            dy_rows = dy[t.images, :, t.first : t.last].reshape(k, 1, M, p * Q)
            dw += np.matmul(dy_rows, col[:k, :, : p * Q]).sum(axis=0)
        return dw

    dw = sum(tiling.run(work), np.zeros((R, M, C * S)))
    return dw.reshape(R, M, C, S).transpose(1, 2, 0, 3).astype(dtype, order="C")
