"""The emulator as a device."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from mini_dnn.device.base import (
    Buffer,
    Defines,
    Device,
    KernelArgs,
    LaunchConfig,
    Module,
    check_host,
    check_room,
)
from mini_dnn.device.emulator.build import MAX_SHARED_BYTES, build_ahead, build_kernels
from mini_dnn.device.emulator.compiler import Compiler, find_compiler
from mini_dnn.device.emulator.launch import Arguments, check_geometry, describe_failure, find_kernel
from mini_dnn.device.emulator.memory import EmulatorBuffer, LentEmulatorBuffer, Memory, own
from mini_dnn.device.emulator.runtime import CFailure, CLaunch, FailureKind, Library, Runtime
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.device.emulator.work import EmulatorGraph, EmulatorStream
from mini_dnn.device.product import Product
from mini_dnn.device.sources import read_source
from mini_dnn.errors import DeviceError, LaunchError, meant

VARIABLE = re.compile(r"__(?:constant|device)__[^;(){}=]*?\b(\w+)\s*(?:\[[^;={]*)?[;={]")


@dataclass(eq=False)
class EmulatorModule:
    """A loaded kernel library."""

    source: Path
    path: Path  # the library
    compile_ms: float
    library: Library


class EmulatorDevice:
    """Runs the kernels of ``.cu`` files on the CPU, compiled by g++.

    Parameters
    ----------
    threads
        The number of blocks or clusters that run concurrently; by default one per CPU that this process may
        use. More clusters run if they wait for each other.
    ucontext
        Switch between the threads of a block with the C library's ucontext, as on processors other than
        x86-64. It is about 20 times slower.
    quick
        Compile kernels in half the time, for problems so small that compilation dominates.

    Raises
    ------
    DeviceError
        There is no compiler, or it is too old.
    """

    name = "emulator"
    arch = 90  # kernels see it as __CUDA_ARCH__, divided by ten
    max_shared_bytes = MAX_SHARED_BYTES
    has_clock = False
    reaches_host = True
    checked = False  # see `mini_dnn.device.emulator.checked`

    def __init__(self, threads: int | None = None, *, ucontext: bool = False, quick: bool = False) -> None:
        if platform.system() != "Linux":
            raise DeviceError(
                f"the emulator runs on Linux, and this is {platform.system()}; "
                "use a Linux container, or WSL 2"
            )
        self.threads = len(os.sched_getaffinity(0)) if threads is None else threads
        if self.threads < 1:
            raise DeviceError(f"the emulator was asked for {threads} threads; it needs at least 1")
        self._compiler = self._find_compiler(quick)
        self._runtime_path = build_runtime(self._compiler, ucontext, self.checked)
        self._runtime = Runtime(self._runtime_path)
        self._memory = Memory(self._runtime)
        plural = "s" if self.threads > 1 else ""
        self.description = f"CPU emulator ({self._compiler.version}), {self.threads} thread{plural}"

    def _find_compiler(self, quick: bool) -> Compiler:
        return replace(find_compiler(), quick=quick)

    def compile(self, source: Path, defines: Defines) -> EmulatorModule:
        """Compile a kernel file, or take it from the cache, and load it with its own variables."""
        start = time.perf_counter()
        path = build_kernels(Path(source), defines, self._compiler, self._runtime_path, self.checked)
        library = self._runtime.load_kernels(path)
        return EmulatorModule(Path(source), path, (time.perf_counter() - start) * 1e3, library)

    def build(self, source: Path, defines: Sequence[Defines]) -> None:
        """Compile a kernel file for each of these definitions ahead of `compile`, one compiler per core.

        Errors are reported by `compile`.
        """
        build_ahead(source, defines, self._compiler, self._runtime_path, self.checked)

    def symbol(self, module: Module, name: str) -> EmulatorBuffer:
        """Return the ``__constant__`` or ``__device__`` variable of this name, as a buffer of bytes."""
        library = _own(module).library
        address = library.address(name)
        nbytes = self._runtime.symbol_bytes(address) if address else 0
        if not address or not nbytes:
            known = VARIABLE.findall(read_source(module.source))
            have = f"it has {', '.join(known)}" if known else "it has none"
            raise DeviceError(
                f"no __constant__ or __device__ variable '{name}' in {module.source}: "
                f"{have}{meant(name, known)}"
            )
        return EmulatorBuffer(name, (nbytes,), np.dtype(np.uint8), nbytes, address, library)

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, fill: bool = True
    ) -> EmulatorBuffer:
        """Allocate a buffer, which always contains bytes 0xFF."""
        return self._memory.allocate(name, shape, np.dtype(dtype))

    def fill(self, buffer: Buffer) -> None:
        """Fill a buffer with bytes 0xFF."""
        own(buffer).bytes()[:] = 0xFF

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: int = 0) -> None:
        """Copy a host array to a buffer."""
        _check_stream(stream)
        check_host(buffer, array)
        memory = own(buffer).bytes()
        memory[:] = array.reshape(-1).view(np.uint8)

    def copy_out(self, buffer: Buffer, out: np.ndarray, stream: int = 0, wait: bool = True) -> None:
        """Copy a buffer to a host array."""
        _check_stream(stream)
        check_host(buffer, out, write=True)
        memory = own(buffer).bytes()
        out.reshape(-1).view(np.uint8)[:] = memory

    def part(self, buffer: Buffer, first: int, last: int) -> EmulatorBuffer:
        """Return entries of the first axis: the same memory."""
        return own(buffer).part(first, last)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        """Allocate a host array. To a CPU, all of its memory is the same."""
        return np.empty(shape, dtype)

    def shared(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32
    ) -> tuple[EmulatorBuffer, np.ndarray]:
        """Allocate a buffer, with its array. The array must not be used after the buffer is freed."""
        buffer = self.empty(name, shape, dtype)
        return buffer, buffer.bytes().view(buffer.dtype).reshape(shape)

    def copy(self, target: Buffer, source: Buffer, stream: int = 0) -> None:
        """Copy all of ``source`` to the beginning of ``target``."""
        _check_stream(stream)
        check_room(target, source)
        own(target).bytes()[: source.nbytes] = own(source).bytes()

    def receive(self, target: Buffer, source: Buffer, sender: Device) -> None:
        """Copy all of ``source``, which is on another emulator, to the beginning of ``target``."""
        self.copy(target, source)

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer, stream: int = 0) -> NoReturn:
        """Raise an error, because the GPU's library is not available.

        Raises
        ------
        DeviceError
            Always.
        """
        raise DeviceError("the emulator has no cuBLAS: that library runs on NVIDIA's GPUs only")

    def launch(
        self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs, stream: int = 0
    ) -> None:
        """Run a kernel to its end. Errors inside it are raised here."""
        own = _own(module)
        _check_stream(stream)
        found = find_kernel(own.library.kernels, kernel, str(module.source))
        what = f"launching {kernel} of {module.source} on grid {config.grid}, block {config.block}"
        sizes = check_geometry(what, config, self.max_shared_bytes)
        arguments = Arguments(what, found, args)
        launch = CLaunch()
        launch.module.contents = own.library.module
        launch.kernel.contents = found
        launch.arguments = arguments.address
        launch.grid[:], launch.block[:], launch.cluster[:] = sizes
        launch.shared_bytes = config.shared_bytes
        launch.workers = self.threads
        try:
            failure = self._runtime.launch(launch, self._hangs)
        finally:
            if text := self._runtime.printed():
                print(text, end="")
        if failure.kind != FailureKind.NONE:
            raise self._failed(what, failure, own, kernel)

    def _hangs(self) -> bool:
        """Whether a launch makes no progress. Here, Ctrl-C ends it; checked mode overrides this."""
        return False

    def _failed(self, what: str, failure: CFailure, module: EmulatorModule, kernel: str) -> LaunchError:
        return LaunchError(describe_failure(what, failure, self._memory))

    def wait(self, event: Any, stream: int) -> None:
        """Do nothing: a launch on any stream is complete when `launch` returns."""
        _check_stream(stream)

    def capture(self, work: Callable[[], None], stream: int = 0) -> EmulatorGraph:
        """Keep the work without running it."""
        _check_stream(stream)
        return EmulatorGraph(work)

    def flush_cache(self) -> None:
        """Do nothing: there is no clock that a cache could affect."""

    def record(self, stream: int = 0) -> Any:
        """Record nothing: there is no clock."""
        _check_stream(stream)

    def elapsed_ms(self, start: Any, end: Any) -> NoReturn:
        """Raise an error: see `has_clock`.

        Raises
        ------
        DeviceError
            Always.
        """
        raise DeviceError(
            "the emulator has no clock: CPU time does not predict GPU time; run with a CUDA device to time it"
        )

    def synchronize(self, stream: int | None = None) -> None:
        """Do nothing: a launch is complete when `launch` returns."""

    def free_bytes(self) -> int:
        """Return the number of bytes that may still be allocated."""
        return self._memory.free_bytes

    def lent(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> LentEmulatorBuffer:
        """Return a buffer for host memory that somebody else owns."""
        kind = np.dtype(dtype)
        return LentEmulatorBuffer(name, shape, kind, prod(shape) * kind.itemsize, None)

    def foreign_stream(self, handle: int) -> EmulatorStream:
        """Return a stream. All streams are the same on a CPU."""
        return EmulatorStream(self)

    def entered(self) -> AbstractContextManager[None]:
        """Return a context that does nothing."""
        return nullcontext()

    def close(self) -> None:
        """Free all buffers."""
        self._memory.free_all()


def _own(module: Module) -> EmulatorModule:
    if not isinstance(module, EmulatorModule):
        raise DeviceError(f"{module!r} was not compiled by the emulator")
    return module


def _check_stream(stream: int) -> None:
    if stream < 0:
        raise DeviceError(f"no stream {stream}: streams are numbered from 0")
