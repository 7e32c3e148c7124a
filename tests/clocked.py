"""A stand-in for a GPU's clock, on the emulator."""

from collections.abc import Callable
from typing import Any

from mini_dnn.device.base import Graph
from mini_dnn.device.emulator import EmulatorDevice


class Clocked(EmulatorDevice):
    """The emulator with a clock on which each launch takes a millisecond. It counts flushes and graphs."""

    has_clock = True
    launch_ms = 1.0
    now_ms = 0.0
    flushes = graphs = 0

    def launch(self, *args: Any, **more: Any) -> None:
        self.now_ms += self.launch_ms
        super().launch(*args, **more)

    def capture(self, work: Callable[[], None], stream: int = 0) -> Graph:
        self.graphs += 1
        return super().capture(work, stream)

    def record(self, stream: int = 0) -> float:
        return self.now_ms

    def elapsed_ms(self, start: float, end: float) -> float:  # type: ignore[override]
        return end - start

    def flush_cache(self) -> None:
        self.flushes += 1


class Restless(Clocked):
    """A device whose clock never settles: each launch takes twice as long as the previous one."""

    def launch(self, *args: Any, **more: Any) -> None:
        self.launch_ms = self.launch_ms * 2 if self.launch_ms < 1e9 else 1.0
        super().launch(*args, **more)
