"""Inputs on which arithmetic that is less exact than allowed leaves the bound of the allowed one.

With ordinary random inputs an answer in FP16 may pass the bound of FP32 where the reduction is long, as that
bound grows with the sum of all |x w|, and an error with few of them. The inputs here are made for the
opposite, and each is tried first: rounding is done in NumPy as the lower precision does it, and only inputs
that betray it are used.
"""

from __future__ import annotations

import numpy as np

from mini_dnn.ops.compare import compare, conv2d_bound, conv2d_float64
from mini_dnn.ops.shapes import ConvShape

FEW = 4  # products in a sum whose operands' rounding is to be seen
PROBE_IMAGES = 4
LONG_SUM = ConvShape(2, 16, 12, 12, 4, 7, 7)  # K = 784


def inputs(shape: ConvShape, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Ordinary inputs, x and w, normally distributed."""
    return rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)


def probe(shape: ConvShape, precision: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray] | None:
    """Inputs that tell an answer of the next lower precision from one of ``precision``.

    None where there is none: no arithmetic here is lower than ``"fp16_sum"``.
    """
    if precision == "fp32":
        x, w = inputs(shape.with_batch(min(shape.N, PROBE_IMAGES)), rng)
        few = rng.random(x.shape) < FEW / shape.K  # rounding of operands shows where sums are short
        x = np.where(few, x, np.float32(0))
        lower = conv2d_float64(_tf32(x), _tf32(w))
    elif precision in ("tf32", "fp16"):
        x, w = (np.abs(array) + np.float32(0.5) for array in inputs(LONG_SUM, rng))  # sums that grow and grow
        lower = _summed_in_half(x, w)
    else:
        return None
    found = compare(lower.astype(np.float32), conv2d_float64(x, w), conv2d_bound(x, w, precision))
    return None if found.ok else (x, w)


def _tf32(x: np.ndarray) -> np.ndarray:
    """Rounded to 10 bits of fraction, which is also what FP16 has."""
    bits = x.view(np.uint32).astype(np.uint64) + 0x1000
    return (bits & 0xFFFFE000).astype(np.uint32).view(np.float32)


def _summed_in_half(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution of halves with the sum kept in half, product after product."""
    R, S = w.shape[2:]
    P, Q = x.shape[2] - R + 1, x.shape[3] - S + 1
    y = np.zeros((len(x), len(w), P, Q), np.float16)
    half_x, half_w = x.astype(np.float16), w.astype(np.float16)
    for c, r, s in np.ndindex(w.shape[1:]):
        y += half_x[:, None, c, r : r + P, s : s + Q] * half_w[None, :, c, r, s, None, None]
    return y
