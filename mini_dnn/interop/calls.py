"""Prepared calls of each thread, and the GPUs that they use."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from typing import Any

from mini_dnn.device.base import Device
from mini_dnn.errors import DeviceError
from mini_dnn.running.prepared import Prepared
from mini_dnn.variant import Variant

Devices = dict[int, Device]
Calling = list[tuple[Device, Prepared]]
Holding = list[tuple[Callable[[], bool], Any]]


class _Alive:
    """An object that exists as long as its thread."""


class Calls(threading.local):
    """The prepared calls of this thread.

    Threads share none of them, and each call is prepared for one stream. Calls that may overlap therefore
    share neither scratch memory nor variables of kernels. When the thread ends, it waits for its GPUs and
    frees the calls.
    """

    def __init__(self) -> None:
        self.ready: dict[Hashable, Any] = {}
        self._devices: Devices = {}
        self._prepared: Calling = []
        self._held: Holding = []
        self._alive = _Alive()  # deleted when the thread ends
        end = weakref.finalize(self._alive, _end, self._devices, self._prepared, self._held)
        # Free them at the exit of the process, too: the driver still works. But a daemon may still be running
        end.atexit = not threading.current_thread().daemon

    def device(self, gpu: int) -> Device:
        """The GPU with this index, which is opened on first use."""
        if gpu not in self._devices:
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
        self._held[:] = [entry for entry in self._held if not entry[0]()]
        self._held.append((is_over, owners))

    def release(self) -> None:
        """Free all calls and their memory, after the work of the GPUs."""
        self.ready.clear()
        _free(self._devices, self._prepared, self._held)


def _free(devices: Devices, calling: Calling, holding: Holding) -> None:
    for device, prepared in calling:
        with device.entered():
            prepared.free()
    calling.clear()
    for device in devices.values():
        with device.entered():
            device.synchronize()
    for is_over, _ in holding:
        is_over()  # frees its event
    holding.clear()


def _end(devices: Devices, calling: Calling, holding: Holding) -> None:
    """Free what a thread has kept, when it ends."""
    with suppress(DeviceError):  # after a failed kernel, nothing can be freed
        _free(devices, calling, holding)


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
