"""Work that is kept to be done again: it runs, to its end, when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from mini_dnn.device.base import Buffer, Device, MappedBuffer, Module, Scalar, Work
from mini_dnn.device.clusters import Sizes
from mini_dnn.device.product import Product
from mini_dnn.errors import DeviceError


class EmulatorGraph:
    """Work that runs again, from the start, when it is replayed."""

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
    """See `mini_dnn.device.base.ForeignStream`. Buffers that are lent lie in host memory."""

    def __init__(self, device: Device) -> None:
        self._device = device

    def is_current(self) -> bool:
        """It always can: there is one processor."""
        return True

    def is_captured(self) -> bool:
        """It never is."""
        return False

    def number(self) -> int:
        """The same for all: no work of theirs overlaps."""
        return 0

    def launch(
        self,
        module: Module,
        kernel: str,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: Sequence[Buffer | Scalar | MappedBuffer],
        shared_bytes: int,
        cluster: Sizes,
        early: bool,
    ) -> Work:
        """The launch of a kernel."""
        launch = self._device.launch
        return partial(launch, module, kernel, grid, block, args, shared_bytes, 0, cluster, early)

    def copy(self, target: Buffer, source: Buffer) -> Work:
        """The copy of all of ``source`` to the front of ``target``."""
        return partial(self._device.copy, target, source)

    def gemm(self, product: Product, a: Buffer, b: Buffer, c: Buffer) -> Work:
        """The product, which the emulator refuses."""
        return partial(self._device.gemm, product, a, b, c)

    def follow(self, handle: int) -> None:
        """Do nothing: what was asked for is done."""

    def mark(self) -> Callable[[], bool]:
        """All is done."""
        return lambda: True

    def free(self) -> None:
        """There is nothing to free."""
