"""Calls that are ready to be made again, each thread's own, and the GPUs that they work on."""

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
    """What this thread keeps from one call to the next.

    Nothing of it is shared between threads, and a call is prepared for one stream: so no two calls that may
    overlap have scratch memory or variables of kernels in common.
    """

    def __init__(self) -> None:
        self.ready: dict[Hashable, Any] = {}
        self._devices: dict[int, Device] = {}
        self._prepared: list[tuple[Device, Prepared]] = []
        self._held: list[tuple[Callable[[], bool], Any]] = []

    def device(self, gpu: int) -> Device:
        """The GPU of that index, opened when it is first asked for."""
        if gpu not in self._devices:
            if not self._devices:  # while the driver still works; of this thread alone
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
        """Keep the owners of memory that the GPU uses until that is over."""
        self._held = [entry for entry in self._held if not entry[0]()]
        self._held.append((is_over, owners))

    def release(self) -> None:
        """Forget all calls, and free what they have, once the GPUs' work is done."""
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
        with suppress(DeviceError):  # after a kernel that failed nothing can be freed
            self.release()


def open_gpu(gpu: int) -> Device:
    """The GPU of that index, without making it the one that this thread works on.

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
