"""The protocol of devices, which the GPU (through PyCUDA) and the CPU emulator implement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from mini_dnn.device.clusters import ALONE, Sizes
from mini_dnn.device.product import Product
from mini_dnn.device.tensor_map import UNIT, MapGeometry
from mini_dnn.errors import DeviceError, LaunchError

DEFAULT_SHARED_BYTES = 48 * 1024  # dynamic, of a block; a kernel that needs more must ask for it
GRID_LIMIT = (2**31 - 1, 65535, 65535)  # blocks; CUDA C++ Programming Guide, technical specifications

Scalar = np.generic  # a kernel argument passed by value: np.int32, np.int64, np.float32 ...
Defines = Mapping[str, int | float | str]
Work = Callable[[], None]  # gives work to a stream without waiting for it


class Buffer(Protocol):
    """An array in a device's global memory, C order."""

    name: str  # the name in error messages
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int

    @property
    def address(self) -> int | None:
        """The address of the first byte, or None if the buffer was freed."""

    def free(self) -> None:
        """Return the memory. The buffer must not be used again. Freeing it twice is harmless."""


def check_room(target: Buffer, source: Buffer) -> None:
    """Raise an error unless all of ``source`` can be copied to ``target``."""
    if source.nbytes > target.nbytes:
        raise DeviceError(
            f"'{source.name}' has {source.nbytes} bytes and '{target.name}' holds {target.nbytes}"
        )


def check_host(buffer: Buffer, array: np.ndarray, write: bool = False) -> None:
    """Raise an error unless a host array can be copied to the buffer as it is, or from it with ``write``."""
    if write and not array.flags.writeable:
        raise DeviceError(f"'{buffer.name}' cannot be copied to a host array that is read-only")
    if array.dtype != buffer.dtype or array.nbytes != buffer.nbytes or not array.flags.c_contiguous:
        order = "" if array.flags.c_contiguous else ", not C-contiguous"
        raise DeviceError(
            f"buffer '{buffer.name}' is {buffer.shape} {buffer.dtype}; the host array is {array.shape} "
            f"{array.dtype}{order}. It must be C-contiguous, of the same dtype and {buffer.nbytes} bytes"
        )


class LentBuffer(Buffer, Protocol):
    """An array that belongs to somebody else, and that may have another address each time it is used."""

    def lie_at(self, address: int) -> None:
        """Set its current address."""


@dataclass(frozen=True)
class MappedBuffer:
    """An argument of a launch: a tensor map of a buffer, beginning at its first byte."""

    buffer: Buffer
    geometry: MapGeometry

    def at(self, address: int) -> tuple[int, MapGeometry]:
        """Return the address and the geometry, after checking that the hardware can copy from there.

        Raises
        ------
        LaunchError
            The hardware cannot copy from there, or the map exceeds the buffer.
        """
        fault = self.geometry.fault(self.buffer.nbytes)
        if not fault and address % UNIT:
            fault = (
                f"the buffer is {address % UNIT} bytes past a multiple of {UNIT} bytes, but tensor copies "
                "must start at such a multiple: copy it to a separate buffer first"
            )
        if fault:
            raise LaunchError(f"the tensor map of '{self.buffer.name}' cannot be created: {fault}")
        return address, self.geometry


KernelArg = Buffer | Scalar | MappedBuffer
KernelArgs = Sequence[KernelArg]


class LaunchConfig(NamedTuple):
    """How a kernel is launched. The fields are described in `mini_dnn.variant.Launch`."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int = 0
    cluster: Sizes = ALONE
    early: bool = False


class Module(Protocol):
    """A compiled ``.cu`` file."""

    source: Path
    compile_ms: float  # wall time of compiling and loading; small if the cache had it


class Graph(Protocol):
    """Recorded work with its arguments, see `Device.capture`."""

    def replay(self) -> None:
        """Give all of the recorded work to the stream again. It uses the current contents of the arrays."""

    def free(self) -> None:
        """Release the graph. It must not be replayed again. Freeing it twice is harmless."""


class ForeignStream(Protocol):
    """A stream that another library created. Its work is prepared once, and then issued many times.

    The address of a `LentBuffer` among the arguments is read when the work is issued.
    """

    def is_current(self) -> bool:
        """Whether this thread can issue work as it is. If not, it can do so within `Device.entered`."""

    def is_captured(self) -> bool:
        """Whether work on the stream is being captured for a graph instead of executed."""

    def number(self) -> int | None:
        """Return a unique number, because a new stream may have the same handle as one that no longer exists.

        The result is None while the stream is captured, if the device does not tell.
        """

    def launch(self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs) -> Work:
        """Prepare the launch of a kernel: see `Device.launch`."""

    def copy(self, target: Buffer, source: Buffer) -> Work:
        """Prepare a copy of all of ``source`` to the beginning of ``target``."""

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer) -> Work:
        """Prepare a matrix product: see `Device.gemm`."""

    def follow(self, handle: int) -> None:
        """Let later work on this stream wait for all work that another stream has so far."""

    def mark(self) -> Callable[[], bool]:
        """Return a function that tells whether all work that the stream has so far is done."""

    def free(self) -> None:
        """Free the device memory that its work needs. The work must not be issued again."""


class Device(Protocol):
    """Compiles kernels, owns memory, launches kernels, and (on a GPU) measures times.

    Work on one stream runs in order. Streams are numbered from 0 and are created when first named. Every
    method raises `mini_dnn.errors.DeviceError` or one of its subclasses.
    """

    name: str  # "cuda" or "emulator"
    description: str  # in words: "NVIDIA H200 (sm_90), CUDA 13.0" or "CPU emulator, 2 threads"
    arch: int  # compute capability times ten: 90 is sm_90
    max_shared_bytes: int  # the most shared memory of a block
    has_clock: bool  # if False, `elapsed_ms` raises an error, because CPU time does not predict GPU time
    reaches_host: bool  # whether kernels can address all memory of the process that launches them

    def compile(self, source: Path, defines: Defines) -> Module:
        """Compile one ``.cu`` file with preprocessor definitions, or load it from the cache.

        Raises
        ------
        CompileError
            The compilation failed. The message names file and line as the user knows them.
        """

    def symbol(self, module: Module, name: str) -> Buffer:
        """Return the ``__constant__`` or ``__device__`` variable of this name, as a buffer of uint8."""

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, fill: bool = True
    ) -> Buffer:
        """Allocate a buffer filled with bytes 0xFF, which are NaN, so that unwritten outputs are noticed.

        With ``fill=False``, the caller must `fill` it.
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
        """Return entries ``first`` to ``last - 1`` of the buffer's first axis, without a copy."""

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        """Allocate a page-locked host array, which the GPU can copy while the host continues."""

    def shared(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32
    ) -> tuple[Buffer, np.ndarray]:
        """Allocate a buffer in host memory that kernels access over the bus, with its host array.

        It suits small data that a kernel accesses only once, for which a copy would take longer.
        """

    def copy(self, target: Buffer, source: Buffer, stream: int = 0) -> None:
        """Copy all of ``source`` to the beginning of ``target`` on the device."""

    def receive(self, target: Buffer, source: Buffer, sender: Device) -> None:
        """Copy all of ``source``, which is on another device of this kind, to the beginning of ``target``.

        The data must be complete, because the copy does not wait for work of ``sender``.
        """

    def launch(
        self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs, stream: int = 0
    ) -> None:
        """Launch an ``extern "C" __global__`` kernel.

        Raises
        ------
        LaunchError
            There is no such kernel, the geometry is impossible, or the kernel failed. A GPU may report a
            failed kernel only at the next `synchronize` or copy.
        """

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer, stream: int = 0) -> None:
        """Compute a matrix product with the device's library, in the data types of the buffers."""

    def wait(self, event: Any, stream: int) -> None:
        """Let all later work on a stream wait for an event."""

    def record(self, stream: int = 0) -> Any:
        """Record an event, which is complete when all earlier work on the stream is complete."""

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the milliseconds between two recorded events. Waits for the second one."""

    def capture(self, work: Callable[[], None], stream: int = 0) -> Graph:
        """Record the copies and launches that ``work`` issues on a stream, so that they can be replayed.

        ``work`` may use other streams if they first wait for this stream, and if this stream waits for them
        at the end. Its host arrays must be `pinned`, and it must not allocate or synchronise. A device may
        run it once before recording, so it must not overwrite data that are still needed. Arrays and buffers
        must exist as long as the graph.

        Raises
        ------
        DeviceError
            The work cannot be recorded.
        """

    def flush_cache(self) -> None:
        """Overwrite the L2 cache, so that the next run reads its input from memory."""

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for all work on one stream, or on all streams, and raise its errors."""

    def free_bytes(self) -> int:
        """Return the number of bytes that may still be allocated. The runner splits batches to fit."""

    def close(self) -> None:
        """Release the device. Closing twice is harmless."""

    def lent(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> LentBuffer:
        """Return a buffer for memory that another library owns. Its address is set later."""

    def foreign_stream(self, handle: int) -> ForeignStream:
        """Return the stream of another library with this handle; 0 is the default stream."""

    def entered(self) -> AbstractContextManager[None]:
        """Return a context in which this thread works on the device, whichever device it uses otherwise."""
