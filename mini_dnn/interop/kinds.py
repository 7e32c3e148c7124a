"""Arrays on a GPU: the interface to each library, and the messages about arrays that cannot be used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from mini_dnn.device.base import Device
from mini_dnn.errors import ShapeError

PROTOCOLS = ("shape", "__dlpack__", "__cuda_array_interface__")  # every array supports one of these


class More(NamedTuple):
    """Further data that a call with arrays of `mini_dnn.interop.protocols` needs."""

    others: tuple[int, ...]  # handles of streams whose work must be complete before the call
    owners: tuple[Any, ...]  # objects that must live until the work of the call is complete


# The arrays' GPU, the handle of their library's current stream, the shape and dtype of each array in turn,
# and their addresses
Gathered = tuple[int, int, tuple[Any, ...], list[int], More | None]


class Site(NamedTuple):
    """Where a call works."""

    gpu: int
    stream: int  # its handle
    device: Device


class Kind(Protocol):
    """A library's arrays."""

    def lies_on_gpu(self, array: Any) -> bool:
        """Whether the array is on a GPU and not in host memory."""

    def gather(self, names: Sequence[str], arrays: Sequence[Any]) -> Gathered:
        """The addresses of the arrays, and their stream. Every call does this.

        Raises
        ------
        ShapeError
            They cannot be used in place: they are not in C order, not on one GPU, of different libraries, or
            require a gradient.
        """

    def dtype(self, dtype: Any) -> str:
        """The NumPy name of the library's dtype."""

    def maker(self, shape: tuple[int, ...], dtype: str, site: Site) -> Callable[[], Any]:
        """A function that allocates an array on the current stream. The dtype has its NumPy name."""

    def address(self, array: Any) -> int:
        """The address of an array that was allocated."""

    def written(self, arrays: Sequence[Any]) -> None:
        """Called with the arrays that a call will write."""


def refuse_order(names: Sequence[str], arrays: Sequence[Any], array: Any, cure: str) -> NoReturn:
    """Raise an error because an array is not in C order. The cure may contain ``{name}``."""
    name = name_of(names, arrays, array)
    raise ShapeError(
        f"{name} {tuple(array.shape)} is not contiguous in C order, and arrays on a GPU are not copied; "
        f"pass {cure.format(name=name)}"
    )


def refuse_mixed(names: Sequence[str], arrays: Sequence[Any]) -> NoReturn:
    """Raise an error because arrays belong to different libraries or places, or are not arrays."""
    for name, array in zip(names, arrays, strict=True):
        if isinstance(array, type) or not any(hasattr(array, protocol) for protocol in PROTOCOLS):
            more = ', or the name of a type, such as "fp16"' if name == "out" else ""
            raise ShapeError(f"{name} is {describe(array)}; expected an array{more}")
    found = ", ".join(f"{name} is {describe(array)}" for name, array in zip(names, arrays, strict=True))
    raise ShapeError(
        f"{found}: the arrays of one call must be of one library, and all on a GPU or all in host memory; "
        "convert some of them"
    )


def describe(value: Any) -> str:
    """The type and the device of an array, or the type of another object: ``torch.Tensor on cpu``."""
    is_type = isinstance(value, type)
    kind, device = (value, None) if is_type else (type(value), getattr(value, "device", None))
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    at = "" if device is None else f" on {device}"
    return f"{'the type ' * is_type}{name}{' in host memory' if isinstance(value, np.ndarray) else at}"


def refuse_gpus(names: Sequence[str], gpus: Sequence[int]) -> NoReturn:
    """Raise an error because arrays are not on one GPU."""
    found = ", ".join(f"{name} is on GPU {gpu}" for name, gpu in zip(names, gpus, strict=True))
    raise ShapeError(f"{found}: the arrays of one call must be on one GPU; copy some of them there")


def name_of(names: Sequence[str], arrays: Sequence[Any], array: Any) -> str:
    """The name of one of the arrays."""
    return next(name for name, other in zip(names, arrays, strict=True) if other is array)
