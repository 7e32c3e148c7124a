"""A device with a clock for machines without a GPU: the emulator with made-up times."""

from __future__ import annotations

import os
from typing import Any

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.grading import measure
from mini_dnn.grading.confined import roles
from mini_dnn.grading.measure import Floor

IDLE_MS = 60_000.0  # a busy host may take so long for a wait that has nothing to wait for
NO_FLOOR = Floor(bytes_per_ms=1e30, cached_bytes=0, flops_per_ms=0.0)


class ClockedEmulator(EmulatorDevice):
    """The emulator with a clock on which each launch takes a millisecond, and a log of operations.

    On the host's clock, ``host_s``, each wait for the device takes ``busy_s``, and ``late_s`` more if
    something was launched before it.
    """

    has_clock = True
    reaches_host = False

    def __init__(self, late_s: float = 0.0, busy_s: float = 0.0) -> None:
        super().__init__()
        self.log: list[str] = []
        self.now_ms, self.host_s = 0.0, 0.0
        self._late_s, self._busy_s, self._launched = late_s, busy_s, False

    def launch(self, *args: Any, **more: Any) -> None:
        self.log.append("launch")
        self.now_ms += 1.0
        self._launched = True
        super().launch(*args, **more)

    def copy_in(self, buffer: Any, *args: Any, **more: Any) -> None:
        self.log.append(f"copy {buffer.name}")
        super().copy_in(buffer, *args, **more)

    def fill(self, buffer: Any) -> None:
        self.log.append(f"fill {buffer.name}")
        super().fill(buffer)

    def flush_cache(self) -> None:
        self.log.append("flush")

    def record(self, stream: int = 0) -> float:
        self.log.append("record")
        return self.now_ms

    def elapsed_ms(self, start: float, end: float) -> float:
        return end - start

    def synchronize(self) -> None:
        self.host_s += self._busy_s + self._late_s * self._launched
        self._launched = False


def install() -> None:
    """Let processes that are forked from this one use the stand-in as their GPU."""
    roles.open_device = _opened  # type: ignore[assignment]
    measure.LATE_MS = IDLE_MS
    Floor.of = classmethod(lambda cls, device: NO_FLOOR)  # type: ignore[assignment, method-assign]


def _opened(name: str) -> EmulatorDevice:
    if name == "emulator":
        return EmulatorDevice()
    os.environ.pop(
        "MINI_DNN_CACHE_ONLY", None
    )  # the cache holds what nvcc compiled, but the emulator needs its own libraries
    return ClockedEmulator()
