"""Buffers of a timed call between guard bytes, so that writes outside a buffer are noticed."""

from __future__ import annotations

import secrets

import numpy as np

from mini_dnn.device.base import Buffer, Device, Module
from mini_dnn.ops import Array
from mini_dnn.running.execute import Execution
from mini_dnn.variant import Planned

WORD = 4  # bytes of the type that is most often written
PART = 8  # the guard on each side has this fraction of a buffer's size
LEAST, MOST = 4096, 1 << 20  # bytes of a guard; multiples of every alignment that copies need


def guard_bytes(nbytes: int) -> int:
    """Return the bytes of each guard, before and after a buffer of ``nbytes`` bytes."""
    part = -(-nbytes // PART)
    return min(MOST, max(LEAST, part + -part % LEAST))


class Guarded(Execution):
    """An execution whose buffers have guards of random bytes on both sides, which must not change."""

    def __init__(self, planned: Planned, module: Module, device: Device) -> None:
        self._wholes: list[Buffer] = []
        self._guards: dict[str, tuple[Buffer, Buffer]] = {}
        self._canary = np.empty(0, np.uint8)
        super().__init__(planned, module, device)

    def fill(self) -> None:
        """Fill all buffers with NaN, and their guards with new random bytes."""
        super().fill()
        longest = max((before.nbytes for before, _ in self._guards.values()), default=0)
        self._canary = np.frombuffer(secrets.token_bytes(longest), np.uint8)
        for guards in self._guards.values():
            for guard in guards:
                self._device.copy_in(guard, self._canary[: guard.nbytes])

    def written_beside(self) -> str:
        """Return the name of a buffer whose guards have changed, or an empty string."""
        for name, guards in self._guards.items():
            for guard, side in zip(guards, ("before", "after"), strict=True):
                found, canary = np.empty(guard.nbytes, np.uint8), self._canary[: guard.nbytes]
                self._device.copy_out(guard, found)
                if not np.array_equal(found, canary):
                    far = int(np.argmax((found != canary)[:: -1 if side == "before" else 1])) + 1
                    return f"{far + -far % WORD:,} bytes {side} the buffer '{name}'"
        return ""

    def free(self) -> None:
        """Free all buffers with their guards."""
        super().free()
        for whole in self._wholes:
            whole.free()

    def _empty(self, name: str, array: Array) -> Buffer:
        device, guard = self._device, guard_bytes(array.nbytes)
        end = guard + array.nbytes
        whole = device.empty(f"{name} and its guards", (end + guard,), np.uint8, fill=False)
        self._wholes.append(whole)
        self._guards[name] = device.part(whole, 0, guard), device.part(whole, end, end + guard)
        buffer = device.lent(name, array.shape, array.dtype)
        assert whole.address is not None, "it was made just now"
        buffer.lie_at(whole.address + guard)
        return buffer
