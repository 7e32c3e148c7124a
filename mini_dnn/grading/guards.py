"""Buffers of a timed call with canaries round them: who writes beside a buffer is seen."""

from __future__ import annotations

import secrets

import numpy as np

from mini_dnn.device.base import Buffer, Device, Module
from mini_dnn.ops import Array
from mini_dnn.running.execute import Execution
from mini_dnn.variant import Planned

WORD = 4  # bytes that are most often written
GUARD = 4096  # bytes before and behind each buffer; a multiple of whatever alignment copies want


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
        self._canary = np.frombuffer(secrets.token_bytes(GUARD), np.uint8)
        for guards in self._guards.values():
            for guard in guards:
                self._device.copy_in(guard, self._canary)

    def written_beside(self) -> str:
        """The buffer beside which something was written; empty if there is none."""
        found = np.empty_like(self._canary)
        for name, guards in self._guards.items():
            for guard, side in zip(guards, ("before", "behind"), strict=True):
                self._device.copy_out(guard, found)
                if not np.array_equal(found, self._canary):
                    far = int(np.argmax((found != self._canary)[:: -1 if side == "before" else 1])) + 1
                    return f"{far + -far % WORD:,} bytes {side} the buffer '{name}'"
        return ""

    def free(self) -> None:
        """Free all buffers, and what lies round them."""
        super().free()
        for whole in self._wholes:
            whole.free()

    def _empty(self, name: str, array: Array) -> Buffer:
        device, end = self._device, GUARD + array.nbytes
        whole = device.empty(f"{name} and its guards", (end + GUARD,), np.uint8, fill=False)
        self._wholes.append(whole)
        self._guards[name] = device.part(whole, 0, GUARD), device.part(whole, end, end + GUARD)
        buffer = device.lent(name, array.shape, array.dtype)
        assert whole.address is not None, "it was made just now"
        buffer.lie_at(whole.address + GUARD)
        return buffer
