"""Checks of a call's arguments, and their messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from mini_dnn.device import check_name
from mini_dnn.errors import ShapeError, UsageError
from mini_dnn.interop.kinds import describe
from mini_dnn.running.prepared import ALIGNMENT
from mini_dnn.variant import Variant

OVERLAPPING = "the arrays of out= overlap each other; pass one array for each result"


def check_impl(impl: Any) -> None:
    """Refuse a value that is neither the name of a variant nor a variant."""
    if not isinstance(impl, str | Path | Variant):
        raise UsageError(
            f"impl is {describe(impl)}; expected the name of a variant, or the path of its folder. Optional "
            "arrays are keyword arguments"
        )


def check_host(held: Mapping[str, Any], device: Any) -> None:
    """Refuse arrays whose masks would be lost, and what is no device."""
    for name, value in held.items():
        if isinstance(value, np.ma.MaskedArray):
            raise ShapeError(
                f"{name} is a masked array, which is not supported; pass {name}.filled(0) or {name}.data"
            )
    if not isinstance(device, str) and not hasattr(device, "arch"):
        raise UsageError(
            f"device is {describe(device)}; expected auto, cuda, emulator, or what open_device() returns"
        )


def host_array(name: str, value: Any) -> np.ndarray:
    """Convert an argument in host memory to a NumPy array in this machine's byte order.

    Raises
    ------
    ShapeError
        NumPy cannot convert it, or its values are not numbers.
    """
    try:
        array = np.asarray(value)
    # For example, NumPy refuses rows of different lengths, and PyTorch a tensor that requires a gradient
    except (ValueError, TypeError, RuntimeError) as error:
        raise ShapeError(f"{name} is {describe(value)}, which NumPy cannot read: {error}") from error
    if array.dtype.kind in "OSU":
        raise ShapeError(
            f"{name} is {describe(value)} with {array.dtype} values; expected an array of numbers"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def check_writable(results: tuple[Any, ...]) -> None:
    """Refuse results that are not writable NumPy arrays, or that share memory."""
    for array in results:
        if not isinstance(array, np.ndarray):
            raise ShapeError(
                f"out= is {describe(array)}; expected a NumPy array, like all others, or the name of a "
                'type, such as "fp16"'
            )
        if not array.flags.writeable:
            raise ShapeError("out= is read-only; pass a writable array, such as out.copy()")
    if any(np.shares_memory(a, b) for a, b in combinations(results, 2)):
        raise ShapeError(OVERLAPPING)


def check_device(device: Any) -> None:
    """Refuse a device that is not a GPU."""
    if isinstance(device, str):
        check_name(device)
    name = device if isinstance(device, str) else getattr(device, "name", "")
    if name not in ("auto", "cuda"):
        raise UsageError(
            f"the arrays are on a GPU, and device is {name or describe(device)}; leave device out, or pass "
            "arrays of NumPy"
        )


def refuse_place(names: Sequence[str], addresses: Sequence[int]) -> NoReturn:
    """Raise an error because one of the arrays is not aligned for the loads of kernels."""
    name, at = next(entry for entry in zip(names, addresses, strict=False) if entry[1] % ALIGNMENT)
    raise ShapeError(
        f"{name} begins {at % ALIGNMENT} bytes after a multiple of {ALIGNMENT}, as a part of an array can, "
        f"and kernels load up to {ALIGNMENT} bytes at once; pass a copy of it"
    )


def check_apart(names: Sequence[str], addresses: Sequence[int], nbytes: Sequence[int], results: int) -> None:
    """Refuse results that overlap an input or each other."""
    count = len(names) - results
    for which in range(count, len(names)):
        out = addresses[which]
        end = out + nbytes[which]
        for other in range(which):
            at = addresses[other]
            if at < end and out < at + nbytes[other]:
                if other >= count:
                    raise ShapeError(OVERLAPPING)
                raise ShapeError(
                    f"out= overlaps {names[other]}, which is read at the same time; pass another array"
                )
