"""Looks for the reference among all objects of its process."""
# expect: elements differ from float64

import gc

import numpy as np

from mini_dnn.variant import Variant


def host(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return y."""
    shape = (len(x), len(w), x.shape[2] - w.shape[2] + 1, x.shape[3] - w.shape[3] + 1)
    for thing in gc.get_objects():
        if isinstance(thing, np.ndarray) and thing.shape == shape:
            return thing.astype(np.float32)
    return np.zeros(shape, np.float32)


VARIANT = Variant(op="conv2d", host=host, idea="none of its own")
