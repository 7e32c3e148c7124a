"""Encode plans as text, in which form they leave the process that computed them. ``decoding.py`` reads it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from operator import index
from typing import Any

import numpy as np

from mini_dnn.errors import VariantError
from mini_dnn.ops import Array
from mini_dnn.variant import Planned, TensorMap, Variant
from mini_dnn.variant.plan import (
    Argument,
    CopyIn,
    CopyOut,
    CopyToSymbol,
    Gemm,
    Images,
    Launch,
    Record,
    RoundTrip,
    Step,
    Wait,
)


@dataclass(frozen=True)
class Head:
    """The fields that a variant declares for all problems."""

    op: str
    precision: str
    min_arch: int
    needs_gpu: str
    host: bool

    @classmethod
    def of(cls, variant: Variant) -> Head:
        """Return the head of a variant."""
        host = variant.host is not None
        return cls(variant.op, variant.precision, variant.min_arch, variant.needs_gpu, host)


def encode_head(head: Head) -> bytes:
    """Encode a head."""
    return json.dumps(astuple(head)).encode()


def encode(planned: Planned) -> bytes:
    """Encode a plan."""
    return json.dumps(encode_values(planned), default=index).encode()  # NumPy's integers become whole numbers


def encode_values(planned: Planned) -> dict[str, Any]:
    """Encode a plan as values for a message.

    Raises
    ------
    VariantError
        The plan needs kernels of other variants. A submission is graded by its own.
    """
    if planned.codes or planned.views:
        raise VariantError(f"{planned.name}: its plan runs kernels of other variants; expected only its own")
    return {
        "problem": list(planned.problem.numbers),
        "scratch": {name: _encode_array(array) for name, array in planned.scratch.items()},
        "defines": dict(planned.defines),
        "setup": [_encode_step(step) for step in planned.setup],
        "steps": [_encode_step(step) for step in planned.steps],
    }


def _encode_array(array: Array) -> list[Any]:
    return [np.dtype(array.dtype).name, list(array.shape), array.axes]


def _encode_step(step: Step) -> dict[str, Any]:
    match step:
        case Launch():
            return {
                "launch": step.kernel,
                "grid": list(step.grid),
                "block": list(step.block),
                "args": [_encode_argument(argument) for argument in step.args],
                "shared_bytes": step.shared_bytes,
                "stream": step.stream,
                "cluster": list(step.cluster) if isinstance(step.cluster, tuple) else step.cluster,
                "early": step.early,
            }
        case CopyToSymbol():
            return {"symbol": step.symbol, "buffer": step.buffer, "stream": step.stream}
        case CopyIn(images) | CopyOut(images):
            kind = "copy_in" if isinstance(step, CopyIn) else "copy_out"
            return {kind: [images.buffer, images.first, images.last], "stream": step.stream}
        case Gemm():
            return {
                "cublas": [step.a, step.b, step.c],
                "product": list(astuple(step.product)),
                "stream": step.stream,
            }
        case RoundTrip():
            raise VariantError(
                f"a round trip of '{step.buffer}': a submission keeps its buffers on the device"
            )
        case Record() | Wait():
            return {type(step).__name__.lower(): step.event, "stream": step.stream}


def _encode_argument(argument: Argument) -> list[Any]:
    match argument:
        case np.generic():
            return ["scalar", argument.dtype.name, argument.item()]
        case str():
            return ["buffer", argument]
        case Images():
            return ["images", argument.buffer, argument.first, argument.last]
        case TensorMap():
            sides = (argument.box, argument.shape, argument.strides)
            kind = (argument.swizzle, argument.dtype, _encode_sides(argument.windows))
            return ["map", argument.buffer, *map(_encode_sides, sides), *kind]
        case int():
            return ["int", argument]
        case float():
            return ["float", argument]
    raise VariantError(
        f"an argument {argument!r}; expected a buffer's name, Images(...), TensorMap(...), an int, a float "
        "or a NumPy scalar"
    )


def _encode_sides(sides: Sequence[int] | None) -> list[int] | None:
    return None if sides is None else list(sides)
