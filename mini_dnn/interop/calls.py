"""Prepared calls of each thread, and the GPUs that they use."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from mini_dnn.device.base import Device
from mini_dnn.errors import DeviceError
from mini_dnn.running.prepared import Prepared
from mini_dnn.variant import Variant


class Calls(threading.local):
    """The prepared calls of this thread.

    Threads share none of them, and each call is prepared for one stream. Calls that may overlap therefore
    share neither scratch memory nor variables of kernels.
    """

    def __init__(self) -> None:
        self.ready: dict[Hashable, Any] = {}
        self._devices: dict[int, Device] = {}
        self._prepared: list[tuple[Device, Prepared]] = []
        self._held: list[tuple[Callable[[], bool], Any]] = []

    def device(self, gpu: int) -> Device:
        """The GPU with this index, which is opened on first use."""
        if gpu not in self._devices:
            if not self._devices:  # for this thread only; at exit, the driver still works
                atexit.register(self._end)
            self._devices[gpu] = open_gpu(gpu)
        return self._devices[gpu]

    def prepare(self, variant: Variant, problem: Any, device: Device, stream: int) -> Prepared:
        """Plan, compile, and allocate scratch memory."""
        with device.entered():
            prepared = Prepared(variant, problem, device, device.foreign_stream(stream))
        self._prepared.append((device, prepared))
        return prepared

    def hold(self, is_over: Callable[[], bool], owners: Any) -> None:
        """Keep the owners of memory until the GPU no longer uses it."""
        self._held = [entry for entry in self._held if not entry[0]()]
        self._held.append((is_over, owners))

    def release(self) -> None:
        """Free all calls and their memory, after the work of the GPUs."""
        self.ready.clear()
        for device, prepared in self._prepared:
            with device.entered():
                prepared.free()
        self._prepared.clear()
        for device in self._devices.values():
            with device.entered():
                device.synchronize()
        self._held.clear()

    def _end(self) -> None:
        with suppress(DeviceError):  # after a failed kernel, nothing can be freed
            self.release()


def open_gpu(gpu: int) -> Device:
    """Open the GPU with this index, without making it the current one of this thread.

    Raises
    ------
    DeviceError
        See `mini_dnn.device.open_device`.
    """
    from mini_dnn.device.cuda import CudaDevice

    device = CudaDevice(gpu)
    device.leave()
    return device


CALLS = Calls()


def release() -> None:
    """Free what calls with arrays on a GPU keep for further calls: scratch memory and compiled kernels.

    It waits for the GPU, and frees what calls of this thread have kept. Graphs that were captured from such
    calls must not be launched afterwards.
    """
    CALLS.release()
