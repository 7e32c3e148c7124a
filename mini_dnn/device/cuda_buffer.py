"""Arrays in the GPU's memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mini_dnn.device.base import Buffer, Scalar
from mini_dnn.errors import DeviceError


@dataclass
class CudaBuffer:
    """An array in the GPU's memory."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    memory: Any  # a DeviceAllocation, or the address of a module's variable
    nbytes: int

    @property
    def address(self) -> int | None:
        """The address of the first byte, or None if the buffer was freed."""
        return None if self.memory is None else int(self.memory)

    def free(self) -> None:
        """Return the memory. Freeing it twice is harmless."""
        if hasattr(self.memory, "free"):
            self.memory.free()
        self.memory = None


class LentCudaBuffer(CudaBuffer):
    """An array of another library in the GPU's memory; see `mini_dnn.device.base.LentBuffer`."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(name, shape, dtype, 0, prod(shape) * dtype.itemsize)
        self.place = ctypes.c_uint64()  # prepared launches read it

    def lie_at(self, address: int) -> None:
        """Set its current address."""
        self.memory = self.place.value = address

    def free(self) -> None:
        """Forget the address. The memory belongs to another library."""
        self.memory = None


def own(buffer: Buffer | Scalar) -> CudaBuffer:
    """Return the buffer if it is one of this GPU and not freed."""
    if not isinstance(buffer, CudaBuffer) or buffer.memory is None:
        raise DeviceError(f"{buffer!r} is not a buffer of this GPU, or was freed")
    return buffer


def address_of(buffer: Buffer | Scalar) -> int:
    """Return the address of the buffer if it is one of this GPU and not freed."""
    return int(own(buffer).memory)
