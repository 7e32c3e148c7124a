"""What a wrong convolution looks like: the simple mistake that would give exactly this result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.ops.compare import compare, conv2d_bound, conv2d_float64
from mini_dnn.variant import PRECISIONS

AXES = {"n": "image", "m": "output channel", "p": "output row", "q": "output column"}


def hint(x: np.ndarray, w: np.ndarray, y: np.ndarray, precision: str) -> str:
    """One sentence on what went wrong, or nothing.

    Parameters
    ----------
    x, w, y
        Input, filters, and the wrong result.
    """
    bound = conv2d_bound(x, w, precision)
    for sentence, expected in _mistakes(x.astype(np.float64), w.astype(np.float64)):
        if compare(y, expected, bound).ok:
            return f"this is what one gets when {sentence}"
    if np.isinf(y).any():
        return (
            f"{np.isinf(y).sum()} elements are infinite: a value passed what the type holds (65,504 in half)"
        )
    expected = conv2d_float64(x, w)
    for lower in PRECISIONS[PRECISIONS.index(precision) + 1 :]:
        if compare(y, expected, conv2d_bound(x, w, lower)).ok:
            return f"it is as exact as {lower}, not as {precision}: is anything kept in a smaller type?"
    where = tail(compare_wrong(y, expected, bound))
    return where and f"{where}: look at how the tail of that axis is handled"


def compare_wrong(y: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Which elements are wrong."""
    return ~np.isfinite(y) | ~(np.abs(y - expected) <= bound)


def tail(wrong: np.ndarray) -> str:
    """``"all of them have q >= 16 (output column)"`` where the end or start of one axis tells them apart."""
    for axis, (letter, name) in enumerate(AXES.items()):
        others = tuple(a for a in range(wrong.ndim) if a != axis)
        hit = np.flatnonzero(wrong.any(axis=others))
        size = wrong.shape[axis]
        if not 0 < len(hit) < size:
            continue
        if hit[-1] == size - 1 and len(hit) == size - hit[0]:
            return f"all of them have {letter} >= {hit[0]} ({name})"
        if hit[0] == 0 and len(hit) == hit[-1] + 1:
            return f"all of them have {letter} <= {hit[-1]} ({name})"
    return ""


def _mistakes(x: np.ndarray, w: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Believable mistakes, each with what it computes."""
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
                f"the sum ends after {end} of its {w[0].size} terms: the last, ragged tile is left out",
                conv2d_forward(x, cut.reshape(w.shape)),
            )
    y = conv2d_forward(x, w)
    if P == Q:
        yield "the output is transposed: y[q][p] for y[p][q]", y.swapaxes(2, 3)
    if len(y) > 1:
        yield "image 0 is used for all images", np.broadcast_to(y[:1], y.shape)
    yield "each output is shifted by one row", np.roll(y, 1, 2)
    yield "each output is shifted by one column", np.roll(y, 1, 3)
