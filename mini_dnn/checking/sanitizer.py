"""Compute Sanitizer: out-of-bounds accesses, races, divergent barriers, reads of uninitialised memory.

The format of its messages is that of "Compute Sanitizer", NVIDIA's user manual: a headline after
``=========``, then details with more indentation.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from mini_dnn.device.sources import read_source, source_files
from mini_dnn.device.tools import failure, find_tool, run
from mini_dnn.errors import MiniDnnError

SUBTOOLS = {
    "memcheck": "accesses out of bounds or misaligned",
    "racecheck": "threads of a block that use shared memory without a barrier between them",
    "synccheck": "barriers that not all threads reach",
    "initcheck": "reads of uninitialised global memory",
}
FOUND = 86  # exit status that only means findings
PRINT_LIMIT = 1000  # records that are printed; the summary counts all of them
PADDING_BYTES = 4096  # after each allocation, in memcheck
SHOWN_FINDINGS = 10
UNSEEN = "compute-sanitizer does not see what the copy engine writes through a tensor map, so before "
UNSEEN += "initcheck {} filled with NaN; the NaN reaches the results if a kernel reads an unwritten element"

LINE = re.compile(r"^=+ (?P<indent> *)(?P<text>\S.*)$")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (?P<count>\d+)")
OTHER_HEADLINES = re.compile(
    r"COMPUTE-SANITIZER|.* SUMMARY:|Target application|Error: process didn't|Error: Target"
)
SEVERITY = re.compile(r"^(?:error|warning|warn|info|fatal):? ?(?:\([^)]*\) ?)?", re.IGNORECASE)
PLACE = re.compile(
    r"(?:(?P<access>Read|Write)\b.*? )?(?:\bat |Device Frame: ?)(?P<where>.*?)"
    r" in (?P<file>\S.*?):(?P<line>\d+)(?::(?P<old_style>\w+))?"
)
TRIPLE = r"\((\d+), ?(\d+), ?(\d+)\)"
THREAD = re.compile(rf"\bthread {TRIPLE}", re.IGNORECASE)
BLOCK = re.compile(rf"\bin block {TRIPLE}")
FAULT_ADDRESS = re.compile(r"(?:Address|Access (?:to|at)|__shared__) 0x(?P<address>[0-9a-f]+)", re.IGNORECASE)
ALLOCATION = re.compile(r"nearest allocation at 0x(?P<start>[0-9a-f]+)")
KERNEL = re.compile(r"\b(?P<kernel>[A-Za-z_]\w*)(?:\(.*\))?(?:(?:\+|:)0x|$)")
ADDRESS = re.compile(r" (?:at )?0x[0-9a-f]+.*| in block \(.*", re.IGNORECASE)
REMARK = re.compile(r"warn\w*:(?!.*(?:race|hazard))", re.IGNORECASE)  # about the tool, not the kernel
HAZARDS = re.compile(r"\[(?P<count>\d+) hazards?\]")


class Work(Protocol):
    """The program that a checker runs."""

    @property
    def folder(self) -> Path:
        """The folder for all of its files."""

    def command(self, *flags: str) -> list[str]:
        """The command line of the program."""


@dataclass(frozen=True)
class Place:
    """A place in the source. For a race, ``access`` is "read" or "write"."""

    kernel: str
    file: str
    line: int
    access: str = ""
    thread: tuple[int, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Finding:
    """One kind of error at one place, or between two or more places for a race."""

    what: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Record:
    """One message of a checker."""

    headline: str  # without the severity
    details: tuple[str, ...]
    places: tuple[Place, ...]  # for a race in order of time, otherwise innermost function first
    block: tuple[int, ...] = ()
    thread: tuple[int, ...] = ()
    address: int | None = None  # the address that the kernel used; for shared memory, relative to its start
    allocation: int | None = None  # the start of the nearest allocation
    hazards: int = 1

    @property
    def finding(self) -> Finding:
        """The kind of error and its places, without the thread."""
        places = tuple(dict.fromkeys(self.places))
        if self.headline.startswith("Race reported"):
            return Finding("race", places)
        return Finding(ADDRESS.sub("", self.headline).rstrip(" :."), places)


@dataclass(frozen=True)
class Outcome:
    """The findings of one of the four checkers."""

    subtool: str
    records: tuple[Record, ...]
    findings: Counter[Finding]  # equal findings are counted together
    total: int  # according to the tool's summary
    log: Path


def check(work: Work, subtool: str, limit_s: float | None = None) -> Outcome:
    """Run one checker on a program, for at most ``limit_s`` seconds.

    Raises
    ------
    MiniDnnError
        There is no compute-sanitizer, or it ended without a verdict.
    """
    tool = find_tool("compute-sanitizer")
    log, messages = work.folder / f"{subtool}.out", work.folder / f"{subtool}.log"
    done = run(command(str(tool), work, subtool, messages), log, limit_s)
    if done.timed_out:
        raise MiniDnnError(
            f"compute-sanitizer --tool {subtool} did not end within {limit_s:.0f} s; try smaller shapes. "
            f"Its messages until then: {messages}"
        )
    text = messages.read_text(errors="replace") if messages.is_file() else ""
    records, findings, total = tuple(read(text)), parse(text), summary(text)
    if total is None or ((total or done.status) and not findings):
        raise failure(f"compute-sanitizer --tool {subtool}", replace(done, output=done.output + text), log)
    return Outcome(subtool, records, findings, total, messages)


def command(tool: str, work: Work, subtool: str, messages: Path) -> list[str]:
    """The command line of one checker.

    The workload explains failed calls itself. For initcheck, buffers keep their content, because the usual
    fill with NaN would count as a write. Padding separates buffers, so that an overrun does not hit the next
    one. The device's frames lead from a function in a header to the kernel's own line.
    """
    words = [tool, "--tool", subtool, "--error-exitcode", str(FOUND), "--log-file", str(messages)]
    words += ["--print-limit", str(PRINT_LIMIT), "--show-backtrace", "device"]
    words += {
        "memcheck": ["--report-api-errors", "no", "--padding", str(PADDING_BYTES)],
        "racecheck": ["--racecheck-report", "all"],
    }.get(subtool, [])
    return [*words, *work.command(*(["--unfilled"] if subtool == "initcheck" else []))]


def unseen(arrays: Sequence[str]) -> str:
    """A note about arrays that the copy engine may write, or an empty text if there are none."""
    return UNSEEN.format(f"{', '.join(arrays)} {'is' if len(arrays) == 1 else 'are'}") if arrays else ""


def summary(text: str) -> int | None:
    """The number of errors in the tool's summary, or None if it did not get that far."""
    counts = [int(match["count"]) for match in SUMMARY.finditer(text)]
    return max(counts, default=None)


def parse(text: str) -> Counter[Finding]:
    """Parse the findings in a log. Equal ones are counted together, and lines without a place are skipped."""
    findings: Counter[Finding] = Counter()
    for record in read(text):
        findings[record.finding] += record.hazards
    return findings


def read(text: str) -> list[Record]:
    """Parse the messages in a log that are about a kernel, in order."""
    records: list[list[str]] = []
    for line in text.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        if match["indent"] and records:
            records[-1].append(match["text"])
        elif not match["indent"]:
            records.append([match["text"]])
    return [
        _record(SEVERITY.sub("", headline), details)
        for headline, *details in records
        if not OTHER_HEADLINES.match(headline) and not REMARK.match(headline)
    ]


def _record(headline: str, details: list[str]) -> Record:
    lines = (headline, *details)
    return Record(
        headline,
        tuple(details),
        tuple(place for text in lines for place in _place(text)),
        _triple(BLOCK, *lines),
        _triple(THREAD, *lines),
        _hexadecimal(FAULT_ADDRESS, *lines),
        _hexadecimal(ALLOCATION, *lines),
        sum(int(match["count"]) for text in details for match in HAZARDS.finditer(text)) or 1,
    )


def _triple(pattern: re.Pattern[str], *lines: str) -> tuple[int, ...]:
    return next((tuple(map(int, match.groups())) for text in lines if (match := pattern.search(text))), ())


def _hexadecimal(pattern: re.Pattern[str], *lines: str) -> int | None:
    return next((int(match[1], 16) for text in lines if (match := pattern.search(text))), None)


def _place(text: str) -> list[Place]:
    match = PLACE.search(text)
    if not match:
        return []
    kernel = KERNEL.search(match["where"])
    name = match["old_style"] or (kernel["kernel"] if kernel else "")
    access = (match["access"] or "").lower()
    return [Place(name, Path(match["file"]).name, int(match["line"]), access, _triple(THREAD, text))]


def describe(outcome: Outcome, source: Path) -> list[str]:
    """Describe one checker in lines: clean, or each finding with its source lines."""
    meaning = SUBTOOLS[outcome.subtool]
    if not outcome.findings:
        return [f"{outcome.subtool:<10} clean: no {meaning}"]
    lines = [f"{outcome.subtool:<10} FOUND {meaning} ({outcome.total:,} by the tool's own count)"]
    texts = {path.name: read_source(path).splitlines() for path in source_files(source)}
    for finding, count in outcome.findings.most_common(SHOWN_FINDINGS):
        lines.append(f"  {finding.what}" + (f", {count:,} times" if count > 1 else ""))
        for place in finding.places:
            code = texts.get(place.file, [])
            shown = code[place.line - 1].strip() if 1 <= place.line <= len(code) else ""
            access = f"{place.access} " if place.access else ""
            kernel = f" in {place.kernel}" if place.kernel else ""
            lines.append(f"    {access}{place.file}:{place.line}{kernel}" + (f" | {shown}" if shown else ""))
    rest = len(outcome.findings) - SHOWN_FINDINGS
    return [*lines, *([f"  and {rest} more places"] if rest > 0 else []), f"  all messages: {outcome.log}"]
