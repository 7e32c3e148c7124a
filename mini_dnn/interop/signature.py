"""What an operation takes, read from its function ``of``: arrays, arrays that may be left out, and fields."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter
from typing import Any, get_type_hints

import numpy as np

from mini_dnn.ops import Operation

OPTIONAL_ARRAY = np.ndarray | None


@dataclass(frozen=True)
class Field:
    """What arrays do not tell of a problem."""

    type: Any  # of Python: float, float | None, str ...
    default: Any  # inspect.Parameter.empty where there is none


@dataclass(frozen=True)
class Signature:
    """What an operation takes.

    Parameters
    ----------
    arrays
        Names of the arrays that are given by place, in their order.
    many
        The name of those that follow, as many as there are; empty if none do.
    optional
        Names of arrays that are given by name, if at all.
    fields
        The rest, by name.
    """

    arrays: tuple[str, ...]
    many: str
    optional: tuple[str, ...]
    fields: Mapping[str, Field]

    def names(self, count: int) -> tuple[str, ...]:
        """What ``count`` arrays that are given by place are called."""
        more = range(count - len(self.arrays))
        return (*self.arrays, *(f"{self.many}[{i}]" for i in more))[:count]


@cache
def _read(of: Any) -> Signature:
    hints = get_type_hints(of)
    parameters = inspect.signature(of).parameters.values()
    arrays = tuple(p.name for p in parameters if p.kind is Parameter.POSITIONAL_OR_KEYWORD)
    many = "".join(p.name for p in parameters if p.kind is Parameter.VAR_POSITIONAL)
    named = [p for p in parameters if p.kind is Parameter.KEYWORD_ONLY]
    optional = tuple(p.name for p in named if hints[p.name] == OPTIONAL_ARRAY)
    fields = {p.name: Field(hints[p.name], p.default) for p in named if p.name not in optional}
    return Signature(arrays, many, optional, fields)


def signature_of(operation: Operation) -> Signature:
    """What the operation takes."""
    return _read(operation.of)
