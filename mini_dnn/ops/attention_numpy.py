"""Attention in float64, with some scores at a time, so that the memory stays limited."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from mini_dnn.ops.attention_shape import AttentionShape, lying, parts
from mini_dnn.ops.problem import Arrays

PART = 1 << 20  # scores that are computed at a time

Weigh = Callable[[np.ndarray, np.ndarray], np.ndarray]  # scores and a mask -> weights of the values


def softmax(scores: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """Softmax along the last axis, without masked elements."""
    scores = np.where(masked, -np.inf, scores)
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def is_masked(p: AttentionShape, rows: np.ndarray) -> np.ndarray:
    """A mask of the keys that these queries do not see: ``(len(rows), T)``."""
    return (np.arange(p.T) > rows[:, None]) & p.causal


def by_heads(p: AttentionShape, *given: np.ndarray) -> list[np.ndarray]:
    """Arrays ``(B,H,T,d)`` as ``(B H,T,d)``."""
    return [array.reshape(p.B * p.H, p.T, p.d) for array in given]


def some_heads(p: AttentionShape) -> Iterator[slice]:
    """All heads, in groups that have few scores together."""
    step = max(1, PART // p.T**2)
    return (slice(first, first + step) for first in range(0, p.B * p.H, step))


def output(p: AttentionShape, o: np.ndarray) -> Arrays:
    """``o (B H,T,d)`` in the form of the problem's outputs."""
    return {"o": lying(p, o.reshape(p.B, p.H, p.T, p.d))}


def in_parts(
    p: AttentionShape, arrays: Arrays
) -> Iterator[tuple[tuple[slice, slice], np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Parts: heads and queries, the queries' numbers, and q, k and v ``(heads,...,d)`` in float64.

    A part has many small heads, or a part of the queries of a large one.
    """
    q, k, v = by_heads(p, *parts(p, arrays))
    step = max(1, PART // p.T)
    for some in some_heads(p):
        keys, values = k[some].astype(np.float64), v[some].astype(np.float64)
        for first in range(0, p.T, step):
            rows = slice(first, min(first + step, p.T))
            queries = q[some, rows].astype(np.float64)
            yield (some, rows), np.arange(p.T)[rows], queries, keys, values


def weights_of(p: AttentionShape, q: np.ndarray, k: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The weight of each value for these queries."""
    with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs, or multiplied by 0
        return softmax(p.factor * (q @ k.swapaxes(1, 2)), is_masked(p, rows))


def mean_of(weights: np.ndarray, v: np.ndarray, masked: np.ndarray) -> np.ndarray:
    """``weights (heads,rows,T) @ v (heads,T,d)``; masked values do not count, not even if they are NaN."""
    odd = ~np.isfinite(v)
    if not (masked.any() and odd.any()):
        with np.errstate(invalid="ignore"):  # infinities of both signs, or multiplied by 0
            return np.asarray(weights @ v)
    o = weights @ np.where(odd, 0, v)
    for at in np.flatnonzero(odd.any(axis=(0, 2))):
        seen = ~masked[:, at]
        with np.errstate(invalid="ignore"):
            o[:, seen] += weights[:, seen, at, None] * np.where(odd[:, at], v[:, at], 0)[:, None]
    return o


def answer(p: AttentionShape, arrays: Arrays) -> Arrays:
    """The float64 reference."""
    o = np.empty((p.B * p.H, p.T, p.d))
    for at, rows, q, k, v in in_parts(p, arrays):
        o[at] = mean_of(weights_of(p, q, k, rows), v, is_masked(p, rows))
    return output(p, o)


def weighted(p: AttentionShape, arrays: Arrays, weigh: Weigh) -> Arrays:
    """The output for other weights than those of a softmax."""
    q, k, v = by_heads(p, *parts(p, arrays))
    o, masked = np.empty(q.shape), is_masked(p, np.arange(p.T))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for at in range(len(q)):
            scores = p.factor * (q[at].astype(np.float64) @ k[at].astype(np.float64).T)
            o[at] = weigh(scores, masked) @ v[at].astype(np.float64)
    return output(p, o)
