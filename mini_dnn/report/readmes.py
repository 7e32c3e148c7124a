"""The op-time tables inside the READMEs, written from the results between two markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mini_dnn.errors import UsageError
from mini_dnn.report.board import COURSE_BATCH, GONE, Board, Entry
from mini_dnn.report.document import NOT_THERE, Table, markdown_table
from mini_dnn.report.overlap import over_slower_copy
from mini_dnn.report.tables import COURSE_CODES, FINAL, number, op_cells, op_columns, times


def updated(board: Board, root: Path) -> Mapping[Path, tuple[str, str]]:
    """The READMEs that have markers: their text as it is, and as the results would have it.

    Raises
    ------
    UsageError
        No README has markers, or one marker of a pair is missing.
    """
    found = {}
    for path in [root / "README.md", *sorted(root.glob("milestones/m*/README.md"))]:
        name = "op-times" if path.parent == root else "ladder"
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
        if (text.count(start), text.count(end)) == (0, 0):
            continue
        before, _, rest = text.partition(start)
        _, found_end, after = rest.partition(end)
        if (text.count(start), text.count(end)) != (1, 1) or not found_end:
            raise UsageError(f"{path}: expected one '{start}' and after it one '{end}'; put them right first")
        table = _table(board, _entries(board, "" if path.parent == root else path.parent.name))
        block = f"{start}\n\n{table}\n\n{end}"
        found[path] = (text, before + block + after)
    if not found:
        raise UsageError(
            f"no README under {root} has a place for a table; put '<!-- op-times:start -->' and "
            "'<!-- op-times:end -->' into README.md, or 'ladder' markers into milestones/m*/README.md"
        )
    return found


def _entries(board: Board, milestone: str) -> list[Entry]:
    """The variants of a milestone, between those outside it that they improve on and the final kernel."""
    known = [entry for entry in board.at(COURSE_BATCH) if entry.stale != GONE]
    if not milestone:
        return known
    inside = [entry for entry in known if entry.variant.startswith(f"{milestone}/")]
    parents = {entry.any_row.parent for entry in inside}
    before = [e for e in known if e.variant in parents and e not in inside and e.variant != FINAL]
    return before + inside + [e for e in known if e.variant == FINAL and milestone == "m3"]


def _table(board: Board, entries: Sequence[Entry]) -> str:
    command = f"run.py bench --batch {COURSE_BATCH} --out benchmarks/results/NAME.json"
    if not entries:
        return f"Not measured at batch {COURSE_BATCH:,} yet: `{command}`, then `run.py report --readmes`."
    rows = [
        [
            f"`{entry.variant}`",
            COURSE_CODES.get(entry.variant, NOT_THERE),
            *op_cells(entry),
            _over(board, entry),
        ]
        for entry in entries
    ]
    table = Table(["variant", "course", *op_columns(board.layers), "over its parent"], rows, text_columns=2)
    used = {id(row.record): row.record for entry in entries for row in entry.rows.values()}.values()
    commits = dict.fromkeys(
        f"`{(r.commit or 'unknown')[:10]}`" + " with changes" * bool(r.dirty) for r in used
    )
    host = [f"`{entry.variant}`" for entry in entries if entry.any_row.on_host]
    note = f" {', '.join(host)}: on the CPU, {entries[0].any_row.record.cpu}." if host else ""
    return (
        f"{markdown_table(table)}\n\n{board.device}, batch {COURSE_BATCH:,}, commit {', '.join(commits)}."
        f"{note}{_overlapping(entries)} Written by `run.py report --readmes`."
    )


def _overlapping(entries: Sequence[Entry]) -> str:
    """What variants gain that no op time shows."""
    notes = ""
    for entry in entries:
        if entry.overlaps:
            rows = entry.rows.values()
            layer_ms = " + ".join(number(row.layer_ms) for row in rows)
            notes += (
                f" `{entry.variant}` overlaps its copies, which no op time shows: its layers take {layer_ms} "
                "ms between pinned arrays"
            )
            ratios = [ratio for row in rows if (ratio := over_slower_copy(row)) is not None]
            if ratios:
                factors = " and ".join(map(number, ratios))
                notes += f", {factors} times what the slower direction's copy takes alone"
            notes += "."
    return notes


def _over(board: Board, entry: Entry) -> str:
    if entry.overlaps:
        return "layer time, below"
    factor = board.speed_up(entry, entry.any_row.parent)
    return NOT_THERE if factor is None else f"{times(factor)} `{entry.any_row.parent}`"
