"""Items, and the files that keep their results.

Each item has a name, and its result is the file ``NAME.json`` in the folder of the results. The file has a
key: the hash of the item's input, the code, and the seed. A result whose key matches is never computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from mini_dnn.errors import UsageError
from mini_dnn.paths import PACKAGE, write_atomically

CODE = (".py", ".h", ".hpp", ".cpp", ".cuh", ".cu", ".toml")  # endings of files that are code


@dataclass(frozen=True)
class Item:
    """One item of a list.

    Parameters
    ----------
    name
        Unique in its list, and a file name.
    value
        The argument of the function: plain values that JSON can represent.
    input
        A hash of all that the result depends on, such as the content of files. Empty: the value itself.
    """

    name: str
    value: Any
    input: str = ""


@dataclass(frozen=True)
class Work:
    """A list of items, and the function that is computed for each.

    Parameters
    ----------
    function
        ``"package.module:name"`` of a context manager that takes ``common`` and yields a function
        ``compute(value, seed)`` for one item. It is entered once for each chunk of items. Results are plain
        values.
    items
        The list.
    results
        The folder of the results, which all workers must be able to access.
    common
        Plain values that all items share. They are not part of the key.
    code
        The version of the code, or its hash. If it changes, everything is computed again.
    seed
        Each item gets its own seed, which is derived from its key, and therefore from this seed.
    """

    function: str
    items: Sequence[Item]
    results: Path
    common: Mapping[str, Any] = field(default_factory=dict)
    code: str = ""
    seed: int = 0

    def __post_init__(self) -> None:
        names = [item.name for item in self.items]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"two items are called '{twice}'; give each a name of its own")
        for name in names:
            if name in ("", ".", "..") or "/" in name:
                raise UsageError(f"an item is called '{name}'; expected a file name")

    @cached_property
    def keys(self) -> dict[str, str]:
        """Key of each item, by name."""
        return {item.name: self._key(item) for item in self.items}

    def _key(self, item: Item) -> str:
        parts = [self.function, self.code, self.seed, item.input or item.value]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

    def result(self, name: str) -> Record | None:
        """The result of an item, if there is one."""
        return read_record(self.results, name, self.keys[name])


@dataclass(frozen=True)
class Record:
    """A result, and the seconds that it took."""

    value: Any
    seconds: float


def read_record(results: Path, name: str, key: str) -> Record | None:
    """The result in a file; None if there is none, if it is damaged, or if its key differs."""
    try:
        content = json.loads((results / f"{name}.json").read_bytes())
        return Record(content["value"], float(content["seconds"])) if content["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_record(results: Path, name: str, key: str, record: Record) -> None:
    """Write a result, as a whole or not at all, whenever the process ends."""
    content = {"key": key, "seconds": record.seconds, "value": record.value}
    write_atomically(results / f"{name}.json", (json.dumps(content, indent=1) + "\n").encode())


def seed_of(key: str) -> int:
    """The seed of the item with this key."""
    return int(key[:16], 16)


def short_hash(*texts: str) -> str:
    """The first 12 hexadecimal digits of the SHA-256 of some texts."""
    return hashlib.sha256(json.dumps(texts).encode()).hexdigest()[:12]


def digest(folder: Path = PACKAGE) -> str:
    """SHA-256 of all code in a folder; by default, the folder of this package."""
    total = hashlib.sha256()
    for file in sorted(path for path in folder.rglob("*") if path.suffix in CODE and path.is_file()):
        for part in (file.relative_to(folder).as_posix().encode(), file.read_bytes()):
            total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()
