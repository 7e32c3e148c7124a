"""Operands whose largest elements meet small ones or zeros, so that the others matter."""

import numpy as np

from mini_dnn.ops import Arrays
from mini_dnn.ops.gemm import GemmShape

SPREADS = (8, 17, 21, 25, 29, 35, 66)  # a large element is about 2**spread times as large as the others
ZEROS = 200  # instead of a spread: the large elements of a meet zeros


def uneven(problem: GemmShape, spread: int) -> Arrays:
    """The largest element of each row of a meets the least one of each column of b; neither is transposed."""
    rng = np.random.default_rng(spread)
    small, least = np.float32(2.0 ** -min(spread, 66)), np.float32(0 if spread == ZEROS else 2.0**-spread)
    a = small * (1 + rng.random(problem.arrays["a"].shape, np.float32))
    b = 1 + rng.random(problem.arrays["b"].shape, np.float32)
    a[:, :, 0], b[:, 0] = 1, least
    return {"a": a, "b": b}
