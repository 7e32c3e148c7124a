"""Returns fewer elements than y has, so that the rest would be taken from older memory."""
# expect: expected

import numpy as np

from mini_dnn.variant import Variant


def host(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return y."""
    return np.zeros(1, np.float32)


VARIANT = Variant(op="conv2d", host=host, idea="none of its own")
