"""What ``classify`` writes: lines for people, JSON, CSV."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from mini_dnn.cli.common import check_output
from mini_dnn.errors import UsageError
from mini_dnn.paths import replacing

STDOUT = "-"
COLUMNS = ("file", "rank", "class", "name", "probability", "error")
DIGITS = 6  # of a probability


@dataclass(frozen=True)
class Classified:
    """One picture, and what is on it; or why nobody knows."""

    file: str
    error: str
    classes: Sequence[tuple[int, str, float]] = ()  # number, name and probability, the likeliest first


class Outputs:
    """Where results go: standard output for people, unless JSON or CSV goes there; and files.

    Parameters
    ----------
    as_json, as_csv
        Files, or ``-`` for standard output, or None.
    force
        Whether files that exist may be replaced.

    Raises
    ------
    UsageError
        Nothing can be written there.
    """

    def __init__(self, as_json: str | None, as_csv: str | None, force: bool) -> None:
        self._files = {
            flag: name for flag, name in (("--json", as_json), ("--csv", as_csv)) if name is not None
        }
        names = list(self._files.values())
        if len(names) == 2 and (names[0] == names[1] or Path(names[0]).resolve() == Path(names[1]).resolve()):
            raise UsageError(f"--json and --csv both name {names[0]}; name two files")
        self._people = STDOUT not in names
        for flag, name in self._files.items():
            if name == STDOUT:
                continue
            check_output(flag, Path(name), force=True)  # below it is stricter
            if Path(name).exists() and not force:
                raise UsageError(
                    f"{flag} {name} exists already; name another file, or replace it with --force"
                )

    def head(self, text: str) -> None:
        """Say something about the run: on standard output, or on standard error if results go there."""
        print(text, file=sys.stdout if self._people else sys.stderr, flush=True)

    @contextmanager
    def open(self, about: Mapping[str, Any]) -> Iterator[Writer]:
        """A writer; its files take their names when it is closed without an error, and not before."""
        with ExitStack() as stack:
            streams = {flag: stack.enter_context(_stream(name)) for flag, name in self._files.items()}
            yield Writer(streams.get("--json"), streams.get("--csv"), self._people, about)


class Writer:
    """Writes each result as soon as it is there: memory does not grow with their number."""

    def __init__(
        self, as_json: TextIO | None, as_csv: TextIO | None, people: bool, about: Mapping[str, Any]
    ) -> None:
        self._json, self._people = as_json, people
        self._table = csv.writer(as_csv, lineterminator="\n") if as_csv else None
        self._first = True
        if self._json:
            head = json.dumps(about, indent=1, default=str)
            self._json.write(f'{head[:-2]},\n "pictures": [')
        if self._table:
            self._table.writerow(COLUMNS)

    def add(self, result: Classified) -> None:
        """The next picture."""
        if result.error:
            sys.stdout.flush()
            print(f"error: {plain(result.file)}: {result.error}", file=sys.stderr, flush=True)
        elif self._people:
            classes = ", ".join(f"{p:.1%} {name}" for _, name, p in result.classes)
            print(f"{plain(result.file)}: {classes}")
        if self._json:
            self._json.write("\n  " if self._first else ",\n  ")
            self._json.write(json.dumps(_as_object(result)))
            self._first = False
        if self._table and result.error:
            self._table.writerow((result.file, "", "", "", "", result.error))
        elif self._table:
            for rank, (number, name, probability) in enumerate(result.classes, 1):
                self._table.writerow((result.file, rank, number, name, round(probability, DIGITS), ""))

    def end(self, figures: Mapping[str, Any]) -> None:
        """No more come; what is said of all of them."""
        if self._json:
            rest = json.dumps(figures, indent=1, default=str)[2:]
            self._json.write(f"\n ],\n{rest}\n")
            self._json.flush()


def plain(name: str) -> str:
    """A name without what a terminal would take for commands."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in name)


def _as_object(result: Classified) -> dict[str, Any]:
    if result.error:
        return {"file": result.file, "error": result.error}
    classes = [{"class": k, "name": name, "probability": round(p, DIGITS)} for k, name, p in result.classes]
    return {"file": result.file, "classes": classes}


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
