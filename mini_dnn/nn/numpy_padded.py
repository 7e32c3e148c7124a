"""Convolution with stride and padding in NumPy, forward and backward, for arrays whose channels come last.

Axes are (N, C, H, W) as everywhere, but the memory layout is (N, H, W, C): the channels of a pixel are
adjacent. A window then consists of R runs of S C numbers, which are copied to a row of a matrix (K = R S C).
One GEMM with the filters computes the output, whose channels are last again. No permutation is needed before
or after, and the next layer can read the result directly. Arrays in another layout are accepted, but must be
copied.

The matrix of some images at a time stays in the cache (`SLICE_BYTES`). If there are more images, each of our
threads takes some of them, with a BLAS that starts no threads. BLAS threads would wait for each other after
each product.

In the backward pass, the gradient of the input is also such a convolution: of dy, spread by the stride and
surrounded by zeros, with the rotated filters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import as_strided

from mini_dnn.nn.blas import one_thread
from mini_dnn.nn.numpy_conv import cores

SLICE_BYTES = 1 << 20  # of unrolled windows at a time
MOST_ALONE = 1 << 22  # products per thread; for fewer, another thread does not pay

Result = TypeVar("Result")


@dataclass(frozen=True)
class _Unrolled:
    """The windows of some images, as rows of a matrix."""

    images: slice
    matrix: np.ndarray  # (images x P x Q, R S C)


def channels_last(x: np.ndarray) -> np.ndarray:
    """View or copy an array (N, C, H, W) as contiguous (N, H, W, C).

    It is a view if its channels are last.
    """
    return np.ascontiguousarray(x.transpose(0, 2, 3, 1))


def channels_second(x: np.ndarray) -> np.ndarray:
    """(N, H, W, C) as (N, C, H, W): a view."""
    return x.transpose(0, 3, 1, 2)


def _unrolled(
    x: np.ndarray, R: int, S: int, size: tuple[int, int], stride: int, offset: tuple[int, int], spread: int
) -> Iterator[_Unrolled]:
    """Unroll the windows of x (N, H, W, C), some images at a time. The matrix is reused for the next ones.

    Parameters
    ----------
    size
        The number of windows in rows and columns, ``stride`` pixels apart.
    offset
        Rows of zeros above x, and columns to the left. Below and to the right, there are as many as needed.
    spread
        The distance between pixels of x, which are separated by zeros.
    """
    N, H, W, C = x.shape
    (P, Q), (top, left) = size, offset
    rows, columns = (P - 1) * stride + R, (Q - 1) * stride + S
    plain = (rows, columns) == (H, W) and offset == (0, 0) and spread == 1
    if plain and (R, S, stride) == (1, 1, 1):
        yield _Unrolled(slice(0, N), x.reshape(-1, C))
        return
    # Those that windows reach
    h, w = min(H, -(-(rows - top) // spread)), min(W, -(-(columns - left) // spread))
    images = min(N, max(1, SLICE_BYTES // (P * Q * R * S * C * x.itemsize)))
    matrix = np.empty((images, P, Q, R, S * C), x.dtype)
    padded = None if plain else np.zeros((images, rows, columns, C), x.dtype)
    for first in range(0, N, images):
        some = x[first : first + images]
        if padded is not None:
            padded[: len(some), top : top + h * spread : spread, left : left + w * spread : spread] = some[
                :, :h, :w
            ]
            some = padded[: len(some)]
        n, row, column, _ = some.strides  # NumPy's stride of a single channel may be any number
        windows = as_strided(
            some,
            (len(some), P, Q, R, S * C),
            (n, stride * row, stride * column, row, some.itemsize),
            writeable=False,
        )
        np.copyto(matrix[: len(some)], windows)
        yield _Unrolled(slice(first, first + len(some)), matrix[: len(some)].reshape(-1, R * S * C))


def _correlate(
    x: np.ndarray,
    filters: np.ndarray,
    size: tuple[int, int],
    stride: int,
    offset: tuple[int, int],
    spread: int,
) -> np.ndarray:
    """Return the products of the windows of x (N, H, W, C) with filters (R, S, C, M): (N, P, Q, M)."""
    R, S, _, M = filters.shape
    dtype = np.result_type(x, filters)
    flat = np.ascontiguousarray(filters, dtype).reshape(-1, M)
    x = x.astype(dtype, copy=False)
    y = np.empty((len(x), *size, M), dtype)

    def work(some: slice) -> None:
        into = y[some]
        for part in _unrolled(x[some], R, S, size, stride, offset, spread):
            np.matmul(part.matrix, flat, out=into[part.images].reshape(-1, M))

    _share(work, len(x), len(x) * size[0] * size[1] * flat.size)
    return y


def _share(work: Callable[[slice], Result], images: int, products: int) -> list[Result]:
    """Call ``work`` for some images in each thread, and return the results in the order of the images."""
    threads = min(_threads(), images, products // MOST_ALONE)
    if threads < 2:
        return [work(slice(0, images))]
    with one_thread() as alone:
        if not alone:
            return [work(slice(0, images))]
        cuts = [images * i // threads for i in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(work, map(slice, cuts, cuts[1:])))


def _threads() -> int:
    """Return as many threads as BLAS may use: one in a worker of a training."""
    told = os.environ.get("OPENBLAS_NUM_THREADS", "")
    return min(cores(), int(told)) if told.isdecimal() else cores()


def output_size(
    image: tuple[int, ...], window: tuple[int, ...], stride: int, padding: int
) -> tuple[int, int]:
    """Return the rows and columns of windows that fit into an image; less than 1 if none fits."""
    P, Q = ((length + 2 * padding - part) // stride + 1 for length, part in zip(image, window, strict=True))
    return P, Q


def padded_forward(x: np.ndarray, w: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """Convolution (cross-correlation) of x (N, C, H, W), surrounded by zeros, with w (M, C, R, S).

    Parameters
    ----------
    x, w
        float32 or float64. The caller must check the shapes.
    stride, padding
        The same for rows and columns.

    Returns
    -------
    numpy.ndarray
        (N, M, P, Q), same dtype, its channels last in memory.
    """
    size = output_size(x.shape[2:], w.shape[2:], stride, padding)
    last = channels_last(x)
    return channels_second(
        _correlate(last, w.transpose(2, 3, 1, 0), size, stride, (padding, padding), spread=1)
    )


def padded_backward_input(
    w: np.ndarray, dy: np.ndarray, stride: int, padding: int, H: int, W: int
) -> np.ndarray:
    """Gradient of the loss with respect to the input (N, C, H, W) of `padded_forward`.

    Parameters
    ----------
    w
        Filters (M, C, R, S). R and S are larger than ``padding``.
    dy
        Gradient with respect to the output, (N, M, P, Q), same dtype.
    """
    R, S = w.shape[2:]
    turned = w[:, :, ::-1, ::-1].transpose(2, 3, 0, 1)
    offset = R - 1 - padding, S - 1 - padding
    return channels_second(_correlate(channels_last(dy), turned, (H, W), 1, offset, stride))


def padded_backward_weight(
    x: np.ndarray, dy: np.ndarray, R: int, S: int, stride: int, padding: int
) -> np.ndarray:
    """Gradient of the loss with respect to the filters of `padded_forward`, (M, C, R, S).

    The sum over the batch is kept in float64; within a slice BLAS sums in the input's dtype.

    Parameters
    ----------
    x, dy
        Input (N, C, H, W), and gradient with respect to the output (N, M, P, Q), same dtype.
    """
    C, M = x.shape[1], dy.shape[1]
    source, last = channels_last(x), channels_last(dy)

    def work(some: slice) -> np.ndarray:
        dw, given = np.zeros((R * S * C, M)), last[some]
        for part in _unrolled(source[some], R, S, dy.shape[2:], stride, (padding, padding), 1):
            dw += part.matrix.T @ given[part.images].reshape(-1, M)
        return dw

    dw = sum(_share(work, len(source), dy.size * R * S * C), np.zeros((R * S * C, M)))
    return dw.reshape(R, S, C, M).transpose(3, 2, 0, 1).astype(x.dtype, order="C")
