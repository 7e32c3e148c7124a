"""The protocol that every device speaks: a GPU through PyCUDA, and the CPU emulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from mini_dnn.device.clusters import ALONE, Sizes
from mini_dnn.device.product import Product
from mini_dnn.device.tensor_map import UNIT, MapGeometry
from mini_dnn.errors import LaunchError

GRID_LIMIT = (2**31 - 1, 65535, 65535)  # blocks; CUDA C++ Programming Guide, technical specifications

Scalar = np.generic  # a kernel argument passed by value: np.int32, np.int64, np.float32 ...
Defines = Mapping[str, int | float | str]
Work = Callable[[], None]  # gives a stream something to do, and does not wait for it


class Buffer(Protocol):
    """An array in a device's global memory, C order."""

    name: str  # what error messages call it
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int

    @property
    def address(self) -> int | None:
        """The address of its first byte; None if it was freed."""

    def free(self) -> None:
        """Return the memory; the buffer must not be used again. Freeing twice is harmless."""


class LentBuffer(Buffer, Protocol):
    """An array of somebody else's, which may lie elsewhere each time that it is used."""

    def lie_at(self, address: int) -> None:
        """From now on it lies there."""


@dataclass(frozen=True)
class MappedBuffer:
    """An argument of a launch: a tensor map of a buffer, from its first byte on."""

    buffer: Buffer
    geometry: MapGeometry

    def at(self, address: int) -> tuple[int, MapGeometry]:
        """The address and the geometry, if the hardware can copy from there.

        Raises
        ------
        LaunchError
            It cannot, or the map reaches beyond the buffer.
        """
        fault = self.geometry.fault(self.buffer.nbytes)
        if not fault and address % UNIT:
            fault = (
                f"the buffer is {address % UNIT} bytes past a multiple of {UNIT} bytes, but tensor "
                f"copies must "
                "start at such a multiple: copy it to a separate buffer first"
            )
        if fault:
            raise LaunchError(f"the tensor map of '{self.buffer.name}' cannot be created: {fault}")
        return address, self.geometry


class Module(Protocol):
    """A compiled ``.cu`` file."""

    source: Path
    compile_ms: float  # wall time that compiling and loading took; small when the cache had it


class Graph(Protocol):
    """Work that was recorded once, with its arguments: see `Device.capture`."""

    def replay(self) -> None:
        """Give the stream all of it again, as one; what arrays hold by then is what it works on."""

    def free(self) -> None:
        """Let go of it; it must not be replayed again. Freeing twice is harmless."""


class ForeignStream(Protocol):
    """A stream that another library made. Its work is made ready once, and then given to it often.

    Where a `LentBuffer` among the arguments lies counts when the work is given.
    """

    def is_current(self) -> bool:
        """Whether this thread can give it work as it is; if not, it can within `Device.entered`."""

    def is_captured(self) -> bool:
        """Whether what it is given is recorded for a graph, and not done."""

    def number(self) -> int | None:
        """One of its own: a stream that is made after another has gone may have the same handle.

        None while the stream is captured, where the device does not tell.
        """

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Buffer | Scalar | MappedBuffer],
        shared_bytes: int,
        cluster: Sizes,
        early: bool,
    ) -> Work:
        """The launch of a kernel: see `Device.launch`."""

    def copy(self, target: Buffer, source: Buffer) -> Work:
        """The copy of all of ``source`` to the front of ``target``."""

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer) -> Work:
        """The product: see `Device.gemm`."""

    def follow(self, handle: int) -> None:
        """Let what it is given from now on wait for all that another stream has been given so far."""

    def mark(self) -> Callable[[], bool]:
        """A function that says whether all that it has been given so far is done."""

    def free(self) -> None:
        """Free what its work needs on the device; it must not be given again."""


class Device(Protocol):
    """Compiles kernels, owns memory, launches, and (on a GPU) times.

    Work on one stream runs in order; streams are numbered from 0 and exist when first named.
    Every method raises `mini_dnn.errors.DeviceError` or one of its subclasses.
    """

    name: str  # "cuda" or "emulator"
    description: str  # for people: "NVIDIA H200 (sm_90), CUDA 13.0" or "CPU emulator, 2 threads"
    arch: int  # compute capability times ten: 90 is sm_90
    max_shared_bytes: int  # of shared memory that a block may have
    has_clock: bool  # False: `elapsed_ms` is refused, as CPU time does not predict GPU time
    reaches_host: bool  # whether kernels can address all memory of the process that launches them

    def compile(self, source: Path, defines: Defines) -> Module:
        """Compile one ``.cu`` file with preprocessor definitions, or load it from the cache.

        Raises
        ------
        CompileError
            With the compiler's messages, which name the file and line as the user knows them.
        """

    def symbol(self, module: Module, name: str) -> Buffer:
        """The ``__constant__`` or ``__device__`` variable of that name, as a buffer of bytes (uint8)."""

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, fill: bool = True
    ) -> Buffer:
        """Allocate a buffer filled with bytes 0xFF: NaN in floating point, so unwritten outputs are seen.

        With ``fill=False``, the caller has to `fill` it.
        """

    def fill(self, buffer: Buffer) -> None:
        """Fill a buffer with bytes 0xFF."""

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: int = 0) -> None:
        """Copy a C-contiguous host array of the buffer's dtype and size to the device."""

    def copy_out(self, buffer: Buffer, out: np.ndarray, stream: int = 0, wait: bool = True) -> None:
        """Copy a buffer into a C-contiguous host array of its dtype and size, after all work before it.

        With ``wait=False``, it may return before the copy is complete if the array is `pinned`.
        """

    def part(self, buffer: Buffer, first: int, last: int) -> Buffer:
        """Entries ``first`` to ``last - 1`` of the buffer's first axis: the same memory, not a copy."""

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        """Allocate a page-locked host array, which the GPU can copy while the host continues."""

    def shared(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32
    ) -> tuple[Buffer, np.ndarray]:
        """Allocate a buffer in host memory that kernels access over the bus, and the host array of it.

        It suits small data that a kernel accesses once, for which a copy would take longer.
        """

    def copy(self, target: Buffer, source: Buffer, stream: int = 0) -> None:
        """Copy all of ``source`` to the front of ``target``, device to device."""

    def receive(self, target: Buffer, source: Buffer, sender: Device) -> None:
        """Copy all of ``source``, which another device of the same kind has, to the front of ``target``.

        The data must be complete: the copy does not wait for work of ``sender``.
        """

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Buffer | Scalar | MappedBuffer],
        shared_bytes: int = 0,
        stream: int = 0,
        cluster: Sizes = ALONE,
        early: bool = False,
    ) -> None:
        """Launch an ``extern "C" __global__`` kernel; ``grid`` and ``block`` have one to three entries.

        ``cluster`` and ``early`` are those of `mini_dnn.variant.Launch`.

        Raises
        ------
        LaunchError
            No such kernel, impossible geometry, or a failure while it ran. A GPU may report the
            latter only at the next `synchronize` or copy.
        """

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer, stream: int = 0) -> None:
        """Compute a matrix product with the device's library, in the types of the buffers."""

    def wait(self, event: Any, stream: int) -> None:
        """Let all later work on the stream wait for the event."""

    def record(self, stream: int = 0) -> Any:
        """Record an event, which is complete when all earlier work on the stream is."""

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds between two recorded events; waits for the second."""

    def capture(self, work: Callable[[], None], stream: int = 0) -> Graph:
        """Record the copies and launches that ``work`` issues on the stream, so that they can be replayed.

        ``work`` may use other streams if they first wait for this one, and this one waits for them at the
        end. Its host arrays must be `pinned`, and it must not allocate or synchronise. A device may run it
        once before it records it, so it must not overwrite data that are still needed. Arrays and buffers
        must live as long as the graph.

        Raises
        ------
        DeviceError
            The work cannot be recorded.
        """

    def flush_cache(self) -> None:
        """Overwrite the L2 cache, so that the next run reads its input from memory."""

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for all work on all streams, or on one, and raise its errors."""

    def free_bytes(self) -> int:
        """Bytes that may still be allocated; the runner splits batches to fit."""

    def close(self) -> None:
        """Release the device. Closing twice is harmless."""

    def lent(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> LentBuffer:
        """A buffer in memory that another library owns; its address is set later."""

    def foreign_stream(self, handle: int) -> ForeignStream:
        """The stream of another library that has this handle; 0 is the default stream."""

    def entered(self) -> AbstractContextManager[None]:
        """A context in which this thread works on the device, whichever device it works on otherwise."""
