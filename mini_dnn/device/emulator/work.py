"""Work that is stored and runs, to its end, each time it is issued."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from mini_dnn.device.base import Buffer, Device, KernelArgs, LaunchConfig, Module, Work
from mini_dnn.device.product import Product
from mini_dnn.errors import DeviceError


class EmulatorGraph:
    """Work that runs again from the start at each replay."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work: Callable[[], None] | None = work

    def replay(self) -> None:
        """Run the work."""
        if self._work is None:
            raise DeviceError("this graph was freed, and cannot be replayed; capture the work again")
        self._work()

    def free(self) -> None:
        """Forget the work."""
        self._work = None


class EmulatorStream:
    """See `mini_dnn.device.base.ForeignStream`. Lent buffers are in host memory."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def is_current(self) -> bool:
        """Always true: there is only one processor."""
        return True

    def is_captured(self) -> bool:
        """Always false."""
        return False

    def number(self) -> int:
        """The same for all streams, because their work never overlaps."""
        return 0

    def launch(self, module: Module, kernel: str, config: LaunchConfig, args: KernelArgs) -> Work:
        """Prepare the launch of a kernel."""
        return partial(self._device.launch, module, kernel, config, args)

    def copy(self, target: Buffer, source: Buffer) -> Work:
        """Prepare a copy of all of ``source`` to the beginning of ``target``."""
        return partial(self._device.copy, target, source)

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer) -> Work:
        """Prepare the product, which the emulator refuses."""
        return partial(self._device.gemm, product, a, b, c)

    def follow(self, handle: int) -> None:
        """Do nothing: all work is already complete."""

    def mark(self) -> Callable[[], bool]:
        """Return a function that is always true, because all work is complete."""
        return lambda: True

    def free(self) -> None:
        """Do nothing, because there is nothing to free."""
