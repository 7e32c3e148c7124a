"""A plan that calls other variants, as one whose kernels are all in one file: for what is taken home."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from mini_dnn.errors import UsageError
from mini_dnn.variant.plan import Argument, Code, Images, Launch, Step
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.tensor_map import TensorMap


def prefixes(planned: Planned) -> dict[Code, str]:
    """A word for each kernel file of another variant, with which the names of its kernels begin."""
    found: dict[Code, str] = {}
    for code in planned.codes:
        folder = code.source.parent
        word = re.sub(r"\W", "_", f"{folder.parent.name}_{folder.name}")
        same = sum(other.source == code.source for other in found)
        found[code] = f"{word}_{same + 1}" if same else word
    return found


def joined(planned: Planned) -> Planned:
    """The plan with a name of its own for each kernel of another variant, and one name for each buffer.

    Raises
    ------
    UsageError
        A kernel of another variant gets a part of an array whose entries are not those of its buffer.
    """
    words = prefixes(planned)

    def own(step: Step) -> Step:
        if not isinstance(step, Launch) or step.code is None:
            return step
        args = tuple(_argument(argument, planned) for argument in step.args)
        return replace(step, kernel=f"{words[step.code]}_{step.kernel}", args=args)

    return replace(planned, steps=tuple(map(own, planned.steps)), views={})


def _argument(argument: Argument, planned: Planned) -> Argument:
    """An argument with the name of the buffer itself."""
    if isinstance(argument, str):
        return _root(argument, planned)
    if not isinstance(argument, Images | TensorMap) or argument.buffer not in planned.views:
        return argument
    root, (_, view) = _root(argument.buffer, planned), planned.views[argument.buffer]
    array = planned.arrays[root]
    if isinstance(argument, TensorMap):
        found = argument.geometry(view.shape, view.dtype, view.nbytes)
        return replace(argument, buffer=root, shape=found.shape, strides=found.strides, dtype=found.dtype)
    if prod(view.shape[1:]) != prod(array.shape[1:]):
        raise UsageError(
            f"{planned.name} calls a variant that launches a kernel for a part of an array {view.shape} in "
            f"the buffer '{root}' {array.shape}; one program for both cannot do this. Use another variant"
        )
    return replace(argument, buffer=root)


def _root(name: str, planned: Planned) -> str:
    while name in planned.views:
        name = planned.views[name][0]
    return name
