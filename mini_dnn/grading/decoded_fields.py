"""Decode and check the fields of a step in a decoded plan: buffers, arguments, names and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import isinf
from typing import Any

import numpy as np

from mini_dnn.device.tensor_map import ELEMENTS
from mini_dnn.errors import VariantError
from mini_dnn.ops import Array
from mini_dnn.variant import TensorMap
from mini_dnn.variant.plan import Argument, Images

NAME = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)
MAX_AXES = 8
MAX_STREAM = 63
INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True)
class Buffers:
    """The buffers that steps may use."""

    where: str  # where the steps are: "plan" or "setup"
    known: Mapping[str, Array]
    copied: Mapping[str, Array]  # the buffers that may be copied from or to the host


def argument_of(values: Any, buffers: Buffers) -> Argument:
    """Decode an argument of a launch."""
    match values:
        case ["buffer", name]:
            return known_buffer(name, buffers)
        case ["images", name, first, last]:
            return _images(known_buffer(name, buffers), first, last, buffers)
        case ["map", name, list(box), shape, strides, swizzle, dtype, windows]:
            fields = (shape, strides, swizzle, dtype, windows)
            return _tensor_map(known_buffer(name, buffers), box, *fields, buffers)
        case ["int", value]:
            return whole_number(value, "an int argument", -(2**31), 2**31 - 1)
        case ["float", (int() | float()) as value]:
            return float_of("float64", value).item()
        case ["scalar", str(kind), (int() | float()) as value] if kind in FLOATS:
            return float_of(kind, value)
        case ["scalar", str(kind), int(value)] if kind in INTEGERS:
            limits = np.iinfo(kind) if kind != "bool" else np.iinfo("int8")
            return np.dtype(kind).type(
                whole_number(int(value), f"a {kind}", int(limits.min), int(limits.max))
            )
    raise VariantError(
        f"an argument {str(values)[:100]}; an int that does not fit C's int is np.int64(...), other "
        "arguments are a buffer's name, Images(...), TensorMap(...), a float or a NumPy scalar"
    )


def _tensor_map(
    name: str, box: Any, shape: Any, strides: Any, swizzle: Any, dtype: Any, windows: Any, buffers: Buffers
) -> TensorMap:
    """Decode a tensor map, and check that it stays within its buffer."""
    what = f"the TensorMap of '{name}'"

    def sides(values: Any, least: int = 1) -> tuple[int, ...]:
        if not isinstance(values, list) or len(values) > MAX_AXES:
            raise VariantError(f"{what} has {str(values)[:100]}; expected sides such as (128, 64)")
        return tuple(whole_number(side, what, least) for side in values)

    if dtype not in (None, *ELEMENTS):
        raise VariantError(f"{what} is of {str(dtype)[:100]!r}; expected one of {', '.join(ELEMENTS)}")
    shape, strides = (None if values is None else sides(values) for values in (shape, strides))
    windows = None if windows is None else sides(windows, 0)
    found = TensorMap(name, sides(box), shape, strides, whole_number(swizzle, what), dtype, windows)
    array = buffers.known[name]
    found.geometry(array.shape, array.dtype, array.nbytes)  # this checks all fields
    return found


def float_of(kind: str, value: float) -> Any:
    """Decode a number of a float type that can represent it."""
    try:
        with np.errstate(over="ignore"):  # of a small type: refused below
            found = np.dtype(kind).type(value)
    except OverflowError as error:
        raise VariantError(f"a {kind} argument of {len(str(value))} digits is too large") from error
    if np.isinf(found) and not isinf(value):
        most = np.finfo(kind).max
        raise VariantError(f"a {kind} argument of {value:g} is too large; the largest is {most}")
    return found


def copied_part(name: Any, role: str, first: Any, last: Any, buffers: Buffers) -> Images:
    """Decode the part of an array that is copied from or to the host."""
    may = [known for known, array in buffers.copied.items() if array.role == role]
    if name not in may:
        known = ", ".join(may) or "nothing"
        raise VariantError(f"the {buffers.where} copies {str(name)[:100]!r} {role}; it may copy {known}")
    return _images(name, first, last, buffers)


def _images(name: str, first: Any, last: Any, buffers: Buffers) -> Images:
    last = whole_number(last, f"Images of '{name}'", 1, buffers.known[name].shape[0])
    return Images(name, whole_number(first, f"Images of '{name}'", 0, last - 1), last)


def known_buffer(name: Any, buffers: Buffers) -> str:
    """Check the name of a buffer."""
    if not isinstance(name, str) or name not in buffers.known:
        known = f"expected one of {', '.join(buffers.known)}" if buffers.known else "it has no buffers"
        raise VariantError(
            f"the {buffers.where} names a buffer {str(name)[:100]!r}; {known} "
            "(scratch= in variant.py adds more)"
        )
    return name


def c_name(text: str) -> str:
    """Check the name of a kernel, a variable or an event."""
    if not NAME.fullmatch(text):
        raise VariantError(f"{text[:100]!r} is not a valid name in C")
    return text


def stream_number(value: Any) -> int:
    """Check the number of a stream."""
    return whole_number(value, "a stream", 0, MAX_STREAM)


def whole_number(value: Any, what: str, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    """Check that a value is an integer within limits."""
    if type(value) is not int or not least <= value <= most:
        raise VariantError(
            f"{what} has {str(value)[:100]}; expected an integer from {least} to {most}: a // b or "
            "ceil_div(a, b)"
        )
    return value
