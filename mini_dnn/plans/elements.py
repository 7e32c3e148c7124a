"""Launches with one thread, or one warp, for each of many elements."""

from __future__ import annotations

import numpy as np

from mini_dnn.variant import Launch, ceil_div

THREADS = 256  # per block
BITS = {"fp32": 32, "fp16": 16, "uint8": 8}  # bits of a pixel


def each(kernel: str, count: int, *args: str | int, at: int = 1) -> Launch:
    """Launch a thread for each of ``count`` elements.

    Parameters
    ----------
    kernel
        The name of the kernel.
    count
        The number of elements, which the kernel receives as a 64-bit number.
    args
        The other arguments of the kernel.
    at
        The number of arguments that come before the count.
    """
    everything = (*args[:at], np.int64(count), *args[at:])
    return Launch(kernel, (ceil_div(count, THREADS),), (THREADS,), everything)


def each_warp(kernel: str, count: int, *args: str | int | np.int64) -> Launch:
    """Launch a warp for each of ``count`` elements. The kernel receives the arguments unchanged."""
    return Launch(kernel, (ceil_div(count * 32, THREADS),), (THREADS,), args)
