"""The emulator's device memory: host memory between guard regions, with a limited total size."""

from __future__ import annotations

import ctypes
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mini_dnn.device.base import Buffer
from mini_dnn.device.emulator.runtime import Library, Runtime
from mini_dnn.device.host_memory import available_bytes
from mini_dnn.errors import DeviceError

MAX_BYTES = 1 << 30  # small, so that the runner splits large batches and the host needs little memory


@dataclass(eq=False)
class EmulatorBuffer:
    """An array in the emulator's memory."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    nbytes: int
    address: int | None  # None if freed
    owner: Library | None = None  # keeps the module of a symbol loaded
    release: weakref.finalize[Any, Any] | None = field(default=None, repr=False)

    def free(self) -> None:
        """Return the memory. Freeing it twice is harmless."""
        self.address = None
        if self.release:
            self.release()

    def part(self, first: int, last: int) -> EmulatorBuffer:
        """Return entries of the first axis: the same memory, valid until this buffer is freed."""
        if self.address is None:
            raise DeviceError(f"buffer '{self.name}' {self.shape} was freed and cannot be used again")
        entry = self.nbytes // self.shape[0]
        shape, nbytes = (last - first, *self.shape[1:]), (last - first) * entry
        return EmulatorBuffer(self.name, shape, self.dtype, nbytes, self.address + first * entry)

    def bytes(self) -> np.ndarray:
        """The memory as uint8, valid until the buffer is freed."""
        if self.address is None:
            raise DeviceError(f"buffer '{self.name}' {self.shape} was freed and cannot be used again")
        return np.ctypeslib.as_array((ctypes.c_ubyte * self.nbytes).from_address(self.address))


class LentEmulatorBuffer(EmulatorBuffer):
    """An array in host memory that somebody else owns; see `mini_dnn.device.base.LentBuffer`."""

    def lie_at(self, address: int) -> None:
        """Set its current address."""
        self.address = address


def own(buffer: Buffer) -> EmulatorBuffer:
    """Return the buffer if it is one of the emulator."""
    if not isinstance(buffer, EmulatorBuffer):
        raise DeviceError(f"buffer '{buffer.name}' belongs to another device")
    return buffer


class Memory:
    """Allocates buffers and tracks the total size."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.budget = min(MAX_BYTES, available_bytes() // 4)
        self._live: dict[int, weakref.ref[EmulatorBuffer]] = {}  # by address
        self._used = 0

    @property
    def free_bytes(self) -> int:
        """The bytes that may still be allocated."""
        return max(0, self.budget - self._used)

    def live(self) -> list[EmulatorBuffer]:
        """Return the buffers that are allocated and not freed."""
        return [buffer for reference in self._live.values() if (buffer := reference()) is not None]

    def allocate(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> EmulatorBuffer:
        """Allocate a buffer filled with bytes 0xFF."""
        if any(side < 0 for side in shape):
            raise DeviceError(f"buffer '{name}' cannot have the shape {shape}: no side may be negative")
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        address = self._runtime.allocate(nbytes) if nbytes <= self.free_bytes else None
        if address is None:
            raise DeviceError(
                f"out of device memory: '{name}' {shape} {dtype} needs {nbytes / 1e6:.1f} MB, and "
                f"{self.free_bytes / 1e6:.1f} of the emulator's {self.budget / 1e6:.1f} MB are free; "
                "free buffers, or use a smaller batch"
            )
        self._used += nbytes
        return self._alive(EmulatorBuffer(name, shape, dtype, nbytes, address), nbytes)

    def allocate_sparse(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> EmulatorBuffer:
        """Allocate a buffer of zeros of any size. It only takes memory where it is touched."""
        nbytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
        address = self._runtime.allocate_sparse(nbytes)
        if address is None:
            raise DeviceError(f"this process has no {nbytes:,} addresses left for '{name}'; see ulimit -v")
        return self._alive(EmulatorBuffer(name, shape, dtype, nbytes, address), 0)

    def _alive(self, buffer: EmulatorBuffer, used: int) -> EmulatorBuffer:
        assert buffer.address is not None, "it is new"
        self._live[buffer.address] = weakref.ref(buffer)
        buffer.release = weakref.finalize(buffer, self._release, buffer.address, buffer.nbytes, used)
        buffer.release.atexit = False  # at exit, the system frees everything
        return buffer

    def _release(self, address: int, nbytes: int, used: int) -> None:
        self._runtime.free(address, nbytes)
        self._used -= used
        del self._live[address]

    def free_all(self) -> None:
        """Free every buffer that is still allocated."""
        for reference in list(self._live.values()):
            buffer = reference()
            if buffer is not None:
                buffer.free()

    def at(self, address: int) -> EmulatorBuffer | None:
        """Return the buffer that starts at an address."""
        reference = self._live.get(address)
        return reference() if reference else None

    def locate(self, address: int) -> str:
        """Describe a bad address relative to the nearest buffer."""
        nearest: tuple[int, str] | None = None
        for start, reference in self._live.items():
            buffer = reference()
            if buffer is None:
                continue
            before, past = start - address, address - (start + buffer.nbytes)
            if before > 0:
                text = f"{before} bytes before the start of '{buffer.name}' {buffer.shape} {buffer.dtype}"
            else:
                text = f"{past} bytes past the end of '{buffer.name}' {buffer.shape} {buffer.dtype}"
            nearest = min(nearest or (1 << 64, ""), (max(before, past), text))
        if nearest is None or nearest[0] > 1 << 20:
            return f"address {address:#x}, which is near no buffer"
        return nearest[1]
