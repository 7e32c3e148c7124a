"""The arguments of an operation, from its function ``of``: arrays, optional arrays, and fields."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from inspect import Parameter
from typing import Any, get_type_hints

import numpy as np

from mini_dnn.errors import ShapeError, UsageError, meant
from mini_dnn.interop.kinds import describe
from mini_dnn.ops import Operation

OPTIONAL_ARRAY = np.ndarray | None
OTHERS = ("impl", "device", "out")  # keyword arguments of all operations
PLAIN = (str, int, float, np.generic, type(None))  # the types of a problem's fields
# The accepted Python types of a field of each type, and their description
TYPES: dict[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "a word in quotes"),
    bool: ((bool, np.bool_, int), "True or False"),
    int: ((int, np.integer), "an integer"),
    float: ((int, float, np.integer, np.floating), "a number"),
}


@dataclass(frozen=True)
class Field:
    """A field of a problem that arrays do not determine."""

    type: Any  # of Python: float, float | None, str ...
    default: Any  # inspect.Parameter.empty where there is none


@dataclass(frozen=True)
class Signature:
    """The arguments of an operation.

    Parameters
    ----------
    arrays
        Names of the positional arrays, in order.
    many
        The name of the variable number of arrays that follow; empty if none do.
    optional
        Names of optional arrays, which are keyword arguments.
    fields
        All other keyword arguments.
    """

    arrays: tuple[str, ...]
    many: str
    optional: tuple[str, ...]
    fields: Mapping[str, Field]

    def names(self, count: int) -> tuple[str, ...]:
        """The names of ``count`` positional arrays."""
        more = range(count - len(self.arrays))
        return (*self.arrays, *(f"{self.many}[{i}]" for i in more))[:count]

    @property
    def by_place(self) -> str:
        """The positional arrays, as text."""
        return ", ".join((*self.arrays, *([f"*{self.many}"] if self.many else [])))

    @property
    def in_words(self) -> str:
        """All arguments, as text."""
        return f"{self.by_place} as positional arguments, and {', '.join(self._by_name)} by name"

    @property
    def _by_name(self) -> list[str]:
        return [*self.optional, *self.fields, *(other for other in OTHERS if other not in self.fields)]

    @property
    def of_python(self) -> inspect.Signature:
        """The signature that editors and ``help`` show."""
        place = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in self.arrays]
        many = [Parameter(self.many, Parameter.VAR_POSITIONAL)] if self.many else []
        defaults = {"device": "auto", **{name: field.default for name, field in self.fields.items()}}
        named = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=defaults.get(name)) for name in self._by_name
        ]
        return inspect.Signature([*place, *many, *named])

    def checked(self, operation: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The fields that a call passes, as Python's own numbers: the sizes of launches depend on them.

        Raises
        ------
        UsageError
            A field is missing or unknown.
        ShapeError
            The value of a field has another type.
        """
        for name, value in given.items():
            if name not in self.fields:
                raise UsageError(self._unknown(operation, name))
            expected = self.fields[name].type
            kind = next(kind for kind in TYPES if expected in (kind, kind | None))
            types, words = TYPES[kind]
            none = value is None and expected == kind | None
            if not (none or isinstance(value, types)) or (kind is bool and value not in (0, 1)):
                found = repr(value) if isinstance(value, PLAIN) else describe(value)
                raise ShapeError(f"{name} is {found}; expected {words}")
        for name, field in self.fields.items():
            if field.default is Parameter.empty and name not in given:
                raise UsageError(f"{operation} needs {name}=, {TYPES[field.type][1]}")
        return {
            name: value.item() if isinstance(value, np.generic) else value for name, value in given.items()
        }

    def _unknown(self, operation: str, name: str) -> str:
        """The message about an argument that the operation does not have."""
        if name == "out":
            return f"{operation} has results of one type, so out= is an array for them, and not a word"
        if name in self.arrays:
            return f"{operation} got {name} twice, as a positional and as a keyword argument; pass it once"
        return f"{operation} has no argument '{name}'{meant(name, self._by_name)}; it takes {self.in_words}"


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
    """The arguments of the operation."""
    return _read(operation.of)
