"""Tables of a TOML file, read with the type that is expected and an error that names the key."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from mini_dnn.errors import UsageError, meant, nearest

REQUIRED: Any = object()

MOST_BYTES = 1 << 20  # of a TOML file


class TomlTable:
    """One table. `finish` refuses keys that were not read, so that misspelt keys are noticed.

    Parameters
    ----------
    values
        The values from ``tomllib``.
    name
        Its name in messages; empty for the top level.
    """

    def __init__(self, values: Any, name: str = "") -> None:
        if not isinstance(values, dict):
            raise UsageError(f"[{name}] must be a table with keys; found {values!r}")
        self.name = name
        self._values: dict[str, Any] = values
        self._asked: set[str] = set()

    def __contains__(self, key: str) -> bool:
        self._asked.add(key)
        return key in self._values

    def get(self, key: str, default: Any = REQUIRED, what: str = "a value") -> Any:
        """Return the value unchanged. ``what`` describes it in the message if it is missing."""
        self._asked.add(key)
        if key in self._values:
            return self._values[key]
        if default is REQUIRED:
            near = nearest(key.lower(), self._values)
            raise UsageError(
                f"'{self._path(key)}' is missing; expected {what}"
                + (f", and '{near}' is there: is it misspelt?" if near else "")
            )
        return default

    def finish(self) -> None:
        """Raise an error for unknown keys."""
        unknown = sorted(set(self._values) - self._asked)
        if unknown:
            raise UsageError(
                f"unknown key '{self._path(unknown[0])}'; known are {', '.join(sorted(self._asked))}"
                + meant(unknown[0].lower(), self._asked)
            )

    def table(self, key: str, default: Any = REQUIRED) -> TomlTable:
        """A table within this one."""
        path = self._path(key)
        return TomlTable(self.get(key, default, f"a table [{path}]"), path)

    def tables(self, key: str) -> list[TomlTable]:
        """``[[key]]``, one or more."""
        found = self.get(key, what=f"one or more tables [[{key}]]")
        if not isinstance(found, list) or not found:
            raise UsageError(f"'{self._path(key)}' must be one or more tables: [[{key}]]")
        return [TomlTable(values, self._path(key)) for values in found]

    def text(self, key: str, default: Any = REQUIRED) -> str:
        """A string."""
        return str(self._typed(key, default, str, "a string"))

    def flag(self, key: str, default: Any = REQUIRED) -> bool:
        """True or false."""
        return bool(self._typed(key, default, bool, "true or false"))

    def choice(self, key: str, choices: Iterable[str], default: Any = REQUIRED) -> str:
        """One of several words."""
        value, known = self.text(key, default), list(choices)
        if value not in known:
            raise UsageError(f"'{self._path(key)}' is '{value}'; expected one of {', '.join(known)}")
        return value

    def integer(self, key: str, default: Any = REQUIRED, least: int = 1) -> int:
        """A whole number."""
        value = self._typed(key, default, int, "an integer")
        if value < least:
            raise UsageError(f"'{self._path(key)}' is {value}; expected {least} or more")
        return int(value)

    def number(self, key: str, default: Any = REQUIRED, least: float | None = None) -> float:
        """A number: above 0, unless ``least`` says otherwise."""
        value = self._typed(key, default, int | float, "a number")
        expected = "a number above 0" if least is None else f"{least:g} or more"
        try:
            found = float(value)
        except OverflowError:
            digits = len(str(abs(value)))
            raise UsageError(f"'{self._path(key)}' has {digits} digits; expected {expected}") from None
        if not math.isfinite(found) or (found <= 0 if least is None else found < least):
            raise UsageError(f"'{self._path(key)}' is {value}; expected {expected}")
        return found

    def integers(self, key: str) -> list[int]:
        """One or more whole numbers, 0 or above."""
        values = self._typed(key, REQUIRED, list, "a list of integers")
        if not values or not all(type(value) is int and value >= 0 for value in values):
            raise UsageError(f"'{self._path(key)}' is {values}; expected one or more integers of 0 or more")
        return list(values)

    def choices(self, key: str, choices: Iterable[str]) -> list[str]:
        """One or more of several words."""
        known = list(choices)
        what = f"one or more of {', '.join(known)}, in a list"
        values = self._typed(key, REQUIRED, list, what)
        if not values or any(value not in known for value in values):
            raise UsageError(f"'{self._path(key)}' is {values}; expected {what}")
        return list(values)

    def rows(self, key: str, what: str) -> list[list[Any]]:
        """One or more lists. ``what`` describes them in messages."""
        rows = self._typed(key, REQUIRED, list, what)
        if not rows:
            raise UsageError(f"'{self._path(key)}' is empty; expected {what}")
        for row in rows:
            if not isinstance(row, list):
                raise UsageError(f"'{self._path(key)}' has {row!r}; expected {what}")
        return [list(row) for row in rows]

    def _typed(self, key: str, default: Any, kind: Any, what: str) -> Any:
        value = self.get(key, default, what)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise UsageError(f"'{self._path(key)}' is {value!r}; expected {what}")
        return value

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key
