"""What ``classify`` writes: lines for people, JSON, CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from mini_dnn.cli.common import check_output
from mini_dnn.errors import UsageError
from mini_dnn.paths import replacing

STDOUT = "-"
FORMATS = {  # flags and their help texts
    "json": "write the classes to FILE as one JSON object; - for standard output",
    "jsonl": "write JSON lines, one object per picture",
    "csv": "write a table with one line per class",
    "parquet": "write the same table in the format of Apache Parquet; needs pyarrow",
}
COLUMNS = {  # of tables, and their types in a Parquet file
    "file": "string",
    "rank": "int32",
    "class": "int32",
    "name": "string",
    "probability": "float64",
    "error": "string",
}
LABEL = {"label": "int32"}  # one more, where labels are given
DIGITS = 6  # of a probability
PERCENT = tuple(f"{n / 1000:.1%}" for n in range(1001))  # probabilities for people, ready to be written
GROUP = 5_000  # rows that are written at a time to a table by columns

Row = tuple[str | int | float | None, ...]  # of `COLUMNS`, and `LABEL`


class Classified(NamedTuple):
    """One picture, and what is on it; or why nobody knows."""

    file: str
    error: str
    classes: Sequence[tuple[int, str, float]] = ()  # number, name and probability, the likeliest first
    label: int | None = None  # the number of the right class, where it is known


class Outputs:
    """Where results go: standard output for people, unless JSON or CSV goes there; and files.

    Parameters
    ----------
    files
        By the names of `FORMATS`: files, or ``-`` for standard output, or None.
    force
        Whether files that exist may be replaced.

    Raises
    ------
    UsageError
        Nothing can be written there.
    """

    def __init__(self, files: Mapping[str, str | None], force: bool) -> None:
        self._files = {f"--{flag}": name for flag, name in files.items() if name is not None}
        seen: dict[str | Path, str] = {}
        for flag, name in self._files.items():
            place = name if name == STDOUT else Path(name).resolve()
            if place in seen:
                raise UsageError(f"{seen[place]} and {flag} both name {name}; name two files")
            seen[place] = flag
        self._people = STDOUT not in seen
        if self._files.get("--parquet") == STDOUT:
            raise UsageError("--parquet -: such a file cannot be written to standard output; name a file")
        if "--parquet" in self._files:
            pyarrow()  # which is missing now, not after the work
        for flag, name in self._files.items():
            if name == STDOUT:
                continue
            check_output(flag, Path(name), force=True)  # below it is stricter
            if Path(name).exists() and not force:
                raise UsageError(
                    f"{flag} {name} already exists; name another file, or use --force to replace it"
                )

    @property
    def kept(self) -> Path | None:
        """The folder beside the first file where what is done is kept until all is; None without a file."""
        files = [name for name in self._files.values() if name != STDOUT]
        return Path(f"{files[0]}.parts") if files else None

    def head(self, text: str) -> None:
        """Say something about the run: on standard output, or on standard error if results go there."""
        print(text, file=sys.stdout if self._people else sys.stderr, flush=True)

    @contextmanager
    def open(self, about: Mapping[str, Any], labelled: bool = False) -> Iterator[Writer]:
        """A writer; its files take their names when it is closed without an error, and not before."""
        columns = COLUMNS | (LABEL if labelled else {})
        with ExitStack() as stack:
            streams = {
                flag: stack.enter_context(_stream(name))
                for flag, name in self._files.items()
                if flag != "--parquet"
            }
            table = self._files.get("--parquet")
            rows = stack.enter_context(_parquet(Path(table), columns)) if table else None
            yield Writer(streams, rows, self._people, about, columns)


class Writer:
    """Writes each result as soon as it is there: memory does not grow with their number."""

    def __init__(
        self,
        streams: Mapping[str, TextIO],
        rows: Rows | None,
        people: bool,
        about: Mapping[str, Any],
        columns: Mapping[str, str],
    ) -> None:
        self._json, self._lines = streams.get("--json"), streams.get("--jsonl")
        as_csv = streams.get("--csv")
        self._table = csv.writer(as_csv, lineterminator="\n") if as_csv else None
        self._rows, self._people, self._width = rows, people, len(columns)
        self._first = True
        if self._json:
            head = json.dumps(about, indent=1, default=str)
            self._json.write(f'{head[:-2]},\n "pictures": [')
        if self._table:
            self._table.writerow(columns)

    def add(self, result: Classified) -> None:
        """The next picture."""
        if result.error:
            sys.stdout.flush()
            print(f"error: {plain(result.file)}: {result.error}", file=sys.stderr, flush=True)
        elif self._people:
            classes = ", ".join([f"{PERCENT[round(1000 * p)]} {name}" for _, name, p in result.classes])
            print(f"{plain(result.file)}: {classes}")
        if self._json:
            self._json.write("\n  " if self._first else ",\n  ")
            self._json.write(json.dumps(_as_object(result)))
            self._first = False
        if self._lines:
            self._lines.write(json.dumps(_as_object(result)) + "\n")
        if self._table:
            self._table.writerows(_as_rows(result, self._width))
        if self._rows:
            for row in _as_rows(result, self._width):
                self._rows.add(row)

    def end(self, figures: Mapping[str, Any]) -> None:
        """No more come; what is said of all of them."""
        if self._json:
            rest = json.dumps(figures, indent=1, default=str)[2:]
            self._json.write(f"\n ],\n{rest}\n")
            self._json.flush()


class Rows:
    """Rows on their way to a Parquet file, a group of them at a time."""

    def __init__(self, file: Path, columns: Mapping[str, str]) -> None:
        arrow, parquet = pyarrow()
        self._arrow = arrow
        self._schema = arrow.schema([(name, getattr(arrow, kind)()) for name, kind in columns.items()])
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._some: list[Row] = []

    def add(self, row: Row) -> None:
        """The next row; what no text can hold of the name of a file is escaped."""
        file = str(row[0]).encode(errors="backslashreplace").decode()
        self._some.append((file, *row[1:]))
        if len(self._some) == GROUP:
            self._write()

    def close(self) -> None:
        """No more come."""
        self._write()
        self._writer.close()

    def _write(self) -> None:
        columns = zip(*self._some, strict=True) if self._some else ([] for _ in self._schema)
        arrays = [self._arrow.array(c, f.type) for c, f in zip(columns, self._schema, strict=True)]
        self._writer.write_table(self._arrow.Table.from_arrays(arrays, schema=self._schema))
        self._some = []


def pyarrow() -> tuple[Any, Any]:
    """The packages pyarrow and pyarrow.parquet.

    Raises
    ------
    UsageError
        They are not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(
            "--parquet needs pyarrow, which is not installed: pip install -e '.[parquet]'; or use --jsonl or "
            "--csv"
        ) from error
    return pyarrow, pyarrow.parquet


def plain(name: str) -> str:
    """A name without control characters, which a terminal would interpret."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in name)


def _as_object(result: Classified) -> dict[str, Any]:
    found: dict[str, Any] = {"file": result.file}
    if result.label is not None:
        found["label"] = result.label
    if result.error:
        return found | {"error": result.error}
    classes = [{"class": k, "name": name, "probability": round(p, DIGITS)} for k, name, p in result.classes]
    return found | {"classes": classes}


def _as_rows(result: Classified, width: int) -> Iterator[Row]:
    if result.error:
        yield (result.file, None, None, None, None, result.error, result.label)[:width]
    for rank, (number, name, probability) in enumerate(result.classes, 1):
        yield (result.file, rank, number, name, round(probability, DIGITS), None, result.label)[:width]


@contextmanager
def _parquet(path: Path, columns: Mapping[str, str]) -> Iterator[Rows]:
    """A table that takes its name at the end."""
    with replacing(path) as temporary, closing(Rows(temporary, columns)) as rows:
        yield rows


@contextmanager
def _stream(name: str) -> Iterator[TextIO]:
    """Standard output, or a file that takes its name at the end; names of files are written as they are."""
    if name == STDOUT:
        sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
        yield sys.stdout
        return
    with (
        replacing(Path(name)) as temporary,
        temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        yield file
