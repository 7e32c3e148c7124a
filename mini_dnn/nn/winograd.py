"""Winograd's algorithm: 4×4 outputs of a 3×3 convolution from 6×6 inputs, with 36 products instead of 144.

With d the inputs and g the filter, the outputs are
``OUTPUT ((FILTER g FILTERᵀ) * (INPUT d INPUTᵀ)) OUTPUTᵀ``, where ``*`` multiplies elements, and
sums are taken over channels. This is F(4×4, 3×3) of A. Lavin, S. Gray, "Fast Algorithms for Convolutional
Neural Networks", arXiv:1509.09308. The largest factor is 8, which costs some digits.
"""

from __future__ import annotations

import numpy as np

OUT, IN = 4, 6  # rows and columns of a tile
INPUT = np.array(
    [
        [4, 0, -5, 0, 1, 0],
        [0, -4, -4, 1, 1, 0],
        [0, 4, -4, -1, 1, 0],
        [0, -2, -1, 2, 1, 0],
        [0, 2, -1, -2, 1, 0],
        [0, 4, 0, -5, 0, 1],
    ]
)
FILTER = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]]) / 24
OUTPUT = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]])
INTO, OUT_OF = (np.kron(m, m).astype(np.float32) for m in (INPUT, OUTPUT))  # for whole tiles


def transformed(w: np.ndarray) -> np.ndarray:
    """Transform filters (K, C, 3, 3) to (36, C, K) float32: a matrix for each of the products."""
    K, C = w.shape[:2]
    exact = w.transpose(2, 3, 1, 0).reshape(9, -1).astype(np.float64)
    return (np.kron(FILTER, FILTER) @ exact).reshape(IN * IN, C, K).astype(np.float32)
