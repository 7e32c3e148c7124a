"""The work log: one line of JSON for each thing that was tried, in a file that only grows.

Each line is appended under a lock and with a single write, so that several commands may share a file. The
reader skips and reports damaged lines. Nothing ever rewrites the file.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mini_dnn.errors import DataError, MiniDnnError, UsageError, reason
from mini_dnn.measuring import strict
from mini_dnn.measuring.records import Finite, Hash, Level, Name, Positive, Started, Words, check_started
from mini_dnn.paths import ROOT, read_regular
from mini_dnn.variant.folders import MINE

VERSION = 1
MARK = "work_log"  # the field with the version; no other file of mini_dnn has it
MOST_BYTES = 64 << 20
MOST_RESULTS = 1_000  # of an entry
MOST_COUNTERS = 2_000  # of a result: about 13 for each kernel
MOST_CHARACTERS = 10_000  # of a text
UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # characters that `Words` does not accept


@dataclass(frozen=True, kw_only=True)
class Tried:
    """The result of a variant at one problem. None if it was not requested or is unknown."""

    problem: Name
    shape: Annotated[dict[Name, Any], Meta(max_length=100)]  # the problem's fields
    op_ms: Positive | None = None
    layer_ms: Level | None = None
    of_roofline: Level | None = None
    max_error: Level | None = None  # against float64
    counters: Annotated[dict[Name, Finite], Meta(max_length=MOST_COUNTERS)] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One command's attempt with one variant."""

    time: Started
    verb: Name
    variant: Name
    parent: Name | None
    op: Name
    idea: Words
    code_hash: Hash | None  # None on the host
    expected: Words  # before the run: the user's text, or the kernel's header
    device: Words
    ok: bool  # whether the result is as it should be
    verdict: Words
    notes: Annotated[list[Words], Meta(max_length=1_000)] = field(default_factory=list)
    results: Annotated[list[Tried], Meta(max_length=MOST_RESULTS)] = field(default_factory=list)

    def __post_init__(self) -> None:
        check_started(self.time)


@dataclass(frozen=True)
class Damaged:
    """A line that cannot be read."""

    line: int  # starting at 1
    why: str


@dataclass(frozen=True)
class WorkLog:
    """The entries of a log, oldest first, and the lines that could not be read."""

    file: Path
    entries: Sequence[Entry]
    damaged: Sequence[Damaged]


def check_log(path: Path) -> None:
    """Raise an error, before the work, for a file that is not a work log or cannot be appended to.

    Raises
    ------
    UsageError
        The file contains something else, is not a regular file, or cannot be written.
    """
    folder = path.resolve().parent
    if folder == ROOT / MINE:  # a fresh clone lacks it
        with suppress(OSError):
            folder.mkdir(exist_ok=True)
    if not folder.is_dir():
        raise UsageError(f"--log {path}: there is no folder {folder}; create it first")
    if path.exists():
        try:
            content = read_regular(path, MOST_BYTES)
        except OSError as error:
            raise UsageError(f"--log {path} cannot be read: {reason(error)}; name another file") from error
        if content and not _has_mark(content):
            raise UsageError(f"--log {path} is not a work log, and was not changed; name another file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(f"--log {path} cannot be written: permission denied; name another file")


def append(path: Path, entry: Entry) -> None:
    """Append an entry as one line. Lines that other commands append at the same time stay intact.

    Raises
    ------
    MiniDnnError
        The file cannot be written, or the entry has a value that the reader would refuse.
    """
    content = _readable(msgspec.to_builtins(entry))
    try:
        msgspec.convert(content, Entry)
    except msgspec.ValidationError as error:  # for example, the path of a variant is too long for a name
        raise MiniDnnError(f"--log {path} cannot hold this result: {error}") from error
    line = msgspec.json.encode({MARK: VERSION, "entry": content}) + b"\n"
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            with suppress(OSError):  # some network file systems have no locks
                fcntl.flock(handle, fcntl.LOCK_EX)
            size = os.fstat(handle).st_size
            if size and os.pread(handle, 1, size - 1) != b"\n":
                line = b"\n" + line  # a write that was cut short must not damage this line as well
            with os.fdopen(os.dup(handle), "ab", buffering=0) as file:
                written = file.write(line)
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        raise MiniDnnError(
            f"--log {path} cannot be written: {reason(error)}; the result is not in the log"
        ) from error
    if written != len(line):
        raise MiniDnnError(f"--log {path}: the disk is full; the last line of the log is damaged")


def _readable(value: Any) -> Any:
    """Return a value with texts that `Words` accepts: a compiler's message may have colours and be long."""
    if isinstance(value, str):
        return UNSEEN.sub(" ", value)[:MOST_CHARACTERS]
    if isinstance(value, dict):
        return {name: _readable(one) for name, one in value.items()}
    return [_readable(one) for one in value] if isinstance(value, list) else value


def read(path: Path) -> WorkLog:
    """Read a log. Damaged lines are listed, and the others are kept.

    Raises
    ------
    DataError
        The file cannot be read, or contains no line of a work log.
    """
    try:
        content = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise DataError(
            f"--log {path} cannot be read: {reason(error)}; name a file that --log wrote"
        ) from error
    log = parse(path, content)
    if not log.entries and not _has_mark(content):
        raise DataError(
            f"--log {path} has no entry of a work log; name a file that another verb wrote with this flag, "
            "such as 'run.py check --impl NAME --log FILE'"
        )
    return log


def parse(path: Path, content: bytes) -> WorkLog:
    """Parse the content of a log. `path` is only its name."""
    entries: list[Entry] = []
    damaged: list[Damaged] = []
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            entries.append(_entry(line))
        except (strict.Odd, msgspec.ValidationError, ValueError) as error:
            damaged.append(Damaged(number, str(error).splitlines()[0]))
    return WorkLog(path, sorted(entries, key=lambda entry: entry.time), damaged)


def _entry(line: bytes) -> Entry:
    found = strict.parse(line)
    if not isinstance(found, dict) or found.get(MARK) != VERSION:
        raise ValueError(f"it is not a line of a work log of version {VERSION}")
    return msgspec.convert(found.get("entry"), Entry)


def _has_mark(content: bytes) -> bool:
    """Whether a line begins like those of a log. A line that was cut short also counts."""
    start = b'{"' + MARK.encode() + b'":'
    return any(line.startswith(start) for line in content.split(b"\n"))
