"""Reads plans from text that a submission's process wrote, and may have made up.

Nothing is taken for granted: types, sizes, names and ranges are checked, and what comes out holds values of
this program's own making only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mini_dnn.device.base import GRID_LIMIT
from mini_dnn.errors import VariantError
from mini_dnn.grading.plans import Head, Planned
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.variant import PRECISIONS
from mini_dnn.variant.plan import Argument, CopyIn, CopyOut, CopyToSymbol, Gemm, Images, Launch, Step

NAME = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)
MAX_STEPS = 4096
MAX_ARGUMENTS = 128
MAX_NAMES = 256  # of scratch buffers, and of definitions
MAX_TEXT = 2000  # characters of a message
MAX_ELEMENTS = 1 << 40
MAX_BLOCK, MAX_SHARED_BYTES, MAX_STREAM = 1024, 1 << 20, 63
SCALARS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")


def decode_head(text: bytes) -> Head:
    """A head from text that may be anything.

    Raises
    ------
    VariantError
        It is none.
    """
    match _parsed(text):
        case [str(precision), int(min_arch), str(needs_gpu), bool(host)] if precision in PRECISIONS:
            return Head(precision, min_arch, needs_gpu[:MAX_TEXT], host)
    raise VariantError("variant.py answers with something that is no variant")


def decode(text: bytes, shape: ConvShape) -> Planned:
    """A plan for a shape from text that may be anything.

    Raises
    ------
    VariantError
        It is no plan, or one that reaches beyond its buffers; the message says where.
    """
    return decode_values(_parsed(text), shape)


def decode_values(values: Any, shape: ConvShape) -> Planned:
    """The same from values that were parsed."""
    match values:
        case {
            "refuses": str(refuses),
            "scratch": dict(scratch),
            "defines": dict(defines),
            "steps": list(steps),
        }:
            pass
        case _:
            raise VariantError("variant.py answers with something that is no plan")
    if len(steps) > MAX_STEPS:
        raise VariantError(f"a plan of {len(steps)} steps; the most is {MAX_STEPS}")
    for what, named in (("scratch buffers", scratch), ("definitions", defines)):
        if len(named) > MAX_NAMES:
            raise VariantError(f"a plan with {len(named)} {what}; the most is {MAX_NAMES}")
    sizes = {_name(name): _sides(name, sides) for name, sides in scratch.items()}
    given = {"x": shape.x, "w": shape.w, "y": shape.y}
    taken = sorted(set(sizes) & set(given))
    if taken:
        raise VariantError(f"scratch has a buffer '{taken[0]}'; x, w and y are given")
    buffers = {**given, **sizes}
    return Planned(
        shape,
        refuses[:MAX_TEXT],
        sizes,
        {_name(name): _whole(value, f"the definition of {name}") for name, value in defines.items()},
        tuple(_decode_step(step, buffers) for step in steps),
    )


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VariantError(f"variant.py answers with something that is no JSON: {error}") from error


def _decode_step(values: Any, buffers: Mapping[str, tuple[int, ...]]) -> Step:
    match values:
        case {
            "launch": str(kernel),
            "grid": list(grid),
            "block": list(block),
            "args": list(args),
            "shared_bytes": shared,
            "stream": stream,
        }:
            return _launch(kernel, grid, block, args, shared, _stream(stream), buffers)
        case {"symbol": str(symbol), "buffer": buffer, "stream": stream}:
            return CopyToSymbol(_name(symbol), _buffer(buffer, buffers), _stream(stream))
        case {"copy_in": ["x", first, last], "stream": stream}:
            return CopyIn(_images("x", first, last, buffers), _stream(stream))
        case {"copy_out": ["y", first, last], "stream": stream}:
            return CopyOut(_images("y", first, last, buffers), _stream(stream))
        case {"gemm": [a, b, c], "sizes": [m, n, k], "stream": stream}:
            m, n, k = (_whole(size, "a gemm", 1) for size in (m, n, k))
            for buffer, size in ((a, m * k), (b, k * n), (c, m * n)):
                if math.prod(buffers[_buffer(buffer, buffers)]) < size:
                    raise VariantError(f"a gemm of m, n, k = {m}, {n}, {k} reaches beyond '{buffer}'")
            return Gemm(a, b, c, m, n, k, _stream(stream))
    raise VariantError(f"a step of the plan that is none: {str(values)[:200]}")


def _launch(
    kernel: str,
    grid: Sequence[Any],
    block: Sequence[Any],
    args: Sequence[Any],
    shared: Any,
    stream: int,
    buffers: Mapping[str, tuple[int, ...]],
) -> Launch:
    what = f"the launch of {_name(kernel)}"
    if not 1 <= len(grid) <= 3 or not 1 <= len(block) <= 3 or len(args) > MAX_ARGUMENTS:
        raise VariantError(f"{what}: grid {grid}, block {block}; expected one to three sizes of each")
    return Launch(
        kernel,
        tuple(_whole(size, what, 1, limit) for size, limit in zip(grid, GRID_LIMIT, strict=False)),
        tuple(_whole(size, what, 1, MAX_BLOCK) for size in block),
        tuple(_argument(value, buffers) for value in args),
        _whole(shared, what, 0, MAX_SHARED_BYTES),
        stream,
    )


def _argument(values: Any, buffers: Mapping[str, tuple[int, ...]]) -> Argument:
    match values:
        case ["buffer", name]:
            return _buffer(name, buffers)
        case ["images", name, first, last]:
            return _images(_buffer(name, buffers), first, last, buffers)
        case ["int", value]:
            return _whole(value, "an int argument", -(2**31), 2**31 - 1)
        case ["float", (int() | float()) as value]:
            return _float("float64", value).item()
        case ["scalar", str(kind), (int() | float()) as value] if kind in FLOATS:
            return _float(kind, value)
        case ["scalar", str(kind), int(value)] if kind in SCALARS:
            limits = np.iinfo(kind) if kind != "bool" else np.iinfo("int8")
            return np.dtype(kind).type(_whole(int(value), f"a {kind}", int(limits.min), int(limits.max)))
    raise VariantError(
        f"an argument {str(values)[:100]}; an int that does not fit C's int is np.int64(...), other "
        "arguments are a buffer's name, Images(...), a float or a NumPy scalar"
    )


def _float(kind: str, value: float) -> Any:
    try:
        return np.dtype(kind).type(value)
    except OverflowError as error:
        raise VariantError(f"a {kind} argument of {len(str(value))} digits is too large") from error


def _images(name: str, first: Any, last: Any, buffers: Mapping[str, tuple[int, ...]]) -> Images:
    last = _whole(last, f"Images of '{name}'", 1, buffers[name][0])
    return Images(name, _whole(first, f"Images of '{name}'", 0, last - 1), last)


def _buffer(name: Any, buffers: Mapping[str, tuple[int, ...]]) -> str:
    if not isinstance(name, str) or name not in buffers:
        raise VariantError(
            f"the plan names a buffer {str(name)[:100]!r}; there are {', '.join(buffers)} "
            "(scratch= in variant.py adds more)"
        )
    return name


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise VariantError(f"{text[:100]!r} is no name in C")
    return text


def _sides(name: str, sides: Any) -> tuple[int, ...]:
    if not isinstance(sides, list) or not 1 <= len(sides) <= 8:
        raise VariantError(f"scratch buffer '{name}' has no shape such as (K, cols)")
    shape = tuple(_whole(side, f"scratch buffer '{name}'", 1) for side in sides)
    if math.prod(shape) > MAX_ELEMENTS:
        raise VariantError(f"scratch buffer '{name}' {shape} is too large for any GPU")
    return shape


def _stream(value: Any) -> int:
    return _whole(value, "a stream", 0, MAX_STREAM)


def _whole(value: Any, what: str, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise VariantError(
            f"{what} has {str(value)[:100]}; expected a whole number from {least} to {most}: a // b or "
            "ceil_div(a, b)"
        )
    return value
