"""The convolution with stride and padding in NumPy, and the results of plausible mistakes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mini_dnn.ops.conv2d_padded_shape import PaddedShape
from mini_dnn.ops.problem import Arrays

PART = 1 << 22  # unrolled values at a time


def convolve(x: np.ndarray, w: np.ndarray, stride: int, padding: int) -> np.ndarray:
    """``x (N,C,H,W) * w (K,C,R,S) -> (N,K,P,Q)`` in the type of the arrays, some images at a time."""
    around = (padding, padding)
    return unpadded(np.pad(x, ((0, 0), (0, 0), around, around)), w, stride)


def unpadded(x: np.ndarray, w: np.ndarray, stride: int) -> np.ndarray:
    """The convolution without padding."""
    K, _, R, S = w.shape
    windows = sliding_window_view(x, (R, S), (2, 3))[:, :, ::stride, ::stride]
    N, C, P, Q = windows.shape[:4]
    y = np.empty((N, K, P * Q), np.result_type(x, w))
    rows = w.reshape(K, -1)
    images = max(1, PART // (C * R * S * P * Q))
    for at in range(0, N, images):
        some = windows[at : at + images].transpose(0, 1, 4, 5, 2, 3)
        np.matmul(rows, some.reshape(len(some), C * R * S, P * Q), out=y[at : at + images])
    return y.reshape(N, K, P, Q)


def as_nchw(p: PaddedShape, array: np.ndarray) -> np.ndarray:
    """An array of four axes in float64, channels before rows and columns."""
    wide = array.astype(np.float64)
    return wide if p.layout == "nchw" else wide.transpose(0, 3, 1, 2)


def as_given(p: PaddedShape, y: np.ndarray) -> np.ndarray:
    """The output (N,K,P,Q) in the problem's layout."""
    return y if p.layout == "nchw" else np.ascontiguousarray(y.transpose(0, 2, 3, 1))


def operands(p: PaddedShape, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Input and filters in float64: ``(N,C,H,W), (K,C,R,R)``."""
    return as_nchw(p, arrays["x"]), as_nchw(p, arrays["w"])


def finished(p: PaddedShape, arrays: Arrays, sums: np.ndarray) -> Arrays:
    """The output for the sums ``(N,K,P,Q)``."""
    y = sums + arrays["bias"].astype(np.float64)[:, None, None]
    if p.residual:
        y = y + as_nchw(p, arrays["residual"])
    return {"y": as_given(p, np.maximum(y, 0) if p.relu else y)}


def mistaken_sums(p: PaddedShape, x: np.ndarray, w: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Plausible mistakes, each with its sums."""
    R, pad, stride = p.R, p.padding, p.stride
    if R > 1:
        words = "the filter is mirrored: w[R-1-r][S-1-s] for w[r][s]"
        yield words, convolve(x, w[..., ::-1, ::-1], stride, pad)
        words = "the filter is transposed: w[s][r] for w[r][s]"
        yield words, convolve(x, w.swapaxes(2, 3), stride, pad)
    if pad:
        around = ((0, 0), (0, 0), (pad, pad), (pad, pad))
        words = "pixels outside the image are those at its edge, and not 0"
        yield words, unpadded(np.pad(x, around, mode="edge"), w, stride)
    for axis, name in ((2, "row"), (3, "column")):
        for step, words in ((1, "late"), (-1, "early")):
            wide = [(0, 0), (0, 0), (pad, pad), (pad, pad)]
            wide[axis] = (pad + 1, pad + 1)
            first = 1 + step
            index = (slice(None),) * axis + (slice(first, first + x.shape[axis] + 2 * pad),)
            why = " (padding or stride is off by one)"
            yield (
                f"each window begins one {name} too {words}{why}",
                unpadded(np.pad(x, wide)[index], w, stride),
            )
    C = p.C
    if C > 1:
        cut = w.copy()
        cut[:, -1] = 0
        yield "the last input channel is left out", convolve(x, cut, stride, pad)
    if C > 1 and R > 1:
        lying = w.reshape(len(w), C, -1)
        if p.layout == "nchw":
            read = lying.reshape(len(w), -1, C).swapaxes(1, 2)
        else:
            read = lying.swapaxes(1, 2).reshape(lying.shape)
        words = "filters are read in the other layout: channels last for channels first, or the reverse"
        yield words, convolve(x, read.reshape(w.shape), stride, pad)
    flat = (w if p.layout == "nchw" else w.transpose(0, 2, 3, 1)).reshape(len(w), -1)
    for tile in (8, 16, 32, 64):
        end = flat.shape[1] // tile * tile
        if 0 < end < flat.shape[1]:
            cut = (flat * (np.arange(flat.shape[1]) < end)).reshape(p.arrays["w"].shape)
            words = (
                f"the sum ends after {end} of its {flat.shape[1]} terms: the last, partial tile is left out"
            )
            yield words, convolve(x, as_nchw(p, cut), stride, pad)
    if p.N > 1:
        sums = convolve(x[:1], w, stride, pad)
        yield "image 0 is used for all images", np.broadcast_to(sums, (p.N, *sums.shape[1:]))
