"""The steps of a plan: launches, copies, and the one library call."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

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
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Argument, ...]
    shared_bytes: int = 0
    stream: int = 0


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


def check_geometry(launch: Launch, variant: str) -> None:
    """See that grid, block and shared bytes of a variant's launch are whole numbers.

    Raises
    ------
    VariantError
        One is not.
    """
    sizes = (*launch.grid, *launch.block, launch.shared_bytes)
    if not all(isinstance(size, int | np.integer) for size in sizes):
        raise VariantError(
            f"{variant}: the launch of {launch.kernel} has grid {launch.grid}, block {launch.block} and "
            f"{launch.shared_bytes} shared bytes; all must be whole numbers: a // b or ceil_div(a, b)"
        )
