"""Float64 references, and the comparison that every check uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from mini_dnn.nn.numpy_conv import conv2d_forward

# Unit round-off of the operands as the products see them, and of the accumulation.
ROUND_OFF = {
    "fp32": (0.0, 2.0**-24),
    "tf32": (2.0**-11, 2.0**-23),
    "fp16": (2.0**-11, 2.0**-23),
    "fp16_sum": (2.0**-11, 2.0**-11),
}
HALF_SUBNORMAL = 2.0**-25  # what rounding to half may take from an operand below half's normal range
CONFIDENCE = 6.0  # standard deviations
PART_IMAGES = 250


@dataclass(frozen=True)
class Comparison:
    """How a result differs from its reference."""

    elements: int
    differing: int  # not finite, or outside the bound
    first: tuple[int, ...] | None  # indices of the first differing element
    found: float  # its value, or that of the element with the largest error
    expected: float
    max_error: float  # largest absolute error among the finite elements
    worst_ratio: float  # largest error as a fraction of its bound: 1 is just in

    @property
    def ok(self) -> bool:
        """Whether every element is finite and within its bound."""
        return self.differing == 0

    def __str__(self) -> str:
        """One line for people."""
        if self.ok:
            return f"max error {self.max_error:.2e}, {self.worst_ratio:.0%} of the bound"
        return (
            f"{self.differing} of {self.elements} elements differ from float64; the first at {self.first}: "
            f"found {self.found:.8g}, expected {self.expected:.8g}; max error {self.max_error:.2e}"
        )


def conv2d_float64(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution in float64: ``x (N,C,H,W), w (M,C,R,S) -> (N,M,P,Q)``."""
    return conv2d_forward(x.astype(np.float64), w.astype(np.float64))


def conv2d_bound(x: np.ndarray, w: np.ndarray, precision: str) -> np.ndarray:
    """Largest error that each output element may have, ``(N,M,P,Q) float64``.

    For each output, ``(2 u + c sqrt(K) v) sum |x w|``: u the round-off of the operands, v that of the
    accumulation, whose errors add up like a random walk over the K terms [1]_. An answer computed in a
    lower precision than it claims falls outside.

    References
    ----------
    .. [1] N. J. Higham, T. Mary, "A new approach to probabilistic rounding error analysis",
       SIAM J. Sci. Comput. 41(5), 2019.
    """
    operand, accumulate = ROUND_OFF[precision]
    K = w[0].size
    absolute = conv2d_float64(np.abs(x), np.abs(w))
    bound = (2 * operand + CONFIDENCE * np.sqrt(K) * accumulate) * absolute
    if operand:
        bound += HALF_SUBNORMAL * K * (np.abs(x).max(initial=0.0) + np.abs(w).max(initial=0.0))
    return bound + np.finfo(np.float32).tiny


def compare(y: np.ndarray, expected: np.ndarray, bound: np.ndarray) -> Comparison:
    """Compare a result with its float64 reference, element by element.

    Finiteness comes first, as NaN passes every test of the kind ``error > bound``.
    """
    finite = np.isfinite(y)
    error = np.where(finite, np.abs(y - expected), 0.0)
    wrong = ~finite | (error > bound)
    differing = int(wrong.sum())
    at = int(np.argmax(wrong)) if differing else int(np.argmax(error / bound))
    return Comparison(
        elements=y.size,
        differing=differing,
        first=tuple(int(i) for i in np.unravel_index(at, y.shape)) if differing else None,
        found=float(y.flat[at]),
        expected=float(expected.flat[at]),
        max_error=float(error.max()),
        worst_ratio=float((error / bound).max()),
    )


def check_conv2d(
    x: np.ndarray,
    w: np.ndarray,
    y: np.ndarray,
    precision: str = "fp32",
    images: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare a convolution's output with float64, in parts to bound the memory.

    Parameters
    ----------
    x, w, y
        ``(N,C,H,W)``, ``(M,C,R,S)`` and the result ``(N,M,P,Q)`` that is to be checked, all float32.
    precision
        What the variant claims: see `conv2d_bound`.
    images
        Compare only so many, half of them from each end of the batch; all if None.
    progress
        Called with the number of images compared so far.
    """
    N = len(x)
    chosen = (
        np.arange(N) if images is None or images >= N else np.r_[: images // 2, N - (images + 1) // 2 : N]
    )
    parts: list[tuple[np.ndarray, Comparison]] = []
    for start in range(0, len(chosen), PART_IMAGES):
        part = chosen[start : start + PART_IMAGES]
        result = compare(y[part], conv2d_float64(x[part], w), conv2d_bound(x[part], w, precision))
        parts.append((part, result))
        if progress:
            progress(start + len(part))
    return _merge(parts)


def _merge(parts: list[tuple[np.ndarray, Comparison]]) -> Comparison:
    """One comparison from those of several parts, given the images of each."""
    failed = [(part, result) for part, result in parts if not result.ok]
    part, worst = failed[0] if failed else max(parts, key=lambda p: p[1].worst_ratio)
    return Comparison(
        elements=sum(result.elements for _, result in parts),
        differing=sum(result.differing for _, result in parts),
        first=(int(part[worst.first[0]]), *worst.first[1:]) if worst.first else None,
        found=worst.found,
        expected=worst.expected,
        max_error=max(result.max_error for _, result in parts),
        worst_ratio=max(result.worst_ratio for _, result in parts),
    )
