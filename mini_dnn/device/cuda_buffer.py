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
        """Where it begins; None if it was freed."""
        return None if self.memory is None else int(self.memory)

    def free(self) -> None:
        """Return the memory; freeing twice is harmless."""
        if hasattr(self.memory, "free"):
            self.memory.free()
        self.memory = None


class LentCudaBuffer(CudaBuffer):
    """An array of another library's in the GPU's memory; see `mini_dnn.device.base.LentBuffer`."""

    def __init__(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(name, shape, dtype, 0, prod(shape) * dtype.itemsize)
        self.place = ctypes.c_uint64()  # what launches that are made ready read

    def lie_at(self, address: int) -> None:
        """From now on it lies there."""
        self.memory = self.place.value = address

    def free(self) -> None:
        """Forget where it lies: the memory is another library's."""
        self.memory = None


def own(buffer: Buffer | Scalar) -> CudaBuffer:
    """The buffer, if it is one of this GPU and not freed."""
    if not isinstance(buffer, CudaBuffer) or buffer.memory is None:
        raise DeviceError(f"{buffer!r} is not a buffer of this GPU, or was freed")
    return buffer


def address_of(buffer: Buffer | Scalar) -> int:
    """Where the buffer lies, if it is one of this GPU and not freed."""
    return int(own(buffer).memory)


def same_size(buffer: Buffer, array: np.ndarray) -> None:
    """Raise unless a host array can be copied to or from the buffer as it is."""
    if array.nbytes != buffer.nbytes or not array.flags.c_contiguous:
        raise DeviceError(
            f"'{buffer.name}' {buffer.shape} holds {buffer.nbytes} bytes; the host array {array.shape} "
            f"{array.dtype} has {array.nbytes} and must be C-contiguous"
        )
