"""Write results files, and read them, including those of older versions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, NoReturn, TypeVar

import msgspec

from mini_dnn import ops
from mini_dnn.errors import DataError, MiniDnnError, ShapeError, VariantError, meant_file, reason
from mini_dnn.measuring import strict
from mini_dnn.measuring.records import OLD_SCHEMAS, SCHEMAS, BenchFile
from mini_dnn.measuring.serving_records import ServingFile
from mini_dnn.paths import read_regular, write_atomically

T = TypeVar("T")
Fields = dict[str, Any]

CHECKSUM = "sha256"  # the field with the `strict.checksum` of all other fields
WITHOUT_CHECKSUM = (*SCHEMAS[:-1], "serving-2", "peers-2")
MOST_BYTES = 32 << 20  # of a file; a file with all variants of an operation has 0.2 MB


@dataclass(frozen=True)
class Stored(Generic[T]):
    """A results file and its content."""

    file: Path
    content: T


def write(record: Any, path: Path, kind: type | None = None) -> None:
    """Write a record as JSON with its checksum, atomically.

    Parameters
    ----------
    record
        A record, or its fields in a dictionary.
    kind
        The type as which it will be read; by default, the record's own type.

    Raises
    ------
    MiniDnnError
        A field has a value that readers would refuse, which is an error of the measuring code, or the file
        cannot be written.
    """
    content = msgspec.to_builtins(record, enc_hook=_plain)
    try:
        strict.check(content)
        msgspec.convert(content, kind or type(record))
    except (strict.Odd, msgspec.ValidationError) as error:
        raise MiniDnnError(
            f"{path} is not written, because it could not be read again: {_place(error)}"
        ) from error
    content = strict.parse(msgspec.json.encode(content))  # in the form in which it will be read
    content[CHECKSUM] = strict.checksum(content)
    try:
        write_atomically(path, msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n", 0o644)
    except OSError as error:
        raise MiniDnnError(f"{path} cannot be written: {reason(error)}; name another file") from error


def _plain(value: Any) -> str:
    """Convert an instance of a subclass of str, such as PyTorch's version, to a string."""
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{value!r} cannot be stored in a results file")


def read_json(file: Path) -> Fields:
    """Read a results file. The checksum is verified if there is one, but the fields are not checked yet.

    Raises
    ------
    DataError
        The file cannot be read, is not a JSON object, or was changed after it was written.
    """
    try:
        content = strict.parse(read_regular(file, MOST_BYTES))
    except OSError as error:
        raise DataError(f"{file} cannot be read: {reason(error)}{meant_file(file)}") from error
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
    """Whether a file's content, as returned by `read_json`, has a checksum.

    Files of older versions have none.
    """
    return CHECKSUM in content


def bench_file(content: Fields, file: Path) -> BenchFile:
    """Convert the content of a file of ``bench``, of any schema that can be read.

    Raises
    ------
    DataError
        The schema is unknown, or a field is missing or of the wrong type. The message names file and field.
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
    """Convert the content of a file on serving; see `bench_file`."""
    record = converted(content, ServingFile, file)
    for at, row in enumerate(record.growth):
        if row.op not in ops.names():
            refuse(
                file, f"growth[{at}].op: no operation '{row.op}'; expected one of {', '.join(ops.names())}"
            )
    return record


def converted(content: Any, kind: type[T], file: Path) -> T:
    """Convert content to the expected type.

    Raises
    ------
    DataError
        The content is of another type. The message names file and field.
    """
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        refuse(file, _place(error))


def _place(error: Exception) -> str:
    """Return an error's message, preceded by the place."""
    what, _, where = str(error).partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".")
    return f"{field}: {what}" if field else what


def refuse(file: Path, what: str) -> NoReturn:
    """Raise an error about a file that says what to do next."""
    raise DataError(f"{file}: {what}. {again(file)}")


def again(file: Path) -> str:
    """Return the next step after such an error."""
    name = file if file.suffix == ".json" else "FILE.json"  # never suggest replacing another kind of file
    return f"Leave the file out, or measure again: run.py bench --out {name} (libraries: benchmarks/peers.py)"


def _each(rows: Any, changed: Callable[[Fields], Fields]) -> Any:
    """Convert rows that an older version wrote. Values that are not rows are left to the following check."""
    if not isinstance(rows, list):
        return rows
    return [changed(row) if isinstance(row, dict) and "layer" in row else row for row in rows]


def _row_of_old(row: Fields) -> Fields:
    """Convert a row from before schema 3, when there was one operation whose problems were layers."""
    return {"op": ops.DEFAULT, "problem": row["layer"], "code_hash": None, "state": None} | row
