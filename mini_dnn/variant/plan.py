"""The steps of a plan: launches, copies, the order of streams, other variants, and the one library call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.clusters import ALONE, Sizes, three_sizes
from mini_dnn.device.product import LAYOUTS, Product
from mini_dnn.device.tensor_map import ELEMENTS, MapGeometry
from mini_dnn.errors import VariantError
from mini_dnn.ops import Problem


@dataclass(frozen=True)
class Images:
    """Entries ``first`` to ``last - 1`` of the first axis of a buffer, such as images."""

    buffer: str
    first: int
    last: int


@dataclass(frozen=True)
class TensorMap:
    """Boxes of a buffer for tensor copies (``ptx::tensor_load``, ``ptx::tensor_store``).

    The parameter of the kernel is ``const __grid_constant__ ptx::TensorMap``. Elements of a box outside of
    the shape are read as zeros and are not written. A box starts at a multiple of 16 bytes of its row.

    Parameters
    ----------
    buffer
        Name of an array of the problem, or of a scratch buffer.
    box
        The number of elements that one copy moves along each of two or three axes, the innermost last:
        ``(128, 64)`` is 128 rows of 64 elements. At most 256 each. A row has exactly ``swizzle`` bytes, or
        without a swizzle a multiple of 16.
    shape
        Elements along each axis, the innermost last; by default those of the buffer's last axes.
    strides
        Elements from one entry to the next, for all axes but the last, whose elements are adjacent:
        multiples of 16 bytes. By default those of the buffer's last axes if ``shape`` fits into these,
        otherwise those of ``shape`` without gaps.
    swizzle
        In bytes. 128: in rows of 128 bytes in shared memory, the 16 bytes ``c`` of row ``r`` are at
        ``c ^ (r % 8)``, as ``ptx::matrix_descriptor_128b`` expects: bits 4 to 6 of an address are XORed with
        bits 7 to 9. With 64, bits 4 and 5 are changed; with 32, bit 4. 0: no swizzle.
    dtype
        ``"float16"``, ``"bfloat16"`` or ``"float32"``; by default the buffer's.
    windows
        R, stride and padding of windows, for ``ptx::tensor_load_windows``, which loads one pixel of each of
        many windows. Then ``shape`` is (N, H, W, C) and ``box`` is the numbers of windows and channels of a
        copy: at most 1,024 and 256.
    """

    buffer: str
    box: tuple[int, ...]
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] | None = None
    swizzle: int = 128
    dtype: str | None = None
    windows: tuple[int, ...] | None = None

    def geometry(self, shape: tuple[int, ...], dtype: str, nbytes: int) -> MapGeometry:
        """The geometry of the map for a buffer.

        Parameters
        ----------
        shape, dtype, nbytes
            Of the buffer: entries along each axis, the name of NumPy's type, bytes.

        Raises
        ------
        VariantError
            No GPU can copy in this way, or not from this buffer; the message explains the reason and the
            solution.
        """
        kind, axes = self.dtype or dtype, len(self.box) if self.windows is None else 4
        if kind not in ELEMENTS:
            raise self._error(f"its elements are {kind}; give dtype= as one of {', '.join(ELEMENTS)}")
        same = len(shape) >= axes and np.dtype(dtype).itemsize == ELEMENTS[kind]
        if self.shape is None and axes in (2, 3, 4) and not (same and prod(shape[:-axes]) == 1):
            raise self._error(
                f"the buffer is {shape} {dtype}, the box {self.box} {kind}: give shape=, one side for each "
                "side of the box"
            )
        sides = tuple(shape[-axes:] if self.shape is None else self.shape)
        within = same and all(
            side <= whole for side, whole in zip(sides[1:], shape[1 - axes :], strict=False)
        )
        whole = tuple(shape[-axes:]) if within else sides
        dense = tuple(prod(whole[i:]) for i in range(1, axes))
        strides = dense if self.strides is None else tuple(self.strides)
        windows = None if self.windows is None else tuple(self.windows)
        found = MapGeometry(kind, sides, strides, tuple(self.box), self.swizzle, windows)
        if fault := found.fault(nbytes):
            raise self._error(fault)
        return found

    def _error(self, what: str) -> VariantError:
        return VariantError(f"the tensor map of '{self.buffer}' cannot be created: {what}")


@dataclass(frozen=True)
class Code:
    """A kernel file, and its preprocessor definitions."""

    source: Path
    defines: tuple[tuple[str, int], ...]


Argument = str | Images | TensorMap | int | float | np.generic


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
        In the order of the kernel. A string names a buffer (an array of the problem, or a scratch buffer),
        `Images` a part of one, `TensorMap` boxes of one. An int is passed as ``int``, a float as ``float``,
        and a NumPy scalar as its type.
    shared_bytes
        Dynamic shared memory of a block.
    stream
        Work on one stream runs in order. Work on different streams may overlap, except where `Record` and
        `Wait` order it.
    cluster
        The number of blocks, along x or along each axis, that run at the same time and can access each
        other's shared memory (``ptx::cluster_shared``). The grid is a multiple of it. It needs
        ``min_arch=90``.
    early
        The kernel may start before the previous one on the stream has ended, and calls ``ptx::grid_wait()``
        before it accesses data of that kernel.
    code
        The file of the kernel, if it is not the variant's own file; see `Call`.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    args: tuple[Argument, ...]
    shared_bytes: int = 0
    stream: int = 0
    cluster: int | tuple[int, ...] = 1
    early: bool = False
    code: Code | None = None

    @property
    def new_in_hopper(self) -> str:
        """The features that need a GPU of compute capability 9.0, as text; empty if there are none."""
        if self.cluster_sizes != ALONE:
            return f"cluster={self.cluster}"
        return "a TensorMap" if any(isinstance(argument, TensorMap) for argument in self.args) else ""

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
    """Copy a part of an input from pinned host memory. A plan with such a step copies the whole batch."""

    images: Images
    stream: int = 0


@dataclass(frozen=True)
class CopyOut:
    """Copy a part of an output to pinned host memory."""

    images: Images
    stream: int = 0


@dataclass(frozen=True)
class RoundTrip:
    """Copy a whole buffer to pinned host memory and back, as if the host computed a step.

    It measures the cost of these copies; the values do not change. The copies are part of the op and of its
    time, whereas those of `CopyIn` and `CopyOut` come before and after it.
    """

    buffer: str
    stream: int = 0


@dataclass(frozen=True)
class Gemm:
    """A matrix product in the types of its buffers, with sums in fp32, computed by cuBLAS.

    Parameters
    ----------
    a, b, c
        Names of buffers: arrays of the problem, or scratch buffers.
    m, n, k, layout, batch, alpha, beta, lda, ldb, ldc
        See `Product`.
    impl
        The name of a variant of the matrix product that computes it instead of the library, such as
        ``"gemm/v3_registers"``: this is a short form of `Call`.
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
        """The product, independent of the buffers."""
        return Product(**{field.name: getattr(self, field.name) for field in fields(Product)})


@dataclass(frozen=True)
class Call:
    """A problem that another variant solves on buffers of this plan; its launches replace the step.

    Parameters
    ----------
    impl
        The variant's name, such as ``"attention/v0_naive"``.
    problem
        One of its operation, such as ``AttentionShape(32, 12, 197, 64, layout="packed")``.
    arrays
        A buffer for each array of the problem: an array of this plan's problem, or a scratch buffer, of the
        same type. Its shape may be different if the array fits into it. Two arrays may share a buffer if the
        variant reads each element before it writes it, in the same thread.
    """

    impl: str
    problem: Problem
    arrays: Mapping[str, str]
    stream: int = 0


@dataclass(frozen=True)
class Record:
    """Record an event on a stream: it is complete when all earlier work on the stream is complete.

    Parameters
    ----------
    event
        The name to which a `Wait` refers. If a name is recorded several times, a wait refers to the last
        record before it.
    """

    event: str
    stream: int = 0


@dataclass(frozen=True)
class Wait:
    """Let all later work on a stream wait for an event that a `Record` has recorded on another stream.

    Parameters
    ----------
    event
        The name of an earlier `Record` in the same list of steps.
    """

    event: str
    stream: int = 0


Step = Launch | CopyToSymbol | CopyIn | CopyOut | RoundTrip | Gemm | Record | Wait  # that are done
WrittenStep = Step | Call  # that a variant may write


def waits_in_vain(steps: Sequence[Step]) -> list[Wait]:
    """The waits for events that no earlier step records; such a stream would not wait at all."""
    known: set[str] = set()
    found = []
    for step in steps:
        if isinstance(step, Record):
            known.add(step.event)
        elif isinstance(step, Wait) and step.event not in known:
            found.append(step)
    return found


def check_step(step: WrittenStep, variant: str) -> None:
    """Check that the fields of a step have their declared types.

    Raises
    ------
    VariantError
        A field has another type.
    """
    what = f"the launch of {step.kernel}" if isinstance(step, Launch) else f"a {type(step).__name__}"
    for name, value in vars(step).items():
        if expected := _expected(name, value):
            raise VariantError(f"{variant}: {what} has {name} {value!r}; it must be {expected}")
    for map_ in (a for a in getattr(step, "args", ()) if isinstance(a, TensorMap)):
        for name, value in vars(map_).items():
            if expected := _expected_of_map(name, value):
                raise VariantError(
                    f"{variant}: {what} has a TensorMap with {name} {value!r}; it must be {expected}"
                )


def _expected(name: str, value: Any) -> str:
    """What a field of a step must be, in words; empty if it is."""
    fits, words = isinstance(value, str), "a name in quotes"
    match name:
        case "grid" | "block":
            fits = isinstance(value, tuple | list) and all(map(_is_whole, value))
            words = "integers: (a // b, c) or (ceil_div(a, b), c)"
        case "cluster":
            given = value if isinstance(value, tuple) else (value,)
            fits = 1 <= len(given) <= 3 and all(map(_is_whole, given))
            words = "an integer, or a tuple of up to three: 2 or (2, 1)"
        case "early":
            fits, words = isinstance(value, bool), "True or False"
        case "args":
            fits, words = isinstance(value, tuple | list), 'a tuple of arguments: ("x", "y", s.N)'
        case "problem":
            fits, words = isinstance(value, Problem), "a problem of the variant's operation"
        case "arrays":
            fits = isinstance(value, Mapping) and all(isinstance(x, str) for x in (*value, *value.values()))
            words = 'names of arrays with names of buffers: {"qkv": "tokens", "o": "mixed"}'
        case "event":
            fits = isinstance(value, str) and value.isidentifier()
            words = 'a name such as "x_is_there"'
        case "images":
            fits, words = isinstance(value, Images), "a part of an array: Images(name, first, last)"
        case "stream":
            fits, words = _is_whole(value) and value >= 0, "an integer of 0 or more"
        case "code":
            fits, words = value is None or isinstance(value, Code), "None: the planner fills it in"
        case "layout":
            fits, words = value in LAYOUTS, f"one of {', '.join(LAYOUTS)}"
        case "alpha" | "beta":
            fits, words = isinstance(value, float | np.floating) or _is_whole(value), "a number"
        case "shared_bytes" | "m" | "n" | "k" | "batch" | "lda" | "ldb" | "ldc":
            fits, words = _is_whole(value), "an integer: a // b or ceil_div(a, b)"
    return "" if fits else words


def _expected_of_map(name: str, value: Any) -> str:
    """The same of a field of a `TensorMap`."""
    match name:
        case "buffer":
            return "" if isinstance(value, str) else "a name in quotes"
        case "swizzle":
            return "" if _is_whole(value) else "a number of bytes: 0, 32, 64 or 128"
        case "dtype":
            return "" if value in (None, *ELEMENTS) else f"one of {', '.join(ELEMENTS)}"
    fits = isinstance(value, tuple | list) and all(map(_is_whole, value))
    words = (
        "R, stride and padding: (3, 1, 1)"
        if name == "windows"
        else "integers, counted in elements: (128, 64)"
    )
    return "" if fits or (value is None and name != "box") else words


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)
