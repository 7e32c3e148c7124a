"""The steps of a plan: launches, copies, and the one library call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.device.clusters import Sizes, three_sizes
from mini_dnn.errors import VariantError


@dataclass(frozen=True)
class Images:
    """Entries ``first`` to ``last - 1`` of a buffer's first axis: images, as a rule."""

    buffer: str
    first: int
    last: int


Argument = str | Images | int | float | np.generic


@dataclass(frozen=True)
class Launch:
    """One kernel launch.

    Parameters
    ----------
    kernel
        Name of the ``extern "C" __global__`` function.
    grid, block
        Blocks in the grid and threads in a block, one to three entries each, x first.
    args
        In the kernel's order. A string names a buffer (an array of the problem, or a scratch buffer),
        `Images` a part of one; an int is passed as ``int``, a float as ``float``, a NumPy scalar as what
        it is.
    shared_bytes
        Dynamic shared memory of a block.
    stream
        Work on one stream runs in order; different streams may overlap.
    cluster
        How many blocks, along x or along each axis, run at the same time and reach each other's shared memory
        (``ptx::cluster_shared``). The grid is a multiple of it. It needs ``min_arch=90``.
    early
        The kernel may begin before the one ahead of it on the stream has ended, and calls
        ``ptx::grid_wait()`` before it reads or writes what that one uses.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Argument, ...]
    shared_bytes: int = 0
    stream: int = 0
    cluster: int | tuple[int, ...] = 1
    early: bool = False

    @property
    def cluster_sizes(self) -> Sizes:
        """Blocks of a cluster along each axis."""
        return three_sizes(self.cluster)


@dataclass(frozen=True)
class CopyToSymbol:
    """Copy a whole buffer to the kernel file's ``__constant__`` variable, device to device.

    Parameters
    ----------
    symbol
        Name of the variable.
    buffer
        An array of the problem or a scratch buffer; it may be smaller than the variable.
    """

    symbol: str
    buffer: str
    stream: int = 0


@dataclass(frozen=True)
class CopyIn:
    """Copy a part of an input from pinned host memory; a plan with one of these copies all of the batch."""

    images: Images
    stream: int = 0


@dataclass(frozen=True)
class CopyOut:
    """Copy a part of an output to pinned host memory."""

    images: Images
    stream: int = 0


@dataclass(frozen=True)
class Gemm:
    """``c (m,n) = a (m,k) @ b (k,n)`` in fp32 by the device's own library (cuBLAS)."""

    a: str
    b: str
    c: str
    m: int
    n: int
    k: int
    stream: int = 0


Step = Launch | CopyToSymbol | CopyIn | CopyOut | Gemm


def check_step(step: Step, variant: str) -> None:
    """See that the fields of a variant's step are what they are declared to be.

    Raises
    ------
    VariantError
        One is not.
    """
    what = f"the launch of {step.kernel}" if isinstance(step, Launch) else f"a {type(step).__name__}"
    for name, value in vars(step).items():
        if expected := _expected(name, value):
            raise VariantError(f"{variant}: {what} has {name} {value!r}; it must be {expected}")


def _expected(name: str, value: Any) -> str:
    """What a field of a step must be, in words; empty if it is."""
    fits, words = isinstance(value, str), "a name in quotes"
    match name:
        case "grid" | "block":
            fits = isinstance(value, tuple | list) and all(map(_is_whole, value))
            words = "whole numbers: (a // b, c) or (ceil_div(a, b), c)"
        case "cluster":
            given = value if isinstance(value, tuple) else (value,)
            fits = 1 <= len(given) <= 3 and all(map(_is_whole, given))
            words = "a whole number, or a tuple of up to three: 2 or (2, 1)"
        case "early":
            fits, words = isinstance(value, bool), "True or False"
        case "args":
            fits, words = isinstance(value, tuple | list), 'a tuple of arguments: ("x", "y", s.N)'
        case "images":
            fits, words = isinstance(value, Images), "a part of an array: Images(name, first, last)"
        case "stream":
            fits, words = _is_whole(value) and value >= 0, "a whole number from 0 on"
        case "shared_bytes" | "m" | "n" | "k":
            fits, words = _is_whole(value), "a whole number: a // b or ceil_div(a, b)"
    return "" if fits else words


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)
