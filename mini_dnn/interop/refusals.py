"""Arguments of a call that are refused, and what is said of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from mini_dnn.device import check_name
from mini_dnn.errors import ShapeError, UsageError
from mini_dnn.interop.kinds import describe
from mini_dnn.running.prepared import ALIGNMENT
from mini_dnn.variant import Variant


def check_impl(impl: Any) -> None:
    """Refuse what names no variant, and is none."""
    if not isinstance(impl, str | Path | Variant):
        raise UsageError(
            f"impl is {describe(impl)}; expected the name of a variant, or the path of its folder. Arrays "
            "that may be left out are passed by name"
        )


def check_host(held: Mapping[str, Any], device: Any) -> None:
    """Refuse arrays whose masks would be lost, and what is no device."""
    for name, value in held.items():
        if isinstance(value, np.ma.MaskedArray):
            raise ShapeError(
                f"{name} is a masked array, and kernels know no masks; pass {name}.filled(0) or {name}.data"
            )
    if not isinstance(device, str) and not hasattr(device, "arch"):
        raise UsageError(
            f"device is {describe(device)}; expected auto, cuda, emulator, or what open_device() returns"
        )


def check_writable(results: tuple[Any, ...]) -> None:
    """Refuse what is no array of NumPy that may be written."""
    for array in results:
        if not isinstance(array, np.ndarray):
            raise ShapeError(
                f"out= is {describe(array)}; expected an array of NumPy, as all others are, or the name of a "
                'type, such as "fp16"'
            )
        if not array.flags.writeable:
            raise ShapeError("out= is read-only; pass an array that may be written, such as out.copy()")


def check_device(device: Any) -> None:
    """Refuse a device that is not a GPU."""
    if isinstance(device, str):
        check_name(device)
    name = device if isinstance(device, str) else getattr(device, "name", "")
    if name not in ("auto", "cuda"):
        raise UsageError(
            f"the arrays lie on a GPU, and device is {name or describe(device)}; leave device out, or pass "
            "arrays of NumPy"
        )


def refuse_place(names: Sequence[str], addresses: Sequence[int]) -> NoReturn:
    """Raise, as kernels cannot load from one of the arrays in one go."""
    name, at = next(entry for entry in zip(names, addresses, strict=False) if entry[1] % ALIGNMENT)
    raise ShapeError(
        f"{name} begins {at % ALIGNMENT} bytes behind a multiple of {ALIGNMENT}, as parts of arrays may, and "
        f"kernels load up to {ALIGNMENT} bytes at once; pass a copy of it"
    )


def check_apart(names: Sequence[str], addresses: Sequence[int], nbytes: Sequence[int], results: int) -> None:
    """Refuse results that overlap what is read."""
    count = len(names) - results
    for out, size in zip(addresses[count:], nbytes[count:], strict=True):
        for name, at, length in zip(names, addresses[:count], nbytes, strict=False):
            if at < out + size and out < at + length:
                raise ShapeError(f"out= overlaps {name}, which is read meanwhile; pass another array")
