"""Compute Sanitizer: out-of-bounds accesses, races, divergent barriers, reads of what nobody wrote.

The forms of its messages are those of "Compute Sanitizer", NVIDIA's user manual: a headline after
``=========``, then details that are indented further.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from mini_dnn.device.sources import source_files
from mini_dnn.profiling.tools import Job, failure, find_tool, run

SUBTOOLS = {
    "memcheck": "accesses out of bounds or misaligned",
    "racecheck": "threads of a block that use shared memory without a barrier between them",
    "synccheck": "barriers that not all threads reach",
    "initcheck": "reads of global memory that nobody wrote",
}
FOUND = 86  # exit status that means findings, and nothing else
PRINT_LIMIT = 1000  # records that are printed; the summary counts all
SHOWN_FINDINGS = 10

LINE = re.compile(r"^=+ (?P<indent> *)(?P<text>\S.*)$")
SUMMARY = re.compile(r"(?:ERROR|RACECHECK) SUMMARY: (?P<count>\d+)")
OTHER_HEADLINES = re.compile(
    r"COMPUTE-SANITIZER|.* SUMMARY:|Target application|Error: process didn't|Error: Target"
)
SEVERITY = re.compile(r"^(?:error|warning|warn|info|fatal):? ?(?:\([^)]*\) ?)?", re.IGNORECASE)
PLACE = re.compile(
    r"(?:(?P<access>Read|Write)\b.*? )?\bat (?P<where>.*?) in (?P<file>\S.*?):(?P<line>\d+)"
    r"(?::(?P<old_style>\w+))?"
)
KERNEL = re.compile(r"(?P<kernel>[A-Za-z_]\w*)(?:\(.*\))?(?:\+|:)0x")
ADDRESS = re.compile(r" (?:at )?0x[0-9a-f]+.*| in block \(.*", re.IGNORECASE)
REMARK = re.compile(r"warn\w*:(?!.*(?:race|hazard))", re.IGNORECASE)  # about the tool, not the kernel
HAZARDS = re.compile(r"\[(?P<count>\d+) hazards?\]")


@dataclass(frozen=True)
class Place:
    """Where in the source; ``access`` is "read" or "write" for a race."""

    kernel: str
    file: str
    line: int
    access: str = ""


@dataclass(frozen=True)
class Finding:
    """One kind of error at one place, or, for a race, between two or more."""

    what: str
    places: tuple[Place, ...]


@dataclass(frozen=True)
class Outcome:
    """What one of the four checkers found."""

    subtool: str
    findings: Counter[Finding]  # with how often each was reported
    total: int  # by the tool's own summary
    log: Path


def check(job: Job, subtool: str) -> Outcome:
    """Run one checker over all layers.

    Raises
    ------
    MiniDnnError
        No compute-sanitizer, or it ended without a verdict.
    """
    tool = find_tool("compute-sanitizer")
    log, messages = job.folder / f"{subtool}.out", job.folder / f"{subtool}.log"
    done = run(command(str(tool), job, subtool, messages), log)
    text = messages.read_text(errors="replace") if messages.is_file() else ""
    findings, total = parse(text), summary(text)
    if total is None or ((total or done.status) and not findings):
        raise failure(f"compute-sanitizer --tool {subtool}", replace(done, output=done.output + text), log)
    return Outcome(subtool, findings, total, messages)


def command(tool: str, job: Job, subtool: str, messages: Path) -> list[str]:
    """The command line of one checker.

    Failed calls are left to the workload, which explains them itself. Buffers keep what they hold for
    initcheck, as the usual fill with NaN would count as a write.
    """
    words = [tool, "--tool", subtool, "--error-exitcode", str(FOUND), "--log-file", str(messages)]
    words += ["--print-limit", str(PRINT_LIMIT), "--show-backtrace", "no"]
    words += {"memcheck": ["--report-api-errors", "no"], "racecheck": ["--racecheck-report", "all"]}.get(
        subtool, []
    )
    return [*words, *job.command(*(["--unfilled"] if subtool == "initcheck" else []))]


def summary(text: str) -> int | None:
    """The number of errors by the tool's own summary; None if it did not get that far."""
    counts = [int(match["count"]) for match in SUMMARY.finditer(text)]
    return max(counts, default=None)


def parse(text: str) -> Counter[Finding]:
    """Findings in a log, alike ones counted together; what cannot be read as a place is left out of it."""
    findings: Counter[Finding] = Counter()
    records: list[list[str]] = []
    for line in text.splitlines():
        match = LINE.match(line)
        if not match:
            continue
        if match["indent"] and records:
            records[-1].append(match["text"])
        elif not match["indent"]:
            records.append([match["text"]])
    for headline, *details in records:
        if not OTHER_HEADLINES.match(headline) and not REMARK.match(headline):
            finding, count = _finding(headline, details)
            findings[finding] += count
    return findings


def _finding(headline: str, details: list[str]) -> tuple[Finding, int]:
    plain = SEVERITY.sub("", headline)
    places = [place for text in (plain, *details) for place in _place(text)]
    hazards = [int(match["count"]) for text in details for match in HAZARDS.finditer(text)]
    what = "race" if plain.startswith("Race reported") else ADDRESS.sub("", plain).rstrip(" :.")
    return Finding(what, tuple(dict.fromkeys(places))), sum(hazards) or 1


def _place(text: str) -> list[Place]:
    match = PLACE.search(text)
    if not match:
        return []
    kernel = KERNEL.search(match["where"])
    name = match["old_style"] or (kernel["kernel"] if kernel else "")
    return [Place(name, Path(match["file"]).name, int(match["line"]), (match["access"] or "").lower())]


def describe(outcome: Outcome, source: Path) -> list[str]:
    """Lines about one checker: clean, or each finding with the source lines it names."""
    meaning = SUBTOOLS[outcome.subtool]
    if not outcome.findings:
        return [f"{outcome.subtool:<10} clean: no {meaning}"]
    lines = [f"{outcome.subtool:<10} FOUND {meaning} ({outcome.total:,} by the tool's own count)"]
    texts = {path.name: path.read_text(errors="replace").splitlines() for path in source_files(source)}
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
