"""Checked mode: the emulator stops a launch at the first wrong access and explains it.

The kernel is compiled so that each memory access calls a hook in ``runtime/checked/hooks.cpp``. The hooks
know the bounds of all arrays, who wrote them last, and which barriers came in between. One worker runs the
blocks one after the other, so each run reports the same finding.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mini_dnn.device.base import Buffer, Defines, KernelArgs, LaunchConfig, Module
from mini_dnn.device.emulator.checked_finding import FailedLaunch, with_places
from mini_dnn.device.emulator.checked_interface import CFinding, CSharedArray, CTarget
from mini_dnn.device.emulator.declarations import read_only_and_not
from mini_dnn.device.emulator.emulator import EmulatorDevice, EmulatorModule
from mini_dnn.device.emulator.explain import explain_endless, explain_warp, places_in
from mini_dnn.device.emulator.explain_async import cure_of_fault, explain_wait
from mini_dnn.device.emulator.judged import Judged
from mini_dnn.device.emulator.memory import EmulatorBuffer
from mini_dnn.device.emulator.runtime import CFailure, FailureKind
from mini_dnn.device.emulator.symbols import Symbols, read_symbols, source_lines
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.errors import DeviceError, LaunchError

STEP_LIMIT = 50_000_000  # takes a second or two; blocks at the shapes of a check take a thousandth of it
ONE_CLUSTER = "clusters run one after the other here; if one waits for a later one, check a smaller problem"
SECONDS_WITHOUT_STEP = 2  # of CPU time, which does not depend on the load of the machine


class KernelError(LaunchError):
    """A launch that checked mode ended, with the finding."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(f"{finding.kind}: {finding.what}")
        self.finding = finding


class CheckedEmulator(EmulatorDevice):
    """The emulator with checks; see the module's docstring.

    Parameters
    ----------
    limit
        The number of memory accesses and barrier arrivals after which a block counts as endless.
    ucontext
        See `EmulatorDevice`.

    Raises
    ------
    DeviceError
        There is no compiler, or binutils are missing.
    """

    checked = True
    judged_only = False  # whether to run only libraries that the grader has checked

    def __init__(self, limit: int = STEP_LIMIT, *, ucontext: bool = False) -> None:
        super().__init__(threads=1, ucontext=ucontext)
        self._lib = self._runtime.library
        if self._lib.emulator_is_checked() != 1:
            raise DeviceError(
                "the runtime of checked mode was replaced by another one; this is a bug in mini_dnn"
            )
        self._lib.emulator_watch.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int]
        self._lib.emulator_watch_sparse.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._lib.emulator_sample.argtypes = [ctypes.c_uint64]
        self._lib.emulator_sample(0)
        self._sample = 0
        self._lib.emulator_unwatch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._lib.emulator_host_wrote.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        self._lib.emulator_target.argtypes = [ctypes.POINTER(CTarget)]
        self._lib.emulator_read_only.argtypes = [ctypes.c_void_p]
        self._lib.emulator_launch_order.argtypes = [ctypes.c_char_p, ctypes.c_int]
        self._lib.emulator_schedule.argtypes = [ctypes.c_int, ctypes.c_uint64]
        self._lib.emulator_limit_steps.argtypes = [ctypes.c_uint64]
        self._lib.emulator_limit_steps(limit)
        self._lib.emulator_steps.restype = ctypes.c_uint64
        self._limit = limit
        self._progress = 0, 0.0  # the last number of steps, and the CPU time at which it changed
        self.set_schedule(0, 0)  # the library outlives a device
        self._lib.emulator_base.restype = ctypes.c_uint64
        self._lib.emulator_base.argtypes = [ctypes.c_void_p]
        self._symbols: dict[Path, Symbols] = {}
        self._judged: dict[Path, Judged | None] = {}
        self._variables: dict[int, tuple[str, int]] = {}  # name and bytes, by address
        self.axes: Mapping[str, str] = {}  # letters of each buffer's axes, for messages
        self.undefined: list[Finding] = []  # shuffles from absent lanes, by their calls
        self.forget_undefined()
        self._launch = LaunchConfig((), ())
        self._last: int | None = None  # the stream of the last launch, if nothing followed it
        self.description += ", checked"

    def compile(self, source: Path, defines: Defines) -> EmulatorModule:
        """Compile a kernel file with checks."""
        module = super().compile(source, defines)
        if module.path not in self._symbols:
            self._symbols[module.path] = read_symbols(module.path)
            self._judged[module.path] = judged = Judged.of(module.path)
            if judged is None and self.judged_only:
                raise DeviceError(f"the machine code of {source} was not judged; this is a bug in mini_dnn")
        base, symbols = self._base(module), self._symbols[module.path]
        self._lib.emulator_unwatch(base + symbols.data[0], base + symbols.data[1])
        for variable in symbols.variables:
            address = base + variable.offset
            self._lib.emulator_watch(address, variable.nbytes, 4, 1)
            self._variables[address] = variable.name, variable.nbytes
        return module

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, fill: bool = True
    ) -> EmulatorBuffer:
        """Allocate a buffer that kernels must write before reading it."""
        if self._sample:
            return self._sparse(name, shape, np.dtype(dtype))
        buffer = super().empty(name, shape, dtype, fill)
        assert buffer.address is not None, "it is new"
        self._lib.emulator_watch(buffer.address, buffer.nbytes, buffer.dtype.itemsize, 0)
        return buffer

    def fill(self, buffer: Buffer) -> None:
        """Fill a buffer with bytes 0xFF. It counts as unwritten."""
        super().fill(buffer)
        self._wrote(buffer, known=False)

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: int = 0) -> None:
        """Copy a host array to a buffer."""
        super().copy_in(buffer, array, stream)
        self._wrote(buffer)

    def copy(self, target: Buffer, source: Buffer, stream: int = 0) -> None:
        """Copy all of ``source`` to the beginning of ``target``."""
        super().copy(target, source, stream)
        self._wrote(target)

    def copy_out(self, buffer: Buffer, out: np.ndarray, stream: int = 0, wait: bool = True) -> None:
        """Copy a buffer to a host array. The next launch begins after the copy is complete."""
        super().copy_out(buffer, out, stream, wait)
        self._last = None

    def wait(self, event: Any, stream: int) -> None:
        """Order the next launch after all earlier ones."""
        super().wait(event, stream)
        self._last = None

    def synchronize(self, stream: int | None = None) -> None:
        """Order the next launch after all earlier ones."""
        super().synchronize(stream)
        self._last = None

    def launch(
        self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs, stream: int = 0
    ) -> None:
        """Run a kernel to its end, or until the first finding.

        Raises
        ------
        KernelError
            There is a finding.
        """
        assert isinstance(module, EmulatorModule), "it is this device's"
        symbols, base = self._symbols[module.path], self._base(module)
        shared = (CSharedArray * len(symbols.shared))(
            *(CSharedArray(v.offset, v.nbytes, v.is_array) for v in symbols.shared)
        )
        target = CTarget(base, base + symbols.data[0], base + symbols.data[1], module.library.anchor, shared)
        target.shared_count = len(symbols.shared)
        judged = self._judged[module.path]
        if judged is not None:
            judged.fill(target)
        self._lib.emulator_target(target)
        for address in read_only_and_not(module.source, kernel, args):
            self._lib.emulator_read_only(address)
        self._launch = config
        self._progress = 0, time.process_time()
        self._lib.emulator_launch_order(kernel.encode(), config.early and self._last == stream)
        self._last = stream
        try:
            super().launch(module, kernel, config, args, stream)
        finally:
            self._note_undefined(module, kernel)

    def _note_undefined(self, module: EmulatorModule, kernel: str) -> None:
        found = CFailure()
        while len(self.undefined) < self._lib.emulator_undefined(len(self.undefined), ctypes.byref(found)):
            me = Party(None, tuple(found.block), tuple(found.thread))
            text = found.text.decode(errors="replace")
            self.undefined.append(explain_warp(text, module.source, kernel, me))

    def forget_undefined(self) -> None:
        """Forget which shuffles left a value undefined.

        That is a mistake only if results depend on the value.
        """
        self._lib.emulator_forget_undefined()
        self.undefined.clear()

    def vary_undefined(self, which: int) -> None:
        """Vary the value of one undefined shuffle, or of all with -1, from order to order."""
        self._lib.emulator_vary_undefined(which)

    @contextmanager
    def zeros(self) -> Iterator[None]:
        """Compile kernels so that uninitialised variables of a thread are zero instead of arbitrary."""
        before = self._compiler
        self._compiler = replace(before, fill="zero")
        try:
            yield
        finally:
            self._compiler = before

    @contextmanager
    def sample(self, blocks: int, limit: int) -> Iterator[None]:
        """Run only ``blocks`` blocks of each launch, including the last ones, with sparse buffers.

        Parameters
        ----------
        limit
            The largest number of steps of a block; see `CheckedEmulator`.
        """
        self._sample = blocks
        self._lib.emulator_sample(blocks)
        self._lib.emulator_limit_steps(limit)
        try:
            yield
        finally:
            self._sample = 0
            self._lib.emulator_sample(0)
            self._lib.emulator_limit_steps(self._limit)

    def _sparse(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> EmulatorBuffer:
        buffer = self._memory.allocate_sparse(name, shape, dtype)
        if not self._lib.emulator_watch_sparse(buffer.address, buffer.nbytes, dtype.itemsize):
            raise DeviceError(f"this process has no address space left to monitor '{name}'; see ulimit -v")
        return buffer

    def set_schedule(self, schedule: int, seed: int) -> None:
        """Choose the order in which blocks and threads run from now on: 0 forward, 1 reverse, 2 random."""
        self._lib.emulator_schedule(schedule, seed)

    def _base(self, module: EmulatorModule) -> int:
        return int(self._lib.emulator_base(module.library.anchor))

    def _wrote(self, buffer: Buffer, known: bool = True) -> None:
        assert isinstance(buffer, EmulatorBuffer), "checked by the copy"
        self._lib.emulator_host_wrote(buffer.address, buffer.nbytes, known)
        self._last = None

    def _hangs(self) -> bool:
        """Whether the kernel has only computed for a long time: a loop that does not even access memory."""
        steps, now = self._lib.emulator_steps(), time.process_time()
        if steps != self._progress[0]:
            self._progress = steps, now
        return now - self._progress[1] > SECONDS_WITHOUT_STEP

    def _failed(self, what: str, failure: CFailure, module: EmulatorModule, kernel: str) -> LaunchError:
        kind = FailureKind(failure.kind)
        me = Party(None, tuple(failure.block), tuple(failure.thread))
        text = with_places(failure.text.decode(errors="replace"), module.path)
        if kind == FailureKind.DEADLOCK:
            return KernelError(explain_wait(text, module.source, kernel, me))
        if kind == FailureKind.WARP:
            return KernelError(explain_warp(text, module.source, kernel, me))
        if kind in (FailureKind.ENDLESS, FailureKind.CANCELLED):
            what = f"made {self._limit:,} memory accesses and arrivals at barriers"
            if kind == FailureKind.CANCELLED:
                what = f"computed for {SECONDS_WITHOUT_STEP} s without a memory access"
            finding = explain_endless(what, text, module.source, kernel, me)
            alone = (ONE_CLUSTER,) if prod(self._launch.grid) > prod(self._launch.cluster) > 1 else ()
            return KernelError(replace(finding, notes=(*finding.notes, *alone)))
        found = CFinding()
        self._lib.emulator_finding(ctypes.byref(found))
        if kind != FailureKind.FINDING:
            pc = failure.pc - self._base(module) + 1  # one byte further, like return addresses
            in_kernel = 0 < pc <= self._symbols[module.path].data[0]
            (own,) = source_lines(module.path, [pc if in_kernel else found.own.pc])
            if kind != FailureKind.KERNEL:
                text = str(super()._failed(what, failure, module, kernel)).removeprefix(f"{what}: ")
            at = [*places_in([text], module.source), Place.at(module.source, *own)]  # an assertion names it
            me = replace(me, place=at[0])
            return KernelError(Finding("fault", text, kernel, me, cure=cure_of_fault(text)))
        symbols, buffer_at = self._symbols[module.path], self._memory.at
        failed = FailedLaunch(module, kernel, symbols, self._launch, buffer_at, self._variables, self.axes)
        return KernelError(failed.finding(found))
