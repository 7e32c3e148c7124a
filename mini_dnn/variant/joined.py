"""A plan that calls other variants, rewritten so that all of its kernels fit in one file."""

from __future__ import annotations

import re
from dataclasses import replace
from math import prod

from mini_dnn.errors import UsageError
from mini_dnn.variant.plan import Argument, Code, Images, Launch, Step
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.tensor_map import TensorMap


def prefixes(planned: Planned) -> dict[Code, str]:
    """A prefix for each kernel file of another variant, which keeps the names of its kernels distinct."""
    found: dict[Code, str] = {}
    for code in planned.codes:
        folder = code.source.parent
        word = re.sub(r"\W", "_", f"{folder.parent.name}_{folder.name}")
        same = sum(other.source == code.source for other in found)
        found[code] = f"{word}_{same + 1}" if same else word
    return found


def joined(planned: Planned) -> Planned:
    """The same plan with distinct names for the kernels of other variants, and one name for each buffer.

    Raises
    ------
    UsageError
        A kernel of another variant gets a part of an array whose entries are not those of its buffer.
    """
    words = prefixes(planned)

    def renamed(step: Step) -> Step:
        if not isinstance(step, Launch) or step.code is None:
            return step
        args = tuple(_argument(argument, planned) for argument in step.args)
        return replace(step, kernel=f"{words[step.code]}_{step.kernel}", args=args)

    return replace(planned, steps=tuple(map(renamed, planned.steps)), views={})


def _argument(argument: Argument, planned: Planned) -> Argument:
    """The argument, with the buffer's own name in place of the one that the called variant uses."""
    if isinstance(argument, str):
        return planned.owner(argument)
    if not isinstance(argument, Images | TensorMap) or argument.buffer not in planned.views:
        return argument
    root, (_, view) = planned.owner(argument.buffer), planned.views[argument.buffer]
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
