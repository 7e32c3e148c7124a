"""Buffers of a timed call with canaries round them: who writes beside a buffer is seen."""

from __future__ import annotations

import secrets

import numpy as np

from mini_dnn.device.base import Buffer, Device, Module
from mini_dnn.ops import Array
from mini_dnn.running.execute import Execution
from mini_dnn.variant import Planned

WORD = 4  # bytes that are most often written
PART = 8  # of a buffer lies before it, and as much behind
LEAST, MOST = 4096, 1 << 20  # bytes of that; multiples of whatever alignment copies want


def guard_bytes(nbytes: int) -> int:
    """Bytes that lie before a buffer of so many, and behind it."""
    part = -(-nbytes // PART)
    return min(MOST, max(LEAST, part + -part % LEAST))


class Guarded(Execution):
    """An execution whose buffers lie between bytes that nobody can know, which must stay as they are."""

    def __init__(self, planned: Planned, module: Module, device: Device) -> None:
        self._wholes: list[Buffer] = []
        self._guards: dict[str, tuple[Buffer, Buffer]] = {}
        self._canary = np.empty(0, np.uint8)
        super().__init__(planned, module, device)

    def fill(self) -> None:
        """Fill all buffers with NaN, and what lies round them anew."""
        super().fill()
        longest = max((before.nbytes for before, _ in self._guards.values()), default=0)
        self._canary = np.frombuffer(secrets.token_bytes(longest), np.uint8)
        for guards in self._guards.values():
            for guard in guards:
                self._device.copy_in(guard, self._canary[: guard.nbytes])

    def written_beside(self) -> str:
        """The buffer beside which something was written; empty if there is none."""
        for name, guards in self._guards.items():
            for guard, side in zip(guards, ("before", "behind"), strict=True):
                found, canary = np.empty(guard.nbytes, np.uint8), self._canary[: guard.nbytes]
                self._device.copy_out(guard, found)
                if not np.array_equal(found, canary):
                    far = int(np.argmax((found != canary)[:: -1 if side == "before" else 1])) + 1
                    return f"{far + -far % WORD:,} bytes {side} the buffer '{name}'"
        return ""

    def free(self) -> None:
        """Free all buffers, and what lies round them."""
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
