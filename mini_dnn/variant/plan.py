"""The steps of a plan: launches, copies, the order of streams, other variants, and the one library call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.clusters import ALONE, Sizes, three_sizes
from mini_dnn.device.product import Product
from mini_dnn.ops import Problem
from mini_dnn.variant.tensor_map import TensorMap


@dataclass(frozen=True)
class Images:
    """Entries ``first`` to ``last - 1`` of the first axis of a buffer, such as images."""

    buffer: str
    first: int
    last: int


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

    @property
    def config(self) -> LaunchConfig:
        """The launch without its kernel, arguments and stream."""
        sizes = tuple(self.grid), tuple(self.block)
        return LaunchConfig(*sizes, self.shared_bytes, self.cluster_sizes, self.early)


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


Step = Launch | CopyToSymbol | CopyIn | CopyOut | RoundTrip | Gemm | Record | Wait  # steps that are executed
WrittenStep = Step | Call  # steps that a variant may write


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
