"""A GPU through PyCUDA."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mini_dnn.device import peers
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
from mini_dnn.device.bindings import load_driver, reason
from mini_dnn.device.cublas import WORKSPACE, Cublas
from mini_dnn.device.cuda_buffer import CudaBuffer, LentCudaBuffer, address_of, own
from mini_dnn.device.cuda_driver import load_pycuda
from mini_dnn.device.cuda_module import CudaModule, loaded
from mini_dnn.device.cuda_stream import CudaStream
from mini_dnn.device.graph import CudaGraph
from mini_dnn.device.nvcc import build_cubin, nvcc_arch
from mini_dnn.device.product import Product
from mini_dnn.errors import DeviceError, LaunchError

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no implicit synchronisation with the default stream
KEEPS_LINES = 80  # compute capability from which a kernel can ask the L2 cache to keep lines
FLUSHES = 16  # about half a millisecond
RESERVED = 0.05  # fraction of the free memory that is left to the driver


class CudaDevice:
    """The GPU with the given index. It must be used in the thread that opens it.

    Raises
    ------
    DeviceError
        PyCUDA, cuda-bindings, the driver or the GPU is missing. The message says which.
    """

    name = "cuda"
    has_clock = True

    def __init__(self, index: int = 0) -> None:
        self._cuda, self._bindings = load_pycuda(), load_driver()
        with self._errors("the GPU cannot be opened"):
            self._cuda.init()
            if index >= self._cuda.Device.count():
                raise DeviceError(f"no GPU {index}: the driver reports {self._cuda.Device.count()}")
            device = self._cuda.Device(index)
            # The primary context is the one that other libraries of the process (PyTorch, CuPy) also use
            context = device.retain_primary_context()
            context.push()
        self._context = context
        self._handle = int(self._bindings.cuCtxGetCurrent()[1])
        self._index, self._peers = index, set[int]()
        # Also at exit: PyCUDA aborts a process that ends inside a context
        self._leave = weakref.finalize(self, context.pop)
        self._streams: dict[int, Any] = {}
        self._flush: CudaBuffer | None = None
        self._cublas: dict[int, tuple[Cublas, CudaBuffer]] = {}  # with its workspace, by stream
        major, minor = device.compute_capability()
        self.arch = 10 * major + minor
        self.device_name = device.name()
        driver, runtime = self._cuda.get_driver_version(), self._cuda.get_version()
        self.versions = {
            "cuda_driver_api": f"{driver // 1000}.{driver % 1000 // 10}",
            "pycuda_cuda": ".".join(map(str, runtime)),
        }
        self.description = f"{self.device_name} (sm_{self.arch}), CUDA {self.versions['cuda_driver_api']}"
        self.multiprocessors = device.multiprocessor_count
        self.max_clock_mhz = device.clock_rate / 1e3
        attribute = self._cuda.device_attribute
        self.l2_bytes = device.get_attribute(attribute.L2_CACHE_SIZE)
        self.max_shared_bytes = device.get_attribute(attribute.MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
        self.reaches_host = bool(device.get_attribute(attribute.PAGEABLE_MEMORY_ACCESS))
        self.pci_bus_id = device.pci_bus_id()

    @contextmanager
    def _errors(self, what: str, kind: type[DeviceError] = DeviceError) -> Iterator[None]:
        try:
            yield
        except self._cuda.MemoryError as error:
            raise DeviceError(f"{what}: the GPU is out of memory ({error})") from error
        except self._cuda.Error as error:
            raise kind(f"{what}: {error}") from error

    def compile(self, source: Path, defines: Defines) -> CudaModule:
        """Compile for this GPU, or take the cubin from the cache, and load it."""
        start = time.perf_counter()
        cubin = build_cubin(source, defines, nvcc_arch(self.arch))
        module = CudaModule(self._bindings, source, cubin, self.arch)
        module.compile_ms = (time.perf_counter() - start) * 1e3
        return module

    def symbol(self, module: Module, name: str) -> CudaBuffer:
        """Return the variable of this name in the module, as a buffer of bytes."""
        return loaded(module).variable(name)

    def empty(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, fill: bool = True
    ) -> CudaBuffer:
        """Allocate a buffer. It is filled with bytes 0xFF unless the caller does that later."""
        dtype = np.dtype(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        with self._errors(f"cannot allocate {nbytes / 1e9:.2f} GB for '{name}' {shape}"):
            buffer = CudaBuffer(name, shape, dtype, self._cuda.mem_alloc(nbytes), nbytes)
        if fill:
            self.fill(buffer)
        return buffer

    def fill(self, buffer: Buffer) -> None:
        """Fill a buffer with bytes 0xFF."""
        with self._errors(f"cannot fill '{buffer.name}'", LaunchError):
            self._cuda.memset_d8_async(own(buffer).memory, 0xFF, buffer.nbytes, self._stream(0))
            self._stream(0).synchronize()  # other streams may use it immediately

    def copy_in(self, buffer: Buffer, array: np.ndarray, stream: int = 0) -> None:
        """Copy a host array to the GPU."""
        check_host(buffer, array)
        with self._errors(f"copying '{buffer.name}' to the GPU failed", LaunchError):
            self._cuda.memcpy_htod_async(own(buffer).memory, array, self._stream(stream))

    def copy_out(self, buffer: Buffer, out: np.ndarray, stream: int = 0, wait: bool = True) -> None:
        """Copy a buffer to a host array.

        Return when the copy is complete, or immediately without ``wait``.
        """
        check_host(buffer, out, write=True)
        with self._errors(f"copying '{buffer.name}' from the GPU failed", LaunchError):
            self._cuda.memcpy_dtoh_async(out, own(buffer).memory, self._stream(stream))
            if wait:
                self._stream(stream).synchronize()

    def part(self, buffer: Buffer, first: int, last: int) -> CudaBuffer:
        """Return entries of the first axis: the same memory."""
        entry = buffer.nbytes // buffer.shape[0]
        address = int(own(buffer).memory) + first * entry
        shape = (last - first, *buffer.shape[1:])
        return CudaBuffer(buffer.name, shape, buffer.dtype, address, (last - first) * entry)

    def pinned(self, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32) -> np.ndarray:
        """Allocate an array in page-locked host memory."""
        with self._errors(f"cannot allocate pinned host memory for {shape}"):
            array: np.ndarray = self._cuda.pagelocked_empty(shape, dtype)
        return array

    def shared(
        self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32
    ) -> tuple[CudaBuffer, np.ndarray]:
        """Allocate a buffer in page-locked host memory, with its array. It exists as long as the array."""
        with self._errors(f"cannot allocate host memory for '{name}' {shape}"):
            mapped = self._cuda.host_alloc_flags.DEVICEMAP
            array: Any = self._cuda.pagelocked_empty(shape, dtype, mem_flags=mapped)
            address = int(array.base.get_device_pointer())
        return CudaBuffer(name, shape, array.dtype, address, array.nbytes), array

    def copy(self, target: Buffer, source: Buffer, stream: int = 0) -> None:
        """Copy all of ``source`` to the beginning of ``target`` on the device."""
        check_room(target, source)
        with self._errors(f"copying '{source.name}' to '{target.name}' failed", LaunchError):
            self._cuda.memcpy_dtod_async(
                own(target).memory, own(source).memory, source.nbytes, self._stream(stream)
            )

    def receive(self, target: Buffer, source: Buffer, sender: Device) -> None:
        """Copy all of ``source``, which is on another GPU, to the beginning of ``target``."""
        if not isinstance(sender, CudaDevice) or source.nbytes > target.nbytes:
            raise DeviceError(
                f"'{target.name}' ({target.nbytes} bytes) cannot be copied from '{source.name}' of "
                f"{sender.description} ({source.nbytes} bytes)"
            )
        if sender._index not in {self._index, *self._peers}:
            peers.connect(self._bindings, self._index, sender._index, sender._handle)
            self._peers.add(sender._index)
        to, of = (address_of(target), self._handle), (address_of(source), sender._handle)
        peers.copy(self._bindings, to, of, source.nbytes, self._stream(0).handle)

    def launch(
        self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs, stream: int = 0
    ) -> None:
        """Launch a kernel. If it fails, the next copy or `synchronize` raises the error."""
        handle = self._stream(stream).handle
        loaded(module).kernel(kernel).launch(config, args, handle)

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer, stream: int = 0) -> None:
        """Multiply with cuBLAS."""
        if limit := product.limit_for({"a": a, "b": b, "c": c}):
            raise LaunchError(f"a product of '{a.name}' and '{b.name}' into '{c.name}': {limit}")
        if stream not in self._cublas:  # each stream has its own workspace, because streams may overlap
            workspace = self.empty("cuBLAS workspace", (WORKSPACE,), np.uint8, fill=False)
            handle = Cublas(self._stream(stream).handle, int(workspace.memory))
            self._cublas[stream] = handle, workspace
        at_a, at_b, at_c = (int(own(buffer).memory) for buffer in (a, b, c))
        self._cublas[stream][0].multiply(product, at_a, at_b, at_c, a.dtype.name, c.dtype.name)

    def wait(self, event: Any, stream: int) -> None:
        """Let a stream wait for an event."""
        with self._errors("a stream cannot wait", LaunchError):
            self._stream(stream).wait_for_event(event)

    def record(self, stream: int = 0) -> Any:
        """Record an event on a stream."""
        with self._errors("an event cannot be recorded", LaunchError):
            return self._cuda.Event().record(self._stream(stream))

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the milliseconds between two events. Waits for the second one."""
        with self._errors("a kernel failed while it ran", LaunchError):
            end.synchronize()
            return float(end.time_since(start))

    def flush_cache(self) -> None:
        """Overwrite twice the size of the L2 cache, long enough for launches to queue up behind it.

        Before that, lines that a kernel asked the cache to keep become normal ones. The following launches
        are timed without the gaps in which the host prepares the next launch.
        """
        if self._flush is None:
            self._flush = self.empty("L2 flush", (2 * self.l2_bytes,), np.uint8)
        if self.arch >= KEEPS_LINES:
            (status,) = self._bindings.cuCtxResetPersistingL2Cache()
            if failed := reason(self._bindings, status):
                raise LaunchError(f"the L2 cache cannot be flushed: {failed}")
        with self._errors("the L2 cache cannot be flushed", LaunchError):
            for _ in range(FLUSHES):
                self._cuda.memset_d8_async(self._flush.memory, 0, self._flush.nbytes, self._stream(0))

    def capture(self, work: Callable[[], None], stream: int = 0) -> CudaGraph:
        """Run ``work`` once, so that its kernels are loaded, and then record it."""
        work()
        self.synchronize(stream)
        return CudaGraph(work, self._stream(stream).handle)

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for all work, or for that of one stream, and raise its errors."""
        with self._errors("a kernel failed while it ran", LaunchError):
            (self._context if stream is None else self._stream(stream)).synchronize()

    def free_bytes(self) -> int:
        """Return the number of bytes that may still be allocated."""
        with self._errors("the GPU does not report its free memory"):
            return int(self._cuda.mem_get_info()[0] * (1 - RESERVED))

    def lent(self, name: str, shape: tuple[int, ...], dtype: npt.DTypeLike) -> LentCudaBuffer:
        """Return a buffer for memory of another library."""
        return LentCudaBuffer(name, shape, np.dtype(dtype))

    def foreign_stream(self, handle: int) -> CudaStream:
        """Return the stream of another library with this handle; 0 is the default stream."""

        def allocate(nbytes: int) -> CudaBuffer:
            return self.empty("memory of a library", (nbytes,), np.uint8, fill=False)

        return CudaStream(self._bindings, self._handle, handle, allocate)

    def leave(self) -> None:
        """Restore the device that this thread used before. From now on, use `entered`."""
        self._leave()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Within this context, this thread works on this GPU."""
        self._context.push()
        try:
            yield
        finally:
            self._context.pop()

    def close(self) -> None:
        """Leave the context."""
        for handle, workspace in self._cublas.values():
            handle.close()
            workspace.free()
        self._cublas.clear()
        if self._flush is not None:
            self._flush.free()
            self._flush = None
        self._streams.clear()
        self._leave()

    def _stream(self, number: int) -> Any:
        if number not in self._streams:
            self._streams[number] = self._cuda.Stream(NON_BLOCKING)
        return self._streams[number]
