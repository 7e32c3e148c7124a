"""The elements of a matrix that each thread of a warpgroup holds ("Matrix Fragments for mma.m16n8k16")."""

import numpy as np


def holders(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """For each thread: its first row of a matrix of ``rows`` rows, and its index t in its group of four."""
    thread = np.arange(2 * rows)
    return thread // 32 * 16 + thread % 32 // 4, thread % 4


def of_a(a: np.ndarray) -> np.ndarray:
    """The registers of A (rows, 16) as [4][thread], with two halves in each."""
    row, t = holders(len(a))
    registers = np.empty((4, len(row), 2), np.float16)
    for i in range(4):
        for k in range(2):
            registers[i, :, k] = a[row + i % 2 * 8, 2 * t + k + i // 2 * 8]
    return registers.view(np.uint32)[..., 0]


def of_d(d: np.ndarray) -> np.ndarray:
    """The registers of the sums (rows, n) as [n / 2][thread]."""
    row, t = holders(len(d))
    columns = range(0, d.shape[1], 8)
    return np.stack([d[row + i // 2 * 8, first + 2 * t + i % 2] for first in columns for i in range(4)])
