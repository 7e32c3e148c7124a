"""Plans as plain text: how they leave the process that computed them; ``decoding.py`` reads it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.errors import VariantError
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.running.runner import fitting
from mini_dnn.variant import Variant
from mini_dnn.variant.plan import Argument, CopyIn, CopyOut, CopyToSymbol, Gemm, Images, Launch, Step


@dataclass(frozen=True)
class Head:
    """What a variant says of itself, whatever the shape."""

    precision: str
    min_arch: int
    needs_gpu: str
    host: bool


@dataclass(frozen=True)
class Planned:
    """A variant's answer for one shape."""

    shape: ConvShape
    refuses: str
    scratch: Mapping[str, tuple[int, ...]]
    defines: Mapping[str, int]
    steps: tuple[Step, ...]


def encode_head(variant: Variant) -> str:
    """Text of a variant's head."""
    head = [variant.precision, variant.min_arch, variant.needs_gpu, variant.host is not None]
    return json.dumps(head)


def encode(variant: Variant, shape: ConvShape, max_shared_bytes: int) -> str:
    """Text of a variant's plan for a shape, on a device whose blocks may have so much shared memory."""
    refuses = variant.limit_for(shape)
    if refuses or variant.host:
        return json.dumps({"refuses": refuses, "scratch": {}, "defines": {}, "steps": []})
    variant = fitting(variant, shape, max_shared_bytes)
    scratch = {name: [int(side) for side in sides] for name, sides in variant.scratch_for(shape).items()}
    defines = {name: int(value) for name, value in variant.defines_for(shape).items()}
    steps = [_encode_step(step) for step in variant.steps(shape)]
    return json.dumps({"refuses": "", "scratch": scratch, "defines": defines, "steps": steps})


def encode_planned(planned: Planned) -> dict[str, Any]:
    """The same of a plan that was decoded, for a message to a process of ours."""
    return {
        "shape": list(vars(planned.shape).values()),
        "refuses": planned.refuses,
        "scratch": dict(planned.scratch),
        "defines": dict(planned.defines),
        "steps": [_encode_step(step) for step in planned.steps],
    }


def variant_of(head: Head, source: Path, plan: Callable[[ConvShape], Planned]) -> Variant:
    """A variant of our own that has the submission's plans.

    Parameters
    ----------
    source
        Its kernel file.
    plan
        Gives the plan for a shape.
    """
    return Variant(
        op="conv2d",
        idea="",
        plan=lambda s: plan(s).steps,
        scratch=lambda s: plan(s).scratch,
        defines=lambda s: plan(s).defines,
        refuses=lambda s: plan(s).refuses,
        precision=head.precision,
        min_arch=head.min_arch,
        needs_gpu=head.needs_gpu,
        name=source.parent.name,
        folder=source.parent,
    )


def _encode_step(step: Step) -> dict[str, Any]:
    match step:
        case Launch():
            return {
                "launch": step.kernel,
                "grid": [int(size) for size in step.grid],
                "block": [int(size) for size in step.block],
                "args": [_encode_argument(argument) for argument in step.args],
                "shared_bytes": int(step.shared_bytes),
                "stream": step.stream,
            }
        case CopyToSymbol():
            return {"symbol": step.symbol, "buffer": step.buffer, "stream": step.stream}
        case CopyIn(images) | CopyOut(images):
            kind = "copy_in" if isinstance(step, CopyIn) else "copy_out"
            return {kind: [images.buffer, images.first, images.last], "stream": step.stream}
        case Gemm():
            return {
                "gemm": [step.a, step.b, step.c],
                "sizes": [int(step.m), int(step.n), int(step.k)],
                "stream": step.stream,
            }


def _encode_argument(argument: Argument) -> list[Any]:
    match argument:
        case np.generic():
            return ["scalar", argument.dtype.name, argument.item()]
        case str():
            return ["buffer", argument]
        case Images():
            return ["images", argument.buffer, argument.first, argument.last]
        case int():
            return ["int", argument]
        case float():
            return ["float", argument]
    raise VariantError(
        f"an argument {argument!r}; expected a buffer's name, Images(...), an int, a float or a NumPy scalar"
    )
