"""Fields of results files: what a file must have, and what is said when it does not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import Any, NoReturn

from mini_dnn.errors import DataError

NUMBER = (int, float)
Fields = Mapping[str, tuple[type, ...]]


def read_json(file: Path) -> Any:
    """The content of a JSON file whose numbers are all finite.

    Raises
    ------
    DataError
        It cannot be read, or is not JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except ValueError as error:  # also of text that is not UTF-8
        raise DataError(f"{file} is no results file, as it is not JSON: {error}. {again(file)}") from error


def check(found: Any, fields: Fields, file: Path, where: str, positive: tuple[str, ...] = ()) -> None:
    """Check that ``found`` is an object with these fields.

    Parameters
    ----------
    where
        What the message puts before a field's name, such as ``"rows[3]."``.
    positive
        Fields that must be above 0 where they are not null.

    Raises
    ------
    DataError
        With the names of the file and the field.
    """
    if not isinstance(found, dict):
        refuse(file, where.rstrip(".") or "the file", f"is {found!r}; expected an object")
    for name, kinds in fields.items():
        if name not in found:
            refuse(file, where + name, "is missing")
        if not isinstance(found[name], kinds):
            names = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
            refuse(file, where + name, f"is {found[name]!r}; expected {names}")
        if name in positive and found[name] is not None and found[name] <= 0:
            refuse(file, where + name, f"is {found[name]}; expected more than 0")


def refuse(file: Path, field: str, what: str) -> NoReturn:
    """Refuse a file for one of its fields."""
    raise DataError(f"{file}: {field} {what}. {again(file)}")


def again(file: Path) -> str:
    """The next step after a refusal."""
    return f"Leave the file out, or measure again: run.py bench --out {file} (libraries: benchmarks/peers.py)"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no measured number")
