"""Reads plans from text that a submission's process wrote, and may have made up.

Nothing is taken for granted: types, sizes, names and ranges are checked, and what comes out holds values of
this program's own making only.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn import ops
from mini_dnn.device.base import GRID_LIMIT
from mini_dnn.device.clusters import MAX_CLUSTER
from mini_dnn.device.product import LARGEST, LAYOUTS, Product
from mini_dnn.device.tensor_map import ELEMENTS
from mini_dnn.errors import VariantError
from mini_dnn.grading.plans import Head
from mini_dnn.ops import Array
from mini_dnn.ops.compare import PRECISIONS
from mini_dnn.variant import Planned, TensorMap
from mini_dnn.variant.plan import (
    Argument,
    CopyIn,
    CopyOut,
    CopyToSymbol,
    Gemm,
    Images,
    Launch,
    Record,
    Step,
    Wait,
)

NAME = re.compile(r"[A-Za-z_]\w{0,127}", re.ASCII)
AXES = re.compile(r"[a-zA-Z]*")
MAX_STEPS = 4096
MAX_ARGUMENTS = 128
MAX_NAMES = 256  # of scratch buffers, and of definitions
MAX_TEXT = 2000  # characters of a message
MAX_AXES, MAX_ELEMENTS = 8, 1 << 40
MAX_ARCH, MAX_BLOCK, MAX_SHARED_BYTES, MAX_STREAM = 999, 1024, 1 << 20, 63
INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "float32", "float64")
TYPES = (*INTEGERS, *FLOATS, "bfloat16", "complex64", "complex128")  # of scratch buffers


@dataclass(frozen=True)
class _Buffers:
    """What steps may name."""

    where: str  # the steps are: "plan", "setup"
    known: Mapping[str, Array]
    copied: Mapping[str, Array]  # those of them that steps may copy from or to the host


def decode_head(text: bytes) -> Head:
    """A head from text that may be anything.

    Raises
    ------
    VariantError
        It is none.
    """
    match _parsed(text):
        case [str(op), str(precision), min_arch, str(needs_gpu), bool(host)] if (
            op in ops.names() and precision in PRECISIONS
        ):
            arch = _whole(min_arch, "min_arch of the variant", 0, MAX_ARCH)
            return Head(op, precision, arch, needs_gpu[:MAX_TEXT], host)
    raise VariantError("the answer of variant.py is not a variant")


def decode(text: bytes, problem: Any, head: Head, source: Path) -> Planned:
    """A plan for a problem from text that may be anything.

    Parameters
    ----------
    head, source
        What the variant says of itself, and its kernel file.

    Raises
    ------
    VariantError
        It is no plan, or one that reaches beyond its buffers; the message says where.
    """
    return decode_values(_parsed(text), problem, head, source)


def decode_values(values: Any, problem: Any, head: Head, source: Path) -> Planned:
    """The same from values that were parsed."""
    match values:
        case {
            "scratch": dict(scratch),
            "defines": dict(defines),
            "setup": list(setup),
            "steps": list(steps),
        }:
            pass
        case _:
            raise VariantError("the answer of variant.py is not a plan")
    if len(setup) + len(steps) > MAX_STEPS:
        raise VariantError(f"a plan of {len(setup) + len(steps)} steps; at most {MAX_STEPS} are allowed")
    for what, named in (("scratch buffers", scratch), ("definitions", defines)):
        if len(named) > MAX_NAMES:
            raise VariantError(f"a plan with {len(named)} {what}; at most {MAX_NAMES} are allowed")
    given = problem.arrays
    taken = sorted(set(scratch) & set(given))
    if taken:
        raise VariantError(f"scratch has a buffer '{taken[0]}'; {', '.join(given)} are given")
    more = {_name(name): _array(name, value) for name, value in scratch.items()}
    copied = {n: array for n, array in problem.named("in", "out").items() if array.split}
    in_plan = _Buffers("plan", {**given, **more}, copied)
    in_setup = _Buffers(
        "setup", {**problem.named("weight"), **more}, {}
    )  # it is done before there are inputs
    return Planned(
        name=source.parent.name,
        problem=problem,
        steps=tuple(_step(step, in_plan) for step in steps),
        setup=tuple(_step(step, in_setup) for step in setup),
        scratch=more,
        defines={_name(name): _whole(value, f"the definition of {name}") for name, value in defines.items()},
        source=source,
        precision=head.precision,
        min_arch=head.min_arch,
        needs_gpu=head.needs_gpu,
    )


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise VariantError(f"the answer of variant.py is not valid JSON: {error}") from error


def _array(name: str, values: Any) -> Array:
    """A scratch buffer."""
    what = f"scratch buffer '{name}'"
    match values:
        case [str(dtype), list(sides), str(axes)] if 1 <= len(sides) <= MAX_AXES:
            pass
        case _:
            raise VariantError(f"{what} has no shape such as (K, cols)")
    if dtype not in TYPES:
        raise VariantError(f"{what} is of {dtype[:100]!r}; expected one of {', '.join(TYPES)}")
    shape = tuple(_whole(side, what, 1) for side in sides)
    if math.prod(shape) > MAX_ELEMENTS:
        raise VariantError(f"{what} {shape} is too large for any GPU")
    if not AXES.fullmatch(axes) or len(axes) not in (0, len(shape)):
        raise VariantError(f"{what} {shape} has the axes {axes[:100]!r}; expected one letter for each axis")
    return Array(shape, dtype, axes=axes)


def _step(values: Any, buffers: _Buffers) -> Step:
    match values:
        case {
            "launch": str(kernel),
            "grid": list(grid),
            "block": list(block),
            "args": list(args),
            "shared_bytes": shared,
            "stream": stream,
            "cluster": cluster,
            "early": bool(early),
        }:
            launch = _launch(kernel, grid, block, args, shared, _stream(stream), buffers)
            return replace(launch, cluster=_cluster(cluster), early=early)
        case {"symbol": str(symbol), "buffer": buffer, "stream": stream}:
            return CopyToSymbol(_name(symbol), _buffer(buffer, buffers), _stream(stream))
        case {"copy_in": [name, first, last], "stream": stream}:
            return CopyIn(_copied(name, "in", first, last, buffers), _stream(stream))
        case {"copy_out": [name, first, last], "stream": stream}:
            return CopyOut(_copied(name, "out", first, last, buffers), _stream(stream))
        case {"cublas": [a, b, c], "product": list(product), "stream": stream}:
            a, b, c = (_buffer(name, buffers) for name in (a, b, c))
            return Gemm(a, b, c, **_product((a, b, c), product, buffers), stream=_stream(stream))
        case {"record": str(event), "stream": stream}:
            return Record(_name(event), _stream(stream))
        case {"wait": str(event), "stream": stream}:
            return Wait(_name(event), _stream(stream))
    raise VariantError(f"an invalid step of the plan: {str(values)[:200]}")


def _product(names: Sequence[str], values: Sequence[Any], buffers: _Buffers) -> dict[str, Any]:
    """The fields of a product that keeps to its buffers."""
    if len(values) != len(fields(Product)):
        raise VariantError(f"a gemm with {len(values)} sizes and factors; expected {len(fields(Product))}")
    given: dict[str, Any] = {}
    for field, value in zip(fields(Product), values, strict=True):
        what = f"{field.name} of a gemm"
        match field.type:
            case "int":
                given[field.name] = _whole(value, what, 0, LARGEST)
            case "float" if type(value) in (int, float):
                given[field.name] = float(_float("float64", value))
            case "str" if value in LAYOUTS:
                given[field.name] = value
            case _:
                raise VariantError(f"{what} is {str(value)[:100]!r}")
    arrays = {letter: buffers.known[name] for letter, name in zip("abc", names, strict=True)}
    if limit := Product(**given).limit_for(arrays):
        raise VariantError(f"a gemm of {', '.join(names)}: {limit}")
    return given


def _launch(
    kernel: str,
    grid: Sequence[Any],
    block: Sequence[Any],
    args: Sequence[Any],
    shared: Any,
    stream: int,
    buffers: _Buffers,
) -> Launch:
    what = f"the launch of {_name(kernel)}"
    if not 1 <= len(grid) <= 3 or not 1 <= len(block) <= 3 or len(args) > MAX_ARGUMENTS:
        raise VariantError(f"{what}: grid {grid}, block {block}; expected one to three sizes for each")
    return Launch(
        kernel,
        tuple(_whole(size, what, 1, limit) for size, limit in zip(grid, GRID_LIMIT, strict=False)),
        tuple(_whole(size, what, 1, MAX_BLOCK) for size in block),
        tuple(_argument(value, buffers) for value in args),
        _whole(shared, what, 0, MAX_SHARED_BYTES),
        stream,
    )


def _cluster(values: Any) -> int | tuple[int, ...]:
    if isinstance(values, list) and 1 <= len(values) <= 3:
        return tuple(_whole(size, "a cluster", 1, MAX_CLUSTER) for size in values)
    return _whole(values, "a cluster", 1, MAX_CLUSTER)


def _argument(values: Any, buffers: _Buffers) -> Argument:
    match values:
        case ["buffer", name]:
            return _buffer(name, buffers)
        case ["images", name, first, last]:
            return _images(_buffer(name, buffers), first, last, buffers)
        case ["map", name, list(box), shape, strides, swizzle, dtype, windows]:
            fields = (shape, strides, swizzle, dtype, windows)
            return _tensor_map(_buffer(name, buffers), box, *fields, buffers)
        case ["int", value]:
            return _whole(value, "an int argument", -(2**31), 2**31 - 1)
        case ["float", (int() | float()) as value]:
            return _float("float64", value).item()
        case ["scalar", str(kind), (int() | float()) as value] if kind in FLOATS:
            return _float(kind, value)
        case ["scalar", str(kind), int(value)] if kind in INTEGERS:
            limits = np.iinfo(kind) if kind != "bool" else np.iinfo("int8")
            return np.dtype(kind).type(_whole(int(value), f"a {kind}", int(limits.min), int(limits.max)))
    raise VariantError(
        f"an argument {str(values)[:100]}; an int that does not fit C's int is np.int64(...), other "
        "arguments are a buffer's name, Images(...), TensorMap(...), a float or a NumPy scalar"
    )


def _tensor_map(
    name: str, box: Any, shape: Any, strides: Any, swizzle: Any, dtype: Any, windows: Any, buffers: _Buffers
) -> TensorMap:
    """A tensor map that stays within its buffer."""
    what = f"the TensorMap of '{name}'"

    def sides(values: Any, least: int = 1) -> tuple[int, ...]:
        if not isinstance(values, list) or len(values) > MAX_AXES:
            raise VariantError(f"{what} has {str(values)[:100]}; expected sides such as (128, 64)")
        return tuple(_whole(side, what, least) for side in values)

    if dtype not in (None, *ELEMENTS):
        raise VariantError(f"{what} is of {str(dtype)[:100]!r}; expected one of {', '.join(ELEMENTS)}")
    shape, strides = (None if values is None else sides(values) for values in (shape, strides))
    windows = None if windows is None else sides(windows, 0)
    found = TensorMap(name, sides(box), shape, strides, _whole(swizzle, what), dtype, windows)
    array = buffers.known[name]
    found.geometry(array.shape, array.dtype, array.nbytes)  # which looks at all of it
    return found


def _float(kind: str, value: float) -> Any:
    try:
        return np.dtype(kind).type(value)
    except OverflowError as error:
        raise VariantError(f"a {kind} argument of {len(str(value))} digits is too large") from error


def _copied(name: Any, role: str, first: Any, last: Any, buffers: _Buffers) -> Images:
    """A part of an array that is copied from or to the host."""
    may = [known for known, array in buffers.copied.items() if array.role == role]
    if name not in may:
        known = ", ".join(may) or "nothing"
        raise VariantError(f"the {buffers.where} copies {str(name)[:100]!r} {role}; it may copy {known}")
    return _images(name, first, last, buffers)


def _images(name: str, first: Any, last: Any, buffers: _Buffers) -> Images:
    last = _whole(last, f"Images of '{name}'", 1, buffers.known[name].shape[0])
    return Images(name, _whole(first, f"Images of '{name}'", 0, last - 1), last)


def _buffer(name: Any, buffers: _Buffers) -> str:
    if not isinstance(name, str) or name not in buffers.known:
        known = f"expected one of {', '.join(buffers.known)}" if buffers.known else "it has no buffers"
        raise VariantError(
            f"the {buffers.where} names a buffer {str(name)[:100]!r}; {known} "
            "(scratch= in variant.py adds more)"
        )
    return name


def _name(text: str) -> str:
    if not NAME.fullmatch(text):
        raise VariantError(f"{text[:100]!r} is not a valid name in C")
    return text


def _stream(value: Any) -> int:
    return _whole(value, "a stream", 0, MAX_STREAM)


def _whole(value: Any, what: str, least: int = -(2**63), most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise VariantError(
            f"{what} has {str(value)[:100]}; expected an integer from {least} to {most}: a // b or "
            "ceil_div(a, b)"
        )
    return value
