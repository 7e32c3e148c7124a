"""Products of matrices: in float64, in lower precisions, and audits that do not compute the product."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

PART_ROWS = 1024  # of a product in float64: limits the memory for its operands
PART = 1 << 20  # elements that are converted to float64 at a time: they stay in the cache
AUDIT_COLUMNS = 16  # columns that an audit adds up


def magnitudes(operand: np.ndarray) -> np.ndarray:
    """Return absolute values, with 0 for infinities and NaN."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(operand), np.abs(operand), 0)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a (batch,m,k) @ b (batch,k,n)`` in float64, by parts of rows, or of k if there are few rows."""
    c = np.zeros((len(a), a.shape[1], b.shape[2]))
    terms = len(b[0]) if c.shape[1] > PART_ROWS else max(1, PART // c.shape[2])
    with np.errstate(invalid="ignore", over="ignore"):  # infinities of both signs, or multiplied by 0
        for i in range(len(a)):
            for at in range(0, b.shape[1], terms):
                right = b[i, at : at + terms].astype(np.float64)
                for first in range(0, c.shape[1], PART_ROWS):
                    rows = slice(first, first + PART_ROWS)
                    c[i, rows] += a[i, rows, at : at + terms].astype(np.float64) @ right
    return c


def product_of_tf32(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of float32 operands that are first rounded to TF32."""
    return product(rounded_to_tf32(a), rounded_to_tf32(b))


def product_summed_in_half(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The product of operands in half, with the sum kept in half, product after product."""
    a, b = a.astype(np.float16), b.astype(np.float16)
    c = np.zeros((len(a), a.shape[1], b.shape[2]), np.float16)
    for at in range(a.shape[2]):
        c += a[:, :, at, None] * b[:, at, None]
    return c.astype(np.float64)


def rounded_to_tf32(operand: np.ndarray) -> np.ndarray:
    """The float32 operand rounded to 10 bits of fraction, which halves have as well."""
    bits = np.ascontiguousarray(operand).view(np.uint32).astype(np.uint64) + 0x1000
    return (bits & 0xFFFFE000).astype(np.uint32).view(np.float32)


class ColumnSums:
    """Sums over a few columns of ``c (m,n)``, which show whether it is ``a (m,k) @ b (k,n)`` [1]_.

    Columns are added with random signs, as ``c s`` and as ``a (b s)``, which takes a fraction of the time of
    ``a b``. Errors with random signs add up like a random walk, to the root of the sum of their squares;
    three times as much is allowed.

    Parameters
    ----------
    b
        The second operand, of any type.

    References
    ----------
    .. [1] R. Freivalds, "Probabilistic machines can use less running time", IFIP Congress, 1977.
    """

    def __init__(self, b: np.ndarray, rng: np.random.Generator) -> None:
        self._signs = rng.choice(np.array([-1.0, 1.0]), b.shape[1])
        self._starts = np.arange(0, b.shape[1], AUDIT_COLUMNS)
        squares = np.zeros(b.shape[1])
        self._right = np.empty((len(b), len(self._starts)))
        for rows in parts(b):
            some = b[rows].astype(np.float64)
            squares += np.einsum("kn,kn->n", some, some)
            self._right[rows] = self._added(some)
        self._squares = np.add.reduceat(squares, self._starts)

    def wrong(self, a: np.ndarray, c: np.ndarray, relative: float, more: np.ndarray) -> int:
        """The number of wrong sums in some rows of c.

        Parameters
        ----------
        a, c
            These rows, in float64.
        relative
            The largest error of an element, relative to the sum of its products' absolute values. By Cauchy
            and Schwarz, that sum is at most the product of the norms of its row of a and its column of b.
        more
            An additional error of an element, ``(m,n)`` or the same for all.
        """
        with np.errstate(invalid="ignore"):  # infinities of both signs give NaN, which is wrong
            error = self._added(c) - a @ self._right
        squares = relative**2 * np.outer(np.einsum("mk,mk->m", a, a), self._squares)
        squares += np.add.reduceat(np.square(np.broadcast_to(more, c.shape)), self._starts, axis=1)
        within = np.abs(error) <= 3 * np.sqrt(squares) + np.finfo(np.float32).tiny
        return int((~within | ~np.isfinite(error)).sum())  # `more` is infinite where an output in half is

    def _added(self, values: np.ndarray) -> np.ndarray:
        return np.add.reduceat(values * self._signs, self._starts, axis=1)


def parts(matrix: np.ndarray) -> Iterator[slice]:
    """Yield the rows of a matrix, some at a time."""
    rows = max(1, PART // matrix.shape[1])
    return (slice(first, first + rows) for first in range(0, len(matrix), rows))
