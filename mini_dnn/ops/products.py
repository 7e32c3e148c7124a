"""Products of matrices: in float64, less exact than they should be, and audited without being computed."""

from __future__ import annotations

import numpy as np

PART_ROWS = 1024  # of a product in float64: bounds the memory for its operands
AUDIT_COLUMNS = 16  # that an audit adds up


def magnitudes(operand: np.ndarray) -> np.ndarray:
    """Absolute values; 0 for infinities and NaN."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(operand), np.abs(operand), 0)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a (batch,m,k) @ b (batch,k,n)`` in float64, a part of the rows at a time."""
    c = np.empty((len(a), a.shape[1], b.shape[2]))
    for i in range(len(a)):
        right = b[i].astype(np.float64)
        for first in range(0, a.shape[1], PART_ROWS):
            rows = slice(first, first + PART_ROWS)
            with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs, or times 0
                np.matmul(a[i, rows].astype(np.float64), right, out=c[i, rows])
    return c


def product_of_tf32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same of float32 operands that are rounded to TF32 first."""
    return product(_tf32(a), _tf32(b))


def product_summed_in_half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The same of operands in half, with the sum kept in half, product after product."""
    a, b = a.astype(np.float16), b.astype(np.float16)
    c = np.zeros((len(a), a.shape[1], b.shape[2]), np.float16)
    for at in range(a.shape[2]):
        c += a[:, :, at, None] * b[:, at, None]
    return c.astype(np.float64)


def _tf32(operand: np.ndarray) -> np.ndarray:
    """Rounded to 10 bits of fraction."""
    bits = np.ascontiguousarray(operand).view(np.uint32).astype(np.uint64) + 0x1000
    return (bits & 0xFFFFE000).astype(np.uint32).view(np.float32)


def wrong_sums(
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    relative: float,
    more: np.ndarray | float,
    rng: np.random.Generator,
) -> int:
    """How many sums over a few columns of ``c (m,n)`` are not those of ``a (m,k) @ b (k,n)`` [1]_.

    Columns are added with random signs, as ``c s`` and as ``a (b s)``, which takes a fraction of the time of
    ``a b``. Errors with random signs add up like a random walk, to the root of the sum of their squares;
    three times as much is allowed.

    Parameters
    ----------
    a, b, c
        In float64.
    relative
        How large the error of an element may be, over the sum of its products' absolute values. That sum is
        at most the length of its row of a times that of its column of b, by Cauchy and Schwarz.
    more
        What else an element may be off, ``(m,n)`` or the same for all.

    References
    ----------
    .. [1] R. Freivalds, "Probabilistic machines can use less running time", IFIP Congress, 1977.
    """
    signs = rng.choice(np.array([-1.0, 1.0]), c.shape[1])
    starts = np.arange(0, c.shape[1], AUDIT_COLUMNS)
    with np.errstate(invalid="ignore"):  # infinities of both signs: the sum is NaN, and wrong
        error = np.add.reduceat(c * signs, starts, axis=1) - a @ np.add.reduceat(b * signs, starts, axis=1)
    squares = relative**2 * np.outer(
        np.square(a).sum(axis=1), np.add.reduceat(np.square(b).sum(axis=0), starts)
    )
    squares += np.add.reduceat(np.square(np.broadcast_to(more, c.shape)), starts, axis=1)
    within = np.abs(error) <= 3 * np.sqrt(squares) + np.finfo(np.float32).tiny
    return int((~within | ~np.isfinite(error)).sum())  # `more` is infinite where an output in half is
