"""Streams on a GPU that another library created, and work for them that is prepared once."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from mini_dnn.device.base import Buffer, KernelArgs, LaunchConfig, Module, Work, check_room
from mini_dnn.device.bindings import reason
from mini_dnn.device.cublas import WORKSPACE, Cublas
from mini_dnn.device.cuda_buffer import CudaBuffer, address_of
from mini_dnn.device.cuda_module import loaded
from mini_dnn.device.product import Product
from mini_dnn.errors import LaunchError

LASTING = (0, 1)  # handles of the default stream, which is never captured and never destroyed


class CudaStream:
    """See `mini_dnn.device.base.ForeignStream`.

    Parameters
    ----------
    driver
        ``cuda.bindings.driver``.
    context
        The handle of the context that the stream belongs to.
    handle
        The handle of the stream; 0 is the default stream.
    allocate
        Allocates this many bytes of the GPU's memory.
    """

    def __init__(self, driver: Any, context: int, handle: int, allocate: Callable[[int], CudaBuffer]) -> None:
        self._driver, self._context, self._handle = driver, context, handle
        self._stream, self._allocate = driver.CUstream(handle), allocate
        self._cublas: Cublas | None = None
        self._workspace: CudaBuffer | None = None
        self._not_captured = driver.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
        # functions that each call of an operation needs, looked up once
        self._asked = driver.cuStreamIsCapturing, driver.cuStreamGetId, driver.CUresult.CUDA_SUCCESS

    def is_current(self) -> bool:
        """Whether the stream's context is the current one of this thread."""
        _, context = self._driver.cuCtxGetCurrent()
        return context is not None and int(context) == self._context

    def is_captured(self) -> bool:
        """Whether the stream is being captured."""
        return bool(self._call("cuStreamIsCapturing", self._stream) != self._not_captured)

    def number(self) -> int | None:
        """Return the driver's unique number of the stream, or None during a capture: asking would end it.

        Each call of an operation needs it. For the default stream, the answer is known without the driver.
        """
        if self._handle in LASTING:
            return 0
        is_capturing, number_of, success = self._asked
        status, capturing = is_capturing(self._stream)
        if status == success:
            if capturing != self._not_captured:
                return None
            status, number = number_of(self._stream)
            if status == success:
                return int(number)
        raise LaunchError(f"the stream of another library cannot be used: {reason(self._driver, status)}")

    def launch(self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs) -> Work:
        """Prepare the launch of a kernel."""
        return loaded(module).kernel(kernel).ready(config, args, self._handle)

    def copy(self, target: Buffer, source: Buffer) -> Work:
        """Prepare a copy of all of ``source`` to the beginning of ``target``."""
        check_room(target, source)

        def copy() -> None:
            to, at = address_of(target), address_of(source)
            self._call("cuMemcpyDtoDAsync", to, at, source.nbytes, self._stream)

        return copy

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer) -> Work:
        """Prepare a product by cuBLAS, with a handle and a workspace that only this stream uses."""
        if limit := product.limit_for({"a": a, "b": b, "c": c}):
            raise LaunchError(f"a product of '{a.name}' and '{b.name}' into '{c.name}': {limit}")
        if self._cublas is None:
            self._workspace = self._allocate(WORKSPACE)
            self._cublas = Cublas(self._handle, address_of(self._workspace))
        multiply, given, out = self._cublas.multiply, a.dtype.name, c.dtype.name
        return lambda: multiply(product, address_of(a), address_of(b), address_of(c), given, out)

    def follow(self, handle: int) -> None:
        """Wait for an event that is recorded on the other stream."""
        event = self._event(self._driver.CUstream(handle))
        try:
            self._call("cuStreamWaitEvent", self._stream, event, 0)
        finally:
            self._driver.cuEventDestroy(event)  # takes effect when the event is complete

    def mark(self) -> Callable[[], bool]:
        """Record an event. The returned function queries it, and the event exists as long as the function."""
        event = self._event(self._stream)
        query, not_ready = self._driver.cuEventQuery, self._driver.CUresult.CUDA_ERROR_NOT_READY

        def is_over() -> bool:
            return bool(query(event)[0] != not_ready)

        # not at exit: the context may no longer exist then, and the system frees everything
        weakref.finalize(is_over, self._driver.cuEventDestroy, event).atexit = False
        return is_over

    def free(self) -> None:
        """Free the memory of cuBLAS."""
        if self._cublas is not None and self._workspace is not None:
            self._cublas.close()
            self._workspace.free()
        self._cublas = self._workspace = None

    def _event(self, stream: Any) -> Any:
        event = self._call("cuEventCreate", self._driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)
        try:
            self._call("cuEventRecord", event, stream)
        except LaunchError:
            self._driver.cuEventDestroy(event)
            raise
        return event

    def _call(self, name: str, *args: Any) -> Any:
        """Call a function of the driver, and return its result if it has one besides its status."""
        status, *results = getattr(self._driver, name)(*args)
        if failed := reason(self._driver, status):
            raise LaunchError(f"a stream of another library cannot be used, {name} says: {failed}")
        return results[0] if results else None
