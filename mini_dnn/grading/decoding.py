"""Decode plans from text that a submission's process wrote, which may contain anything.

Types, sizes, names and ranges are all checked, and the result contains only objects that this program
creates.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from mini_dnn import ops
from mini_dnn.device.base import GRID_LIMIT
from mini_dnn.device.clusters import MAX_CLUSTER
from mini_dnn.device.product import LARGEST, LAYOUTS, Product
from mini_dnn.errors import VariantError
from mini_dnn.grading.decoded_fields import (
    FLOATS,
    INTEGERS,
    MAX_AXES,
    Buffers,
    argument_of,
    c_name,
    copied_part,
    float_of,
    known_buffer,
    stream_number,
    whole_number,
)
from mini_dnn.grading.plans import Head
from mini_dnn.ops import Array
from mini_dnn.ops.compare import PRECISIONS
from mini_dnn.variant import Planned
from mini_dnn.variant.plan import CopyIn, CopyOut, CopyToSymbol, Gemm, Launch, Record, Step, Wait

AXES = re.compile(r"[a-zA-Z]*")
MAX_STEPS = 4096
MAX_ARGUMENTS = 128
MAX_NAMES = 256  # the most scratch buffers, and the most definitions
MAX_TEXT = 2000  # the most characters of a message
MAX_ELEMENTS = 1 << 40
MAX_ARCH, MAX_BLOCK, MAX_SHARED_BYTES = 999, 1024, 1 << 20
TYPES = (*INTEGERS, *FLOATS, "bfloat16", "complex64", "complex128")  # types of scratch buffers


def decode_head(text: bytes) -> Head:
    """Decode a head from untrusted text.

    Raises
    ------
    VariantError
        The text is not a head.
    """
    match _parsed(text):
        case [str(op), str(precision), min_arch, str(needs_gpu), bool(host)] if (
            op in ops.names() and precision in PRECISIONS
        ):
            arch = whole_number(min_arch, "min_arch of the variant", 0, MAX_ARCH)
            return Head(op, precision, arch, needs_gpu[:MAX_TEXT], host)
    raise VariantError("the answer of variant.py is not a variant")


def decode(text: bytes, problem: Any, head: Head, source: Path) -> Planned:
    """Decode a plan for a problem from untrusted text.

    Parameters
    ----------
    head, source
        The fields that the variant declares, and its kernel file.

    Raises
    ------
    VariantError
        The text is not a plan, or the plan exceeds its buffers. The message says where.
    """
    return decode_values(_parsed(text), problem, head, source)


def decode_values(values: Any, problem: Any, head: Head, source: Path) -> Planned:
    """Decode a plan from parsed values."""
    match values:
        case {"scratch": dict(scratch), "defines": dict(defines), "setup": list(setup), "steps": list(steps)}:
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
    more = {c_name(name): _array(name, value) for name, value in scratch.items()}
    copied = {n: array for n, array in problem.named("in", "out").items() if array.split}
    in_plan = Buffers("plan", {**given, **more}, copied)
    # Set-up runs before there are inputs
    in_setup = Buffers("setup", {**problem.named("weight"), **more}, {})
    return Planned(
        name=source.parent.name,
        problem=problem,
        steps=tuple(_step(step, in_plan) for step in steps),
        setup=tuple(_step(step, in_setup) for step in setup),
        scratch=more,
        defines={
            c_name(name): whole_number(value, f"the definition of {name}") for name, value in defines.items()
        },
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
    """Decode a scratch buffer."""
    what = f"scratch buffer '{name}'"
    match values:
        case [str(dtype), list(sides), str(axes)] if 1 <= len(sides) <= MAX_AXES:
            pass
        case _:
            raise VariantError(f"{what} has no shape such as (K, cols)")
    if dtype not in TYPES:
        raise VariantError(f"{what} is of {dtype[:100]!r}; expected one of {', '.join(TYPES)}")
    shape = tuple(whole_number(side, what, 1) for side in sides)
    if math.prod(shape) > MAX_ELEMENTS:
        raise VariantError(f"{what} {shape} is too large for any GPU")
    if not AXES.fullmatch(axes) or len(axes) not in (0, len(shape)):
        raise VariantError(f"{what} {shape} has the axes {axes[:100]!r}; expected one letter for each axis")
    return Array(shape, dtype, axes=axes)


def _step(values: Any, buffers: Buffers) -> Step:
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
            launch = _launch(kernel, grid, block, args, shared, stream_number(stream), buffers)
            return replace(launch, cluster=_cluster(cluster), early=early)
        case {"symbol": str(symbol), "buffer": buffer, "stream": stream}:
            return CopyToSymbol(c_name(symbol), known_buffer(buffer, buffers), stream_number(stream))
        case {"copy_in": [name, first, last], "stream": stream}:
            return CopyIn(copied_part(name, "in", first, last, buffers), stream_number(stream))
        case {"copy_out": [name, first, last], "stream": stream}:
            return CopyOut(copied_part(name, "out", first, last, buffers), stream_number(stream))
        case {"cublas": [a, b, c], "product": list(product), "stream": stream}:
            a, b, c = (known_buffer(name, buffers) for name in (a, b, c))
            return Gemm(a, b, c, **_product((a, b, c), product, buffers), stream=stream_number(stream))
        case {"record": str(event), "stream": stream}:
            return Record(c_name(event), stream_number(stream))
        case {"wait": str(event), "stream": stream}:
            return Wait(c_name(event), stream_number(stream))
    raise VariantError(f"an invalid step of the plan: {str(values)[:200]}")


def _product(names: Sequence[str], values: Sequence[Any], buffers: Buffers) -> dict[str, Any]:
    """Decode the fields of a product, and check that it stays within its buffers."""
    if len(values) != len(fields(Product)):
        raise VariantError(f"a gemm with {len(values)} sizes and factors; expected {len(fields(Product))}")
    given: dict[str, Any] = {}
    for field, value in zip(fields(Product), values, strict=True):
        what = f"{field.name} of a gemm"
        match field.type:
            case "int":
                given[field.name] = whole_number(value, what, 0, LARGEST)
            case "float" if type(value) in (int, float):
                given[field.name] = float(float_of("float64", value))
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
    buffers: Buffers,
) -> Launch:
    what = f"the launch of {c_name(kernel)}"
    if not 1 <= len(grid) <= 3 or not 1 <= len(block) <= 3 or len(args) > MAX_ARGUMENTS:
        raise VariantError(f"{what}: grid {grid}, block {block}; expected one to three sizes for each")
    return Launch(
        kernel,
        tuple(whole_number(size, what, 1, limit) for size, limit in zip(grid, GRID_LIMIT, strict=False)),
        tuple(whole_number(size, what, 1, MAX_BLOCK) for size in block),
        tuple(argument_of(value, buffers) for value in args),
        whole_number(shared, what, 0, MAX_SHARED_BYTES),
        stream,
    )


def _cluster(values: Any) -> int | tuple[int, ...]:
    if isinstance(values, list) and 1 <= len(values) <= 3:
        return tuple(whole_number(size, "a cluster", 1, MAX_CLUSTER) for size in values)
    return whole_number(values, "a cluster", 1, MAX_CLUSTER)
