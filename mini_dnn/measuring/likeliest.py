"""The most likely classes of each picture, from a network's scores."""

from __future__ import annotations

import numpy as np

from mini_dnn.errors import MiniDnnError

FEW = 16  # up to this many classes are searched one after the other
ROUNDING = 1e-3  # how much fp16 may raise a probability above 1


def softmax(scores: np.ndarray) -> np.ndarray:
    """Compute probabilities in the memory of the scores. Allocating new memory would take longer."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def top(probabilities: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the most likely classes of each picture, in order. Of equal ones, the lower number comes first.

    Parameters
    ----------
    probabilities
        (N, classes).

    Returns
    -------
    tuple of numpy.ndarray
        The classes, (N, count) int64, and their probabilities.

    Raises
    ------
    MiniDnnError
        Some are NaN, or the largest ones are not between 0 and 1.
    """
    if not np.isfinite(probabilities.sum(axis=1)).all():
        raise MiniDnnError(
            "the network computes probabilities that are not numbers: its weights are damaged, or out of the "
            "range of the variant's precision. Use other weights (--weights), or another variant (--impl)"
        )
    found, likeliest = (_few if count <= FEW else _many)(probabilities, count)
    wrong = likeliest[(likeliest < 0) | (likeliest > 1 + ROUNDING)]
    if wrong.size:
        raise MiniDnnError(
            f"the network computes probabilities outside 0 to 1, such as {wrong[0]:.6g}: the variant that "
            "runs it is wrong. 'run.py check' compares it with float64; or use another variant (--impl)"
        )
    return found, likeliest


def _many(probabilities: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    found = np.argsort(-probabilities, axis=1, kind="stable")[:, :count]
    return found, np.take_along_axis(probabilities, found, axis=1)


def _few(probabilities: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Do the same as `_many` without a sort. The probabilities are changed temporarily."""
    rows = np.arange(len(probabilities))
    found = np.empty((len(rows), count), np.int64)
    likeliest = np.empty((len(rows), count), probabilities.dtype)
    for rank in range(count):  # faster than a partition; of equal ones, argmax finds the first
        found[:, rank] = best = probabilities.argmax(axis=1)
        likeliest[:, rank] = probabilities[rows, best]
        probabilities[rows, best] = -1
    np.put_along_axis(probabilities, found, likeliest, axis=1)
    return found, likeliest
