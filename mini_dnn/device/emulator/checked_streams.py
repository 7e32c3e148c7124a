"""Checked mode for plans with several streams, and for plans that run repeatedly on the same memory."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mini_dnn.device.base import Buffer, Defines, KernelArgs, LaunchConfig, Module
from mini_dnn.device.emulator.build import words_of
from mini_dnn.device.emulator.checked import STEP_LIMIT, CheckedEmulator
from mini_dnn.device.emulator.emulator import EmulatorModule
from mini_dnn.device.emulator.memory import EmulatorBuffer
from mini_dnn.device.emulator.stream_order import READS, WRITES, Clash, StreamOrder, Work
from mini_dnn.device.finding import Target
from mini_dnn.errors import LaunchError


class StreamClash(LaunchError):
    """Two streams conflict at one element of an array."""

    def __init__(self, clash: Clash, array: Target) -> None:
        super().__init__(f"work on two streams meets at {array.index(clash.offset)}, and nothing orders it")
        self.clash, self.array = clash, array


class StreamEmulator(CheckedEmulator):
    """Checked mode that can also track what each stream does.

    Work still runs as soon as it is issued, which is one of the possible orders of the streams.
    """

    def __init__(self, limit: int = STEP_LIMIT, *, ucontext: bool = False) -> None:
        super().__init__(limit, ucontext=ucontext)
        self._lib.emulator_touched.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
        self._lib.emulator_touched.restype = ctypes.c_int
        self._lib.emulator_now.restype = ctypes.c_uint32
        self._lib.emulator_forget.argtypes = [ctypes.c_uint32]
        self.order: StreamOrder | None = None
        self._buffers: dict[int, tuple[Target, int]] = {}  # with their size in bytes, by address

    def follow_streams(self, follow: bool) -> StreamOrder | None:
        """Turn the tracking of streams on or off. Earlier information about streams is forgotten."""
        self.order = StreamOrder() if follow else None
        self._buffers.clear()
        return self.order

    def words(self, source: Path, defines: Defines) -> str:
        """Return a kernel file after macro expansion, with CUDA's qualifiers and with line markers."""
        return words_of(source, defines, self._compiler)

    def variable_bytes(self, module: Module) -> dict[str, int]:
        """Return the sizes of the ``__constant__`` and ``__device__`` variables of a compiled file."""
        assert isinstance(module, EmulatorModule), "it is this device's"
        return {variable.name: variable.nbytes for variable in self._symbols[module.path].variables}

    def now(self) -> int:
        """The time on the clock of checked mode."""
        return int(self._lib.emulator_now())

    def forget_since(self, time: int) -> None:
        """Treat what kernels have written since then as unwritten, including variables."""
        self._lib.emulator_forget(time)

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, fill: bool = True
    ) -> EmulatorBuffer:
        """Allocate a buffer that kernels must write before reading it."""
        buffer = super().empty(name, shape, dtype, fill)
        if self.order and buffer.address:
            size = buffer.dtype.itemsize
            array = Target(name, "global", buffer.shape, size, self.axes.get(name, ""))
            self._watch(buffer.address, array, buffer.nbytes, _unit(size))
        return buffer

    def fill(self, buffer: Buffer) -> None:
        """Fill a buffer with bytes 0xFF, synchronously."""
        super().fill(buffer)
        if self.order:
            self.order.wait_on_host()

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: int = 0) -> None:
        """Copy a host array to a buffer."""
        super().copy_in(buffer, array, stream)
        self._copied("copy_in", buffer, stream, WRITES)

    def copy_out(self, buffer: Buffer, out: np.ndarray, stream: int = 0, wait: bool = True) -> None:
        """Copy a buffer to a host array."""
        super().copy_out(buffer, out, stream, wait)
        self._copied("copy_out", buffer, stream, READS)
        if wait and self.order:
            self.order.wait_on_host(stream)

    def copy(self, target: Buffer, source: Buffer, stream: int = 0) -> None:
        """Copy all of ``source`` to the beginning of ``target``."""
        super().copy(target, source, stream)
        if self.order is None:
            return
        work = self.order.begin("copy", target.name, stream)
        for buffer, how in ((source, READS), (target, WRITES)):
            self._touch(work, buffer, source.nbytes, how)

    def launch(
        self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs, stream: int = 0
    ) -> None:
        """Run a kernel to its end or until the first finding, and track the elements that it uses."""
        work = self.order.begin("launch", kernel, stream) if self.order else None
        super().launch(module, kernel, config, args, stream)
        if self.order is None or work is None:
            return
        assert isinstance(module, EmulatorModule), "it was launched"
        base, (first, last) = self._base(module), self._symbols[module.path].data
        for address, (name, nbytes) in self._variables.items():
            if base + first <= address < base + last:
                self._know_variable(address, name, nbytes)
        for address, (array, _) in self._buffers.items():
            touched = np.zeros(self.order.pieces(address), np.uint8)
            if self._lib.emulator_touched(address, touched.ctypes.data, len(touched)):
                self._look(self.order.touch(work, address, touched), array)

    def record(self, stream: int = 0) -> Any:
        """Record how far a stream has come."""
        super().record(stream)
        return self.order.record(stream) if self.order else None

    def wait(self, event: Any, stream: int) -> None:
        """Order later work on the stream after the event."""
        super().wait(event, stream)
        if self.order and event is not None:
            self.order.wait(event, stream)

    def synchronize(self, stream: int | None = None) -> None:
        """Let the host wait."""
        super().synchronize(stream)
        if self.order:
            self.order.wait_on_host(stream)

    def _watch(self, address: int, array: Target, nbytes: int, unit: int) -> None:
        assert self.order is not None, "the caller looks"
        self._buffers[address] = array, nbytes
        self.order.watch(address, nbytes, unit)

    def _know_variable(self, address: int, name: str, nbytes: int) -> None:
        if self.order and not self.order.knows(address):
            self._watch(address, Target(name, "constant or device", (nbytes // 4,), 4), nbytes, 4)

    def _copied(self, kind: str, buffer: Buffer, stream: int, how: int) -> None:
        if self.order:
            at, base = buffer.address or 0, self._buffer_of(buffer.address or 0)
            part = (at - base, at - base + buffer.nbytes) if base else (0, 0)
            self._touch(self.order.begin(kind, buffer.name, stream, part), buffer, buffer.nbytes, how)

    def _touch(self, work: Work, buffer: Buffer, nbytes: int, how: int) -> None:
        address = buffer.address
        assert self.order is not None, "the caller looks"
        assert address is not None, "it was used"
        if address in self._variables:
            self._know_variable(address, *self._variables[address])
        base = self._buffer_of(address)
        if base:
            clash = self.order.touch_range(work, base, address - base, address - base + nbytes, how)
            self._look(clash, self._buffers[base][0])

    def _buffer_of(self, address: int) -> int:
        """Return the start of the tracked buffer or variable that contains an address; 0 if there is none."""
        return next((at for at, (_, size) in self._buffers.items() if at <= address < at + size), 0)

    def _look(self, clash: Clash | None, array: Target) -> None:
        if clash:
            raise StreamClash(clash, array)


def _unit(itemsize: int) -> int:
    """The bytes of a piece, the same as in checked mode."""
    return itemsize if itemsize < 4 else 4
