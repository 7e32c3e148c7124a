"""CUDA graphs, which PyCUDA does not support: work of a stream that is recorded once and launched as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_dnn.device.bindings import load_driver, reason
from mini_dnn.errors import DeviceError, LaunchError


class CudaGraph:
    """The work that a stream is given while ``work`` runs. It is recorded, and each `replay` launches it.

    Parameters
    ----------
    work
        Gives work to the stream, or to other streams that wait for it and that it waits for at the end. All
        of the work must have run before (the first launch of a kernel loads it), and it must not synchronise.
    stream
        The handle of the stream, which must not be the default stream.

    Raises
    ------
    DeviceError
        cuda-bindings is missing.
    LaunchError
        The work cannot be recorded.
    """

    def __init__(self, work: Callable[[], None], stream: int) -> None:
        self._driver = load_driver()
        self._stream = self._driver.CUstream(stream)
        self._executable = self._record(work)

    def replay(self) -> None:
        """Give all of the work with the same arguments to the stream again, in one call."""
        if self._executable is None:
            raise DeviceError("this graph was freed, and cannot be replayed; capture the work again")
        self._call("launched", self._driver.cuGraphLaunch, self._executable, self._stream)

    def free(self) -> None:
        """Release the graph after a running replay has ended. Freeing it twice is harmless."""
        if self._executable is not None:
            # its status is ignored: after a failed kernel every call fails, which would hide the kernel's
            # error
            self._driver.cuGraphExecDestroy(self._executable)
        self._executable = None

    def _record(self, work: Callable[[], None]) -> Any:
        driver, graph = self._driver, None
        # relaxed: Python may free the memory of another array at any time, which stricter modes do not allow
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._call("begun", driver.cuStreamBeginCapture, self._stream, mode)
        try:
            try:
                work()
            finally:  # otherwise the stream would record forever
                status, graph = driver.cuStreamEndCapture(self._stream)
            self._check("recorded", status)
            return self._call("made executable", driver.cuGraphInstantiate, graph, 0)
        finally:
            if graph is not None and int(graph):
                driver.cuGraphDestroy(graph)  # the executable graph does not need it

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the driver, and return its result if it has one besides its status."""
        status, *results = function(*args)
        self._check(what, status)
        return results[0] if results else None

    def _check(self, what: str, status: Any) -> None:
        if failed := reason(self._driver, status):
            raise LaunchError(f"a CUDA graph cannot be {what}: {failed}")
