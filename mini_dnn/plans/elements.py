"""Launches with a thread, or a warp, for each of many elements."""

from __future__ import annotations

import numpy as np

from mini_dnn.variant import Launch, ceil_div

THREADS = 256  # per block
BITS = {"fp32": 32, "fp16": 16, "uint8": 8}  # of a pixel


def each(kernel: str, count: int, *args: str | int, at: int = 1) -> Launch:
    """A thread for each of ``count`` elements.

    Parameters
    ----------
    kernel
        Its name.
    count
        How many elements there are; the kernel takes it as 64 bits.
    args
        The kernel's other arguments.
    at
        How many of them come before the count.
    """
    everything = (*args[:at], np.int64(count), *args[at:])
    return Launch(kernel, (ceil_div(count, THREADS),), (THREADS,), everything)


def each_warp(kernel: str, count: int, *args: str | int | np.int64) -> Launch:
    """A warp for each of ``count`` elements; the kernel gets the arguments as they are."""
    return Launch(kernel, (ceil_div(count * 32, THREADS),), (THREADS,), args)
