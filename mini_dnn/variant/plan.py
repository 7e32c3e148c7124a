"""The steps of a plan: launches, copies, and the one library call."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.product import LAYOUTS, Product
from mini_dnn.errors import VariantError


@dataclass(frozen=True)
class Images:
    """Entries ``first`` to ``last - 1`` of a buffer's first axis: images, as a rule."""

    buffer: str
    first: int
    last: int


@dataclass(frozen=True)
class Code:
    """A kernel file, and the definitions that it is compiled with."""

    source: Path
    defines: tuple[tuple[str, int], ...]


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
    code
        Where the kernel is, if not in the variant's own file: see `Gemm.impl`.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Argument, ...]
    shared_bytes: int = 0
    stream: int = 0
    code: Code | None = None


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
    """A matrix product in the types of its buffers, with sums in fp32: by the device's own library (cuBLAS).

    Parameters
    ----------
    a, b, c
        Names of buffers: arrays of the problem, or scratch buffers.
    m, n, k, layout, batch, alpha, beta, lda, ldb, ldc
        See `Product`.
    impl
        The name of a variant of the matrix product that computes it instead of the library, such as
        ``"gemm/v3_registers"``: its launches take the place of this step.
    """

    a: str
    b: str
    c: str
    m: int
    n: int
    k: int
    stream: int = 0
    layout: str = "nn"
    batch: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    impl: str = ""

    @property
    def product(self) -> Product:
        """What is computed, whatever the buffers."""
        return Product(**{field.name: getattr(self, field.name) for field in fields(Product)})


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
        case "args":
            fits, words = isinstance(value, tuple | list), 'a tuple of arguments: ("x", "y", s.N)'
        case "images":
            fits, words = isinstance(value, Images), "a part of an array: Images(name, first, last)"
        case "stream":
            fits, words = _is_whole(value) and value >= 0, "a whole number from 0 on"
        case "code":
            fits, words = value is None or isinstance(value, Code), "None: the planner fills it in"
        case "layout":
            fits, words = value in LAYOUTS, f"one of {', '.join(LAYOUTS)}"
        case "alpha" | "beta":
            fits, words = isinstance(value, float | np.floating) or _is_whole(value), "a number"
        case "shared_bytes" | "m" | "n" | "k" | "batch" | "lda" | "ldb" | "ldc":
            fits, words = _is_whole(value), "a whole number: a // b or ceil_div(a, b)"
    return "" if fits else words


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)
