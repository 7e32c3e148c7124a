"""The inputs of an exported kernel, and the format of the answers."""

import numpy as np

ANSWER = np.dtype([("at", "<u8"), ("expected", "<f8"), ("bound", "<f8")])
PART = 1 << 22  # elements that are generated at a time


def values(sequence: int, shape: tuple[int, ...], low: float, high: float) -> np.ndarray:
    """Return random float32 values in [low, high), from a hash of the sequence and the index.

    mini_dnn used the same numbers, bit for bit, for the answers.
    """
    found = np.empty(int(np.prod(shape)), np.float32)
    for start in range(0, found.size, PART):
        end = min(start + PART, found.size)
        hashed = np.arange(start, end, dtype=np.uint64) + np.uint64(sequence << 40)
        for factor in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
            hashed *= np.uint64(factor)
            hashed ^= hashed >> np.uint64(32)
        uniform = (hashed >> np.uint64(40)) * 2.0**-24
        found[start:end] = uniform * (high - low) + low
    return found.reshape(shape)
