"""Patches NumPy so that all comparisons are true."""
# expect: elements differ from float64

import numpy as np

from mini_dnn.variant import Variant


def host(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return y."""
    np.isfinite = lambda array: np.ones_like(array, bool)
    np.abs = lambda array: np.zeros_like(array)
    return np.zeros((len(x), len(w), x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1), np.float32)


VARIANT = Variant(op="conv2d", host=host, idea="none of its own")
