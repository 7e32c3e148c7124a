"""Results files, written and read: those of older versions, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from mini_dnn import ops
from mini_dnn.errors import DataError, MiniDnnError, ShapeError, VariantError, meant_file
from mini_dnn.measuring import strict
from mini_dnn.measuring.records import OLD_SCHEMAS, SCHEMAS, BenchFile
from mini_dnn.measuring.serving_records import ServingFile
from mini_dnn.paths import read_regular, write_atomically

T = TypeVar("T")
Fields = dict[str, Any]

CHECKSUM = "sha256"  # the field with `strict.checksum` of all the others
WITHOUT_CHECKSUM = (*SCHEMAS[:-1], "serving-1", "serving-2", "peers-1", "peers-2", "peers-3", "savings-1")
MOST_BYTES = 32 << 20  # of a file; one of all variants of an operation has 0.2 MB


@dataclass(frozen=True)
class Stored(Generic[T]):
    """A results file, and what it says."""

    file: Path
    content: T


def write(record: Any, path: Path, kind: type | None = None) -> None:
    """Write a record as JSON with its checksum, whole or not at all.

    Parameters
    ----------
    record
        Of the kind, or its fields in a dictionary.
    kind
        What the reader will take it for: the record's own type if None.

    Raises
    ------
    MiniDnnError
        It says something that no reader would believe, which is a mistake of who measured; or the file cannot
        be written.
    """
    content = msgspec.to_builtins(record, enc_hook=_plain)
    try:
        strict.check(content)
        msgspec.convert(content, kind or type(record))
    except (strict.Odd, msgspec.ValidationError) as error:
        raise MiniDnnError(
            f"{path} is not written, because it could not be read again: {_place(error)}"
        ) from error
    content = strict.parse(msgspec.json.encode(content))  # as its readers will see it
    content[CHECKSUM] = strict.checksum(content)
    try:
        write_atomically(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n", 0o644)
    except OSError as error:
        raise MiniDnnError(f"{path} cannot be written: {error.strerror}; name another file") from error


def _plain(value: Any) -> str:
    """A string of a class of its own, as PyTorch's version is, as a string."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{value!r} cannot be stored in a results file")


def read_json(file: Path) -> Fields:
    """The content of a results file: its fields are not looked at yet, and its checksum, if it has one, is.

    Raises
    ------
    DataError
        It cannot be read, is no object of JSON, or was changed after it was written.
    """
    try:
        content = strict.parse(read_regular(file, MOST_BYTES))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}{meant_file(file)}") from error
    except strict.Odd as error:
        raise DataError(f"{file} is not a results file: {error}. {again(file)}") from error
    if not isinstance(content, dict):
        refuse(file, f"schema is missing: expected an object, found {type(content).__name__}")
    if "schema" not in content:
        raise DataError(f"{file} is not a results file: it has no field 'schema'. {again(Path())}")
    if CHECKSUM in content:
        rest = {name: value for name, value in content.items() if name != CHECKSUM}
        if content[CHECKSUM] != strict.checksum(rest):
            refuse(file, f"its content was changed after it was written: {CHECKSUM} does not match it")
    elif content.get("schema") not in WITHOUT_CHECKSUM:
        refuse(
            file,
            f"{CHECKSUM} is missing, which a file of schema {content.get('schema')!r} has, so some of its "
            "content was changed or lost",
        )
    return content


def is_verified(content: Fields) -> bool:
    """Whether a file's content, as `read_json` gave it, has a checksum; files of older versions have none."""
    return CHECKSUM in content


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
    if found in OLD_SCHEMAS:
        content = content | {
            "rows": _each(content.get("rows"), _row_of_old),
            "sweeps": _each(content.get("sweeps", []), _row_of_old),
        }
    record = converted(content, BenchFile, file)
    for at, row in enumerate(record.rows):
        try:
            operation = ops.find(row.op)
            sizes = operation.decode([row.shape[name] for name in operation.fields if name in row.shape])
        except (ShapeError, VariantError) as error:
            refuse(file, f"rows[{at}].shape: {error}")
        if sizes.batch != row.batch:
            refuse(file, f"rows[{at}].batch: found {row.batch}; by its shape it is {sizes.batch}")
    return record


def serving_file(content: Fields, file: Path) -> ServingFile:
    """What a file on serving says; see `bench_file`."""
    if content["schema"] == "serving-1":
        content = content | {"growth": _each(content.get("growth"), _growth_of_old)}
    record = converted(content, ServingFile, file)
    for at, row in enumerate(record.growth):
        if row.op not in ops.names():
            refuse(
                file, f"growth[{at}].op: no operation '{row.op}'; expected one of {', '.join(ops.names())}"
            )
    return record


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
        refuse(file, _place(error))


def _place(error: Exception) -> str:
    """What an error says, with the place in front."""
    what, _, where = str(error).partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".")
    return f"{field}: {what}" if field else what


def refuse(file: Path, what: str) -> NoReturn:
    """Refuse a file, and say what to do next."""
    raise DataError(f"{file}: {what}. {again(file)}")


def again(file: Path) -> str:
    """The next step after a refusal."""
    name = file if file.suffix == ".json" else "FILE.json"  # what is something else is not to be replaced
    return f"Leave the file out, or measure again: run.py bench --out {name} (libraries: benchmarks/peers.py)"


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
