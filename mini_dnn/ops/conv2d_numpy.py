"""The convolution of two arrays in float64, in lower precisions, and with plausible mistakes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.ops.compare import dot_product_bound
from mini_dnn.ops.products import magnitudes, rounded_to_tf32


def conv2d_float64(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution in float64: ``x (N,C,H,W), w (M,C,R,S) -> (N,M,P,Q)``."""
    return conv2d_forward(x.astype(np.float64), w.astype(np.float64))


def conv2d_bound(x: np.ndarray, w: np.ndarray, precision: str) -> np.ndarray:
    """Largest error that each output element may have, ``(N,M,P,Q) float64``: see `dot_product_bound`."""
    x, w = magnitudes(x), magnitudes(w)
    largest = x.max(initial=0.0) + w.max(initial=0.0)
    return dot_product_bound(conv2d_float64(x, w), w[0].size, float(largest), precision)


def less_exact(x: np.ndarray, w: np.ndarray, precision: str) -> np.ndarray:
    """The convolution in the next lower precision than ``"fp32"``, ``"tf32"`` or ``"fp16"``."""
    if precision == "fp32":
        return conv2d_float64(rounded_to_tf32(x), rounded_to_tf32(w))
    return _summed_in_half(x, w)


def _summed_in_half(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution of halves with the sum kept in half, product after product."""
    R, S = w.shape[2:]
    P, Q = x.shape[2] - R + 1, x.shape[3] - S + 1
    y = np.zeros((len(x), len(w), P, Q), np.float16)
    half_x, half_w = x.astype(np.float16), w.astype(np.float16)
    for c, r, s in np.ndindex(w.shape[1:]):
        y += half_x[:, None, c, r : r + P, s : s + Q] * half_w[None, :, c, r, s, None, None]
    return y


def mistakes_of(x: np.ndarray, w: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Plausible mistakes, each with its result."""
    R, S = w.shape[2:]
    P, Q = x.shape[2] - R + 1, x.shape[3] - S + 1
    yield "the filter is mirrored: w[R-1-r][S-1-s] for w[r][s]", conv2d_forward(x, w[..., ::-1, ::-1])
    if R == S:
        yield "the filter is transposed: w[s][r] for w[r][s]", conv2d_forward(x, w.swapaxes(2, 3))
    swapped = w.reshape(*w.shape[:2], -1)[:, :, np.arange(R * S).reshape(S, R).T]
    swapped = swapped.reshape(w.shape)
    yield (
        "the filter's rows have R elements and not S: w[s * R + r] for w[r * S + s]",
        conv2d_forward(x, swapped),
    )
    for axis, name in ((2, "row"), (3, "column")):
        if w.shape[axis] > 1:
            for at, which in ((-1, "last"), (0, "first")):
                cut = w.copy()
                cut[(slice(None),) * axis + (at,)] = 0
                yield f"the {which} {name} of the filter is left out", conv2d_forward(x, cut)
    if w.shape[1] > 1:
        cut = w.copy()
        cut[:, -1] = 0
        yield "the last input channel is left out", conv2d_forward(x, cut)
        yield "all images use input channel 0 only", conv2d_forward(x[:, :1], w[:, :1])
    for tile in (8, 16, 32):
        end = w[0].size // tile * tile
        if 0 < end < w[0].size:
            cut = w.reshape(len(w), -1) * (np.arange(w[0].size) < end)
            yield (
                f"the sum ends after {end} of its {w[0].size} terms: the last, partial tile is left out",
                conv2d_forward(x, cut.reshape(w.shape)),
            )
    if S > 1:
        rows = np.arange(x[..., 0].size)[:, None]  # they are Q apart and end within x
        misread = x.ravel()[rows * Q + np.arange(x.shape[3])].reshape(x.shape)
        yield (
            "rows of x are Q elements apart, and not W: x[h * Q + w] for x[h * W + w]",
            conv2d_forward(misread, w),
        )
    y = conv2d_forward(x, w)
    if 1 < len(y) != len(w) > 1:  # if they are equal, exchanging x and w is no mistake
        turned = y.swapaxes(0, 1).reshape(y.shape)
        yield "images and output channels are exchanged: y[m * N + n] for y[n * M + m]", turned
    if P == Q:
        yield "the output is transposed: y[q][p] for y[p][q]", y.swapaxes(2, 3)
    if len(y) > 1:
        yield "image 0 is used for all images", np.broadcast_to(y[:1], y.shape)
    yield "each output is shifted by one row", np.roll(y, 1, 2)
    yield "each output is shifted by one column", np.roll(y, 1, 3)
