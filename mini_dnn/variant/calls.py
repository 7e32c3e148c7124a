"""Problems that other variants solve: their launches replace the steps `Call` and `Gemm`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from math import prod
from typing import Any

from mini_dnn.errors import VariantError
from mini_dnn.ops import Array
from mini_dnn.ops.problem import TYPES
from mini_dnn.variant.plan import Argument, Call, Code, Gemm, Launch, Step, WrittenStep
from mini_dnn.variant.planned import Planned

SHORT = {long: short for short, long in TYPES.items()}


def with_calls(
    planned: Planned, steps: Sequence[WrittenStep], find: Callable[[str], Any], max_shared_bytes: int
) -> Planned:
    """The plan with these steps, in which the launches of other variants replace `Call` and `Gemm`.

    The arrays of such a variant are views of the plan's buffers. Its scratch buffers join the plan's.

    Parameters
    ----------
    planned
        The plan without steps.
    find
        Returns the variant of a name.
    max_shared_bytes
        See `Variant.planned`.

    Raises
    ------
    VariantError
        A variant computes another operation, does not support the problem, or has a plan with other steps
        than launches; or a buffer does not fit the problem's array.
    """
    buffers = planned.arrays
    _check_constants(planned.name, steps)
    for step in steps:
        if isinstance(step, Call) or (isinstance(step, Gemm) and step.impl):
            planned = _with_call(planned, step, buffers, find(step.impl), max_shared_bytes)
        else:
            planned = replace(planned, steps=(*planned.steps, step))
    return planned


def without_calls(name: str, steps: Sequence[WrittenStep]) -> tuple[Step, ...]:
    """The steps of a setup, which must not use other variants.

    Raises
    ------
    VariantError
        A step uses another variant.
    """
    found: list[Step] = []
    for step in steps:
        if isinstance(step, Call) or (isinstance(step, Gemm) and step.impl):
            word = type(step).__name__
            raise VariantError(f"{name}: a {word} of setup has impl=, but only steps of the plan may have it")
        found.append(step)
    return tuple(found)


def _check_constants(name: str, steps: Sequence[WrittenStep]) -> None:
    """Check that no step writes an array that another step calls constant, and may therefore read early."""
    writers: dict[str, str] = {}  # by buffer
    for step in steps:
        if isinstance(step, Gemm):
            writers[step.c] = f"Gemm(c={step.c!r})"
        elif isinstance(step, Call):
            outputs = step.problem.named("out")
            writers |= {of: f"Call({step.impl!r})" for array, of in step.arrays.items() if array in outputs}
    for step in steps:
        if not isinstance(step, Call):
            continue
        for array in step.problem.constants:
            of = step.arrays.get(array, "")
            if of in writers:
                raise VariantError(
                    f"{name}: in Call({step.impl!r}), {array} is constant, but {writers[of]} of the same "
                    f"plan writes its buffer '{of}', and the kernel may start before that has ended; "
                    "omit constant= in the problem, or write the buffer in setup"
                )


def _with_call(
    planned: Planned, step: Gemm | Call, buffers: Mapping[str, Array], variant: Any, max_shared_bytes: int
) -> Planned:
    word = "product" if isinstance(step, Gemm) else "call"
    what = f"{planned.name}: {type(step).__name__}(impl={step.impl!r})"
    call = _product(step, buffers, variant, what) if isinstance(step, Gemm) else step
    _check(call, buffers, variant, what)
    problem = call.problem
    inner = variant.planned(problem, max_shared_bytes)
    if inner.setup or inner.streams > 1 or not all(isinstance(s, Launch | Gemm) for s in inner.steps):
        raise VariantError(f"{what}: its plan has copies, a setup or several streams; expected launches only")
    own = {name: f"{word}_{len(planned.steps)}_{name}" for name in (*inner.arrays, *inner.views)}
    code = Code(inner.source, tuple(inner.defines.items()))
    views = {own[name]: (call.arrays[name], array) for name, array in problem.arrays.items()}
    views |= {own[name]: (own[of], array) for name, (of, array) in inner.views.items()}
    return replace(
        planned,
        steps=(*planned.steps, *(_renamed(s, own, code, step.stream) for s in inner.steps)),
        scratch={**planned.scratch, **{own[name]: array for name, array in inner.scratch.items()}},
        views={**planned.views, **views},
        min_arch=max(planned.min_arch, inner.min_arch),
        needs_gpu=planned.needs_gpu or inner.needs_gpu,
    )


def _check(call: Call, buffers: Mapping[str, Array], variant: Any, what: str) -> None:
    """Check that the problem belongs to the variant's operation, and that its arrays fit in the buffers."""
    problem = call.problem
    if type(problem) is not variant.operation.problem:
        raise VariantError(
            f"{what}: it computes {variant.op}, whose problems are {variant.operation.problem.__name__}"
            f"({variant.operation.usage}); found {type(problem).__name__}({problem.text})"
        )
    if set(call.arrays) != set(problem.arrays):
        raise VariantError(
            f"{what} names buffers for {', '.join(call.arrays) or 'nothing'}; {problem} has the arrays "
            f"{', '.join(problem.arrays)}"
        )
    for name, array in problem.arrays.items():
        of = call.arrays[name]
        if of not in buffers:
            raise VariantError(f"{what} names a buffer '{of}'; expected one of {', '.join(buffers)}")
        buffer = buffers[of]
        if buffer.dtype != array.dtype:
            raise VariantError(f"{what}: {name} is {array.dtype}, and the buffer '{of}' {buffer.dtype}")
        reach = prod(array.shape) - array.gap  # elements after the last line are not accessed
        if reach > prod(buffer.shape):
            raise VariantError(
                f"{what}: {name} {array.shape} reaches {reach:,} elements of the buffer '{of}', which has "
                f"{prod(buffer.shape):,}, {buffer.shape}"
            )


def _product(step: Gemm, arrays: Mapping[str, Array], variant: Any, what: str) -> Call:
    """The call that computes a product."""
    names = {"a": step.a, "b": step.b, "c": step.c}
    return Call(step.impl, _problem(step, arrays, variant, what), names, step.stream)


def _problem(step: Gemm, arrays: Mapping[str, Array], variant: Any, what: str) -> Any:
    """The variant's problem for the step."""
    sizes = {field.name: getattr(step.product, field.name) for field in fields(step.product)}
    if not sizes.keys() <= set(variant.operation.fields):
        raise VariantError(f"{what}: it computes {variant.op}, which is not a matrix product")
    if step.beta:
        raise VariantError(f"{what} has beta {step.beta:g}; the product is added to no array, so omit beta")
    for name in (step.a, step.b, step.c):
        if name not in arrays:
            raise VariantError(f"{what} names a buffer '{name}'; expected one of {', '.join(arrays)}")
    given = {letter: arrays[name] for letter, name in (("a", step.a), ("b", step.b), ("c", step.c))}
    if beyond := step.product.beyond(given):
        raise VariantError(f"{what}: {beyond}")
    dtype, other, out = (SHORT.get(array.dtype, array.dtype) for array in given.values())
    if dtype != other:
        raise VariantError(f"{what}: a is {dtype} and b is {other}; expected one type")
    return variant.operation.problem(**sizes, dtype=dtype, out=out)


def _renamed(step: Step, own: Mapping[str, str], code: Code, stream: int) -> Step:
    """A step of the called variant as a step of the calling plan."""
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
