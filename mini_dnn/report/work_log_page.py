"""The page of a work log: the choices, the evidence for each of them, and the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from mini_dnn import ops
from mini_dnn.measuring.work_log import Entry, Tried, WorkLog
from mini_dnn.report.document import NOT_THERE, Block, Heading, Items, Table, Text, Warnings
from mini_dnn.report.folder import write_folder
from mini_dnn.report.tables import number, percent, times
from mini_dnn.report.webpage import files

TITLE = "mini_dnn: work log"
SAME = 0.02  # op times that differ by less count as equal
SHOWN = 7  # digits of a hash that are shown
MOST_CHARACTERS = 200  # the longest verdict in a table
ABOUT = (
    "Each line is one command; a line in bold failed. Code is the start of a hash of the kernel and its "
    "`variant.py` without comments, so two lines with the same hash ran the same code. Below, "
    '"before" is the last op time of the variant\'s earlier code at the same problem on the same device, or '
    "else its parent's; a gain above 1 is faster."
)

Before = tuple[Entry, Tried]
Compared = Mapping[int, Before]  # by the id of a `Tried`


def write_work_log(log: WorkLog, out: Path, force: bool = False) -> list[Path]:
    """Write ``index.html`` and ``report.md`` into a folder; returns their paths.

    Raises
    ------
    UsageError
        See `write_folder`.
    """
    return write_folder(files(blocks(log), TITLE), out, TITLE, force)


def blocks(log: WorkLog) -> list[Block]:
    """The page: everything that was tried, in order, then a part for each variant."""
    found: list[Block] = [Heading(1, TITLE)]
    if log.damaged:
        lines = [
            f"line {damaged.line} of `{log.file.name}` is damaged and was skipped: {damaged.why}"
            for damaged in log.damaged
        ]
        found.append(Warnings(lines))
    if not log.entries:
        return [*found, Text("There is no entry that can be read.")]
    variants = list(dict.fromkeys(entry.variant for entry in log.entries))
    found.append(Text(_summary(log.entries, variants)))
    found += [Heading(2, "What was tried"), Text(ABOUT), _timeline(log.entries)]
    op_times, counters = _compared(log.entries), _compared(log.entries, counters=True)
    for variant in variants:
        found += _variant([one for one in log.entries if one.variant == variant], op_times, counters)
    missing = [words for variant in variants for words in _missing(log.entries, variant)]
    return [*found, Heading(2, "What is missing"), Items(missing)] if missing else found


def _summary(entries: Sequence[Entry], variants: Sequence[str]) -> str:
    days = sorted({entry.time[:10] for entry in entries})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    devices = "; ".join(dict.fromkeys(entry.device for entry in entries if entry.device))
    many = f"{len(entries)} entries" if len(entries) > 1 else "One entry"
    which = f"{len(variants)} variants" if len(variants) > 1 else f"`{variants[0]}`"
    return f"{many} on {which}, {when} (UTC). Devices: {devices or 'none'}."


def _timeline(entries: Sequence[Entry]) -> Table:
    rows = [
        [_when(entry), f"`{entry.verb}`", f"`{entry.variant}`", _code(entry), _verdict(entry)]
        for entry in entries
    ]
    bad = frozenset(at for at, entry in enumerate(entries) if not entry.ok)
    return Table(["time, UTC", "verb", "variant", "code", "verdict"], rows, text_columns=5, strong=bad)


def _variant(own: Sequence[Entry], op_times: Compared, counters: Compared) -> list[Block]:
    """The idea, the expectation, the evidence and the result of one variant, from its own entries."""
    found: list[Block] = [Heading(2, own[0].variant), Text(f"Idea: {own[-1].idea or NOT_THERE}")]
    expected = [words for words, _ in groupby(entry.expected for entry in own) if words]
    if len(expected) == 1:
        found.append(Text(f"Expected: {expected[0]}"))
    elif expected:
        found += [Text("Expected, in the order in which it was written:"), Items(expected)]
    times_rows = list(_op_times(own, op_times))
    if times_rows:
        columns = [
            "time, UTC",
            "code",
            "problem",
            "before",
            "op ms, before",
            "op ms",
            "gain",
            "of the roofline",
        ]
        found += [Heading(3, "Op times"), Table(columns, times_rows, text_columns=4)]
    if counter_rows := list(_counters(own, counters)):
        columns = ["time, UTC", "problem", "counter", "before", "after", "after / before"]
        found += [Heading(3, "Counters"), Table(columns, counter_rows, text_columns=3)]
    notes = [f"{_when(entry)}, `{entry.verb}`: {note}" for entry in own for note in entry.notes]
    if notes:
        found += [Heading(3, "What the tools said"), Items(notes)]
    return [*found, Text(f"Result: {_result(own, op_times)}")]


def _op_times(own: Sequence[Entry], compared: Compared) -> Iterator[list[str]]:
    for entry, tried in _results(own):
        if tried.op_ms is None:
            continue
        before = compared.get(id(tried))
        earlier = before[1].op_ms if before else None
        yield [
            _when(entry),
            _code(entry),
            _problem(entry, tried),
            f"`{before[0].variant}` {_code(before[0])}" if before else NOT_THERE,
            number(earlier),
            number(tried.op_ms),
            times(earlier / tried.op_ms if earlier else None),
            percent(tried.of_roofline),
        ]


def _counters(own: Sequence[Entry], compared: Compared) -> Iterator[list[str]]:
    for entry, tried in _results(own):
        before = compared.get(id(tried))
        earlier: Mapping[str, float] = before[1].counters if before else {}
        for name, value in tried.counters.items():
            was = earlier.get(name)
            if not value and not was:
                continue
            change = times(value / was) if was else NOT_THERE
            yield [_when(entry), _problem(entry, tried), f"`{name}`", _count(was), _count(value), change]


def _results(entries: Sequence[Entry]) -> Iterator[Before]:
    return ((entry, tried) for entry in entries for tried in entry.results)


def _compared(entries: Sequence[Entry], counters: bool = False) -> Compared:
    """The earlier result to compare each one with: of the variant's other code, or else of its parent."""
    history: dict[tuple[str | None, str, str], list[Before]] = {}
    found = {}
    for entry, tried in _results(entries):
        if not (tried.counters if counters else tried.op_ms):
            continue
        own, parents = (
            history.get((of, entry.device, str(tried.shape)), []) for of in (entry.variant, entry.parent)
        )
        others = (one for one in reversed(own) if one[0].code_hash != entry.code_hash)
        if before := next(others, None) or next(reversed(parents), None):
            found[id(tried)] = before
        history.setdefault((entry.variant, entry.device, str(tried.shape)), []).append((entry, tried))
    return found


def _result(own: Sequence[Entry], compared: Compared) -> str:
    """The last verdict of each verb, and a comparison of the op times."""
    last = {entry.verb: entry for entry in own}
    parts = [f"`{verb}`: {_verdict(entry)}" for verb, entry in last.items()]
    newest = {str(tried.shape): (entry, tried) for entry, tried in _results(own) if tried.op_ms}
    for entry, tried in newest.values():
        before = compared.get(id(tried))
        if before and before[1].op_ms and tried.op_ms:
            parts.append(
                f"{_problem(entry, tried)} {_gain(before[1].op_ms / tried.op_ms)} `{before[0].variant}`"
            )
    return "; ".join(parts) + "."


def _gain(factor: float) -> str:
    if abs(factor - 1) < SAME:
        return "takes as long as"
    return f"is {times(factor)} as fast as"


def _missing(entries: Sequence[Entry], variant: str) -> Iterator[str]:
    """Evidence that a reader would ask for: a clean check, and a measurement of the latest code."""
    last = [entry for entry in entries if entry.variant == variant][-1]
    if last.code_hash is None:  # code on the host has no kernel to check
        return
    same = [entry for entry in entries if entry.variant == variant and entry.code_hash == last.code_hash]
    if not any(entry.verb == "check" and entry.ok for entry in same):
        yield f"`{variant}`: no clean `check` of its last code: `run.py check --impl {variant}`"
    if not any(tried.op_ms for _, tried in _results(same)):
        yield f"`{variant}`: no op time of its last code; on a GPU: `run.py bench --impl {variant}`"
    if not last.idea:
        yield f"`{variant}`: there is no idea; say in `idea` of its `variant.py` what it changes"
    if not last.expected:
        yield f"`{variant}`: there is no expectation; use `--expect`, or `Gain` in the header of the kernel"


def _when(entry: Entry) -> str:
    return entry.time[:16].replace("T", " ")


def _problem(entry: Entry, tried: Tried) -> str:
    """The name of a problem and its batch size, which differs between runs."""
    batch = tried.shape.get(ops.find(entry.op).problem.batch_field) if entry.op in ops.names() else None
    return f"{tried.problem}, batch {batch:,}" if isinstance(batch, int) else tried.problem


def _code(entry: Entry) -> str:
    return f"`{entry.code_hash[:SHOWN]}`" if entry.code_hash else NOT_THERE


def _verdict(entry: Entry) -> str:
    words = " ".join(entry.verdict.split())
    return words if len(words) <= MOST_CHARACTERS else words[: MOST_CHARACTERS - 1] + "…"


def _count(value: float | None) -> str:
    return NOT_THERE if value is None else f"{value:,.6g}" if value % 1 else f"{value:,.0f}"
