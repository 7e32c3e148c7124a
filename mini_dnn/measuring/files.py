"""Results files, written and read: those of older versions, too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import msgspec

from mini_dnn import ops
from mini_dnn.errors import DataError
from mini_dnn.measuring.records import SCHEMA, SCHEMAS, SERVING, BenchFile, ServingFile
from mini_dnn.paths import write_atomically

T = TypeVar("T")
Fields = dict[str, Any]


def write(record: Any, path: Path) -> None:
    """Write a record as JSON, whole or not at all."""
    write_atomically(path, msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")
    path.chmod(0o644)  # results are for everybody


def read_json(file: Path) -> Fields:
    """The content of a results file, unchecked.

    Raises
    ------
    DataError
        It cannot be read, or is no object of JSON.
    """
    try:
        content = msgspec.json.decode(file.read_bytes())
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise DataError(f"{file} is no results file, as it is not JSON: {error}. {again(file)}") from error
    if not isinstance(content, dict):
        refuse(file, f"schema is missing: expected an object, found {type(content).__name__}")
    return content


def bench_file(content: Fields, file: Path) -> BenchFile:
    """What a file of ``bench`` says, of any schema that can be read.

    Raises
    ------
    DataError
        Another schema, or a field that is missing or of the wrong kind; names file and field.
    """
    found = content.get("schema")
    if found not in SCHEMAS:
        refuse(file, f"schema is {found!r}, and this version reads {', '.join(map(str, SCHEMAS))}")
    if found != SCHEMA:
        content = content | {
            "rows": _each(content.get("rows"), _row_of_old),
            "sweeps": _each(content.get("sweeps", []), _row_of_old),
        }
    return converted(content, BenchFile, file)


def serving_file(content: Fields, file: Path) -> ServingFile:
    """What a file on serving says; see `bench_file`."""
    if content["schema"] != SERVING:
        content = content | {"growth": _each(content.get("growth"), _growth_of_old)}
    return converted(content, ServingFile, file)


def converted(content: Any, kind: type[T], file: Path) -> T:
    """The content as what it should be.

    Raises
    ------
    DataError
        It is something else; names file and field.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at ")
        field = where.strip("`").removeprefix("$").removeprefix(".")
        refuse(file, f"{field}: {what}" if field else what)


def refuse(file: Path, what: str) -> NoReturn:
    """Refuse a file, and say what to do next."""
    raise DataError(f"{file}: {what}. {again(file)}")


def again(file: Path) -> str:
    """The next step after a refusal."""
    return f"Leave the file out, or measure again: run.py bench --out {file} (libraries: benchmarks/peers.py)"


def _each(rows: Any, changed: Callable[[Fields], Fields]) -> Any:
    """Rows that an older version wrote; what is no row is left for the check that follows."""
    if not isinstance(rows, list):
        return rows
    return [changed(row) if isinstance(row, dict) and "layer" in row else row for row in rows]


def _row_of_old(row: Fields) -> Fields:
    """Before schema 3 there was one operation, whose problems were layers."""
    return {"op": ops.DEFAULT, "problem": row["layer"], "code_hash": None, "state": None} | row


def _growth_of_old(row: Fields) -> Fields:
    """Whole networks had the name of their operation in the place of a layer's."""
    layer = row["layer"]
    return {"op": layer if layer in ops.names() else ops.DEFAULT, "problem": layer} | row
