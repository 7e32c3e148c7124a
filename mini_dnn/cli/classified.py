"""The output of ``classify``: lines for people, JSON, CSV."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from mini_dnn.cli.alone import alone
from mini_dnn.cli.common import check_output
from mini_dnn.cli.formats import COLUMNS, LABEL, Objects, People, Rows, Table, plain, pyarrow, runs
from mini_dnn.errors import UsageError
from mini_dnn.measuring.kept import Answers
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.paths import replacing

STDOUT = "-"
LONG = 0.25  # fraction of the time: shorter waits only check whether the work is done
FORMATS = {  # the flags and their help texts
    "json": "write the classes to FILE as one JSON object; - for standard output",
    "jsonl": "write JSON lines, one object per picture",
    "csv": "write a table with one line per class",
    "parquet": "write the same table in the format of Apache Parquet; needs pyarrow",
}


class Outputs:
    """The outputs: standard output for people, unless JSON or CSV goes there, and files.

    Parameters
    ----------
    files
        File names by format (see `FORMATS`): a file, ``-`` for standard output, or None.
    force
        Whether existing files may be replaced.

    Raises
    ------
    UsageError
        An output cannot be written.
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
            pyarrow()  # raises an error now instead of after the work if it is missing
        for flag, name in self._files.items():
            if name == STDOUT:
                continue
            check_output(flag, Path(name), force=True)  # the next check is stricter
        self._force = force
        self._check_new()

    @property
    def kept(self) -> Path | None:
        """The folder next to the first file that keeps finished work until the end; None without a file."""
        files = [name for name in self._files.values() if name != STDOUT]
        return Path(f"{files[0]}.parts") if files else None

    def _check_new(self) -> None:
        for flag, name in self._files.items():
            if name != STDOUT and Path(name).exists() and not self._force:
                raise UsageError(
                    f"{flag} {name} already exists; name another file, or use --force to replace it"
                )

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Lock the files, and with them the finished work, against other runs.

        Raises
        ------
        UsageError
            Another run is writing one of them, or has written it since this run began.
        """
        with ExitStack() as locks:
            for name in self._files.values():
                if name != STDOUT:
                    locks.enter_context(alone(Path(name), "run"))
            self._check_new()  # another run may have ended since the first check
            yield

    def head(self, text: str) -> None:
        """Print something about the run: to standard output, or to standard error if results go there."""
        print(text, file=sys.stdout if self._people else sys.stderr, flush=True)

    @contextmanager
    def open(
        self, about: Mapping[str, Any], classes: Sequence[str], labelled: bool = False
    ) -> Iterator[Writer]:
        """Open a writer. Its files get their names only when it is closed without an error."""
        with ExitStack() as stack:
            streams = {
                flag: stack.enter_context(_stream(name))
                for flag, name in self._files.items()
                if flag != "--parquet"
            }
            table = self._files.get("--parquet")
            rows = stack.enter_context(_parquet(Path(table), classes, labelled)) if table else None
            yield Writer(streams, rows, self._people, about, classes, labelled)


class Writer:
    """Writes results as soon as they arrive, so that memory does not grow with their number."""

    def __init__(
        self,
        streams: Mapping[str, TextIO],
        rows: Rows | None,
        people: bool,
        about: Mapping[str, Any],
        classes: Sequence[str],
        labelled: bool,
    ) -> None:
        self._json, table = streams.get("--json"), streams.get("--csv")
        self._people = People(classes) if people else None
        self._rows, self._first = rows, True
        self._others: list[tuple[TextIO, Objects | Table]] = []
        if self._json:
            head = json.dumps(about, indent=1, default=str)
            self._json.write(f'{head[:-2]},\n "pictures": [')
            self._objects = Objects(classes, before=",\n  ")
        if "--jsonl" in streams:
            self._others.append((streams["--jsonl"], Objects(classes, after="\n")))
        if table:
            table.write(f"{','.join(_columns(labelled))}\n")
            self._others.append((table, Table(classes)))

    def add(self, answers: Answers, labels: Sequence[int] | None = None) -> None:
        """Add pictures, and the numbers of their right classes if they are known."""
        for run in runs(answers, labels):
            if any(run.errors):
                sys.stdout.flush()
                for name, error in zip(run.names, run.errors, strict=True):
                    print(f"error: {plain(name)}: {error}", file=sys.stderr, flush=True)
            elif self._people:
                print(self._people.text(run), end="")
            if self._json:
                self._json.write(self._objects.text(run)[self._first :])  # no comma before the first one
                self._first = False
            for stream, form in self._others:
                stream.write(form.text(run))
            if self._rows:
                self._rows.add(run)

    def end(self, figures: Mapping[str, Any]) -> None:
        """End the output with the figures of all pictures."""
        if self._json:
            rest = json.dumps(figures, indent=1, default=str)[2:]
            self._json.write(f"\n ],\n{rest}\n")
            self._json.flush()


@dataclass
class Tally:
    """Counts what happened to the pictures so far."""

    classified: int = 0
    failed: int = 0
    right: int = 0  # classified pictures whose likeliest class is their label

    def add(self, answers: Answers, labels: Sequence[int] | None) -> None:
        """Add pictures, and their labels if they are known."""
        classified = answers.errors.count("")
        self.classified += classified
        self.failed += len(answers.errors) - classified
        if labels is not None:
            known = [label for label, error in zip(labels, answers.errors, strict=True) if not error]
            self.right += int(np.count_nonzero(answers.classes[:, 0] == known))

    @property
    def done(self) -> int:
        """The number of pictures that need no more work."""
        return self.classified + self.failed

    @property
    def accuracy(self) -> float | None:
        """The accuracy on the pictures that could be read, or None if there are none."""
        return self.right / self.classified if self.classified else None


def _columns(labelled: bool) -> Mapping[str, str]:
    return COLUMNS | (LABEL if labelled else {})


@contextmanager
def _parquet(path: Path, classes: Sequence[str], labelled: bool) -> Iterator[Rows]:
    """Open a table that gets its name at the end."""
    with replacing(path) as temporary:
        with closing(Rows(temporary, _columns(labelled), classes)) as rows:
            yield rows
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())


@contextmanager
def _stream(name: str) -> Iterator[TextIO]:
    """Open standard output, or a file that gets its name at the end. File names are written unchanged."""
    if name == STDOUT:
        sys.stdout.reconfigure(errors="surrogateescape")  # type: ignore[union-attr]
        yield sys.stdout
        return
    with (
        replacing(Path(name)) as temporary,
        temporary.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        yield file
        file.flush()
        os.fsync(file.fileno())  # before finished work is removed


def figures(tally: Tally, spent: Spent, output: float, seconds: float, labelled: bool) -> dict[str, Any]:
    """The figures of the run, for JSON."""
    return {
        "classified": tally.classified,
        "failed": tally.failed,
        **({"accuracy": tally.accuracy} if labelled else {}),
        "seconds": seconds,
        "decoding_seconds": spent.decoding,
        "waited_for_pictures_seconds": spent.waited,
        "copying_seconds": spent.copying,
        "network_seconds": spent.network,
        "output_seconds": output,
        "limit": limit(spent, output, seconds),
    }


def limit(spent: Spent, output: float, run: float) -> str:
    """Return what limits a run: ``"decoding"``, ``"copies"``, ``"network"``, ``"results"`` or ``"output"``.

    The writer of the results waits for the first three. Therefore, they are the limit even if results take
    more time, unless the waits are so short that they only check whether the work is done.

    Parameters
    ----------
    output
        Seconds spent writing results.
    run
        Total seconds of the run.
    """
    waits = {"network": spent.network, "decoding": spent.waited, "copies": spent.copying}
    longest = max(waits, key=waits.__getitem__)
    if output > (1 - LONG) * run:
        return "output"
    if waits[longest] > LONG * (spent.seconds + output):
        return longest
    return "output" if output > spent.results else "results"


def in_words(spent: Spent, output: float, run: float) -> str:
    """The shares of the time, in words."""
    seconds = spent.seconds or 1.0
    shares = [
        f"the network {spent.network / seconds:.0%}",
        f"waiting for decoded pictures {spent.waited / seconds:.0%}",
        f"copies on the host {spent.copying / seconds:.0%}",
        f"classes {spent.results / seconds:.0%}",
    ]
    decoding = f"; all workers decoded for {spent.decoding:.2f} s" if spent.decoding else ""
    written = f"; results were written for {output / run:.0%} of the run"
    return f"{limit(spent, output, run)}; shares of the time: {', '.join(shares)}{written}{decoding}"
