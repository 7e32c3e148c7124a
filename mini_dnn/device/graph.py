"""CUDA graphs, which PyCUDA does not have: work of a stream, recorded once and launched as one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mini_dnn.device.bindings import load_driver, reason
from mini_dnn.errors import DeviceError, LaunchError


class CudaGraph:
    """What a stream is given while ``work`` runs: recorded, not run, and launched by each `replay`.

    Parameters
    ----------
    work
        Gives work to the stream, or to streams that wait for it and that it waits for in the end. All of
        it has been done before (a kernel's first launch loads it), and nothing in it waits for the device.
    stream
        The handle of the stream; not that of the default stream.

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
        """Give the stream all of the work again, with the same arguments, in one call."""
        if self._executable is None:
            raise DeviceError("this graph was freed, and cannot be replayed; capture the work again")
        self._call("launched", self._driver.cuGraphLaunch, self._executable, self._stream)

    def free(self) -> None:
        """Let go of it, once a replay that is under way has ended; freeing twice is harmless."""
        if self._executable is not None:
            # its status is left alone: after a failed kernel each call fails, and would hide the kernel's
            self._driver.cuGraphExecDestroy(self._executable)
        self._executable = None

    def _record(self, work: Callable[[], None]) -> Any:
        driver, graph = self._driver, None
        # relaxed: Python may free another array's memory at any time, which stricter modes do not allow
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        self._call("begun", driver.cuStreamBeginCapture, self._stream, mode)
        try:
            try:
                work()
            finally:  # or the stream would record for ever
                status, graph = driver.cuStreamEndCapture(self._stream)
            self._check("recorded", status)
            return self._call("made executable", driver.cuGraphInstantiate, graph, 0)
        finally:
            if graph is not None and int(graph):
                driver.cuGraphDestroy(graph)  # the executable one does not need it

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """The result of a function of the driver, if it has one besides its status."""
        status, *results = function(*args)
        self._check(what, status)
        return results[0] if results else None

    def _check(self, what: str, status: Any) -> None:
        if failed := reason(self._driver, status):
            raise LaunchError(f"a CUDA graph cannot be {what}: {failed}")
