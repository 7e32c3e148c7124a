"""Products that other variants compute: their launches take the place of the step `Gemm`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from mini_dnn.errors import VariantError
from mini_dnn.ops import Array
from mini_dnn.ops.problem import TYPES
from mini_dnn.variant.plan import Argument, Code, Gemm, Launch, Step
from mini_dnn.variant.planned import Planned

SHORT = {long: short for short, long in TYPES.items()}


def with_products(planned: Planned, find: Callable[[str], Any], max_shared_bytes: int) -> Planned:
    """The plan with the launches of other variants in the place of the products that these compute.

    The arrays of such a variant are views of the product's buffers. Its scratch buffers join the plan's.

    Parameters
    ----------
    find
        Gives the variant of a name.
    max_shared_bytes
        See `Variant.planned`.

    Raises
    ------
    VariantError
        A variant computes something else, does not take the product, or its plan is more than launches.
    """
    if any(isinstance(step, Gemm) and step.impl for step in planned.setup):
        raise VariantError(f"{planned.name}: a Gemm of setup has impl=; only one of plan may have it")
    for step in planned.steps:
        if isinstance(step, Gemm) and step.impl:
            planned = _with_product(planned, step, find(step.impl), max_shared_bytes)
    return planned


def _with_product(planned: Planned, step: Gemm, variant: Any, max_shared_bytes: int) -> Planned:
    at = next(i for i, other in enumerate(planned.steps) if other is step)
    what = f"{planned.name}: Gemm(impl={step.impl!r})"
    problem = _problem(step, planned.arrays, variant, what)
    inner = variant.planned(problem, max_shared_bytes)
    if inner.setup or inner.streams > 1 or not all(isinstance(s, Launch | Gemm) for s in inner.steps):
        raise VariantError(f"{what}: its plan copies by itself, or has a setup or several streams")
    own = {name: f"product_{at}_{name}" for name in (*inner.arrays, *inner.views)}
    code = Code(inner.source, tuple(inner.defines.items()))
    views = {own[name]: (getattr(step, name), array) for name, array in problem.arrays.items()}
    views |= {own[name]: (own[of], array) for name, (of, array) in inner.views.items()}
    return replace(
        planned,
        steps=(
            *planned.steps[:at],
            *(_renamed(s, own, code, step.stream) for s in inner.steps),
            *planned.steps[at + 1 :],
        ),
        scratch={**planned.scratch, **{own[name]: array for name, array in inner.scratch.items()}},
        views={**planned.views, **views},
        min_arch=max(planned.min_arch, inner.min_arch),
        needs_gpu=planned.needs_gpu or inner.needs_gpu,
    )


def _problem(step: Gemm, arrays: Mapping[str, Array], variant: Any, what: str) -> Any:
    """The variant's problem that the step is."""
    sizes = {field.name: getattr(step.product, field.name) for field in fields(step.product)}
    if not sizes.keys() <= set(variant.operation.fields):
        raise VariantError(f"{what}: it computes {variant.op}, and no matrix product")
    if step.beta:
        raise VariantError(f"{what} has beta {step.beta:g}; it adds to no array, so leave beta out")
    for name in (step.a, step.b, step.c):
        if name not in arrays:
            raise VariantError(f"{what} names a buffer '{name}'; there are {', '.join(arrays)}")
    given = {letter: arrays[name] for letter, name in (("a", step.a), ("b", step.b), ("c", step.c))}
    if beyond := step.product.beyond(given):
        raise VariantError(f"{what}: {beyond}")
    dtype, other, out = (SHORT.get(array.dtype, array.dtype) for array in given.values())
    if dtype != other:
        raise VariantError(f"{what}: a is {dtype} and b is {other}; expected one type")
    return variant.operation.problem(**sizes, dtype=dtype, out=out)


def _renamed(step: Step, own: Mapping[str, str], code: Code, stream: int) -> Step:
    """A step of the variant as one of the plan that it is in."""
    if isinstance(step, Gemm):
        return replace(step, a=own[step.a], b=own[step.b], c=own[step.c], stream=stream)
    assert isinstance(step, Launch), "the caller looks"
    args = tuple(_argument(argument, own) for argument in step.args)
    return replace(step, args=args, stream=stream, code=step.code or code)


def _argument(argument: Argument, own: Mapping[str, str]) -> Argument:
    if isinstance(argument, str):
        return own.get(argument, argument)
    if is_dataclass(argument) and hasattr(argument, "buffer"):
        return replace(argument, buffer=own.get(argument.buffer, argument.buffer))
    return argument
