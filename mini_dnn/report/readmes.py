"""Update the tables in the READMEs from the results. Each table stands between two markers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from mini_dnn import ops
from mini_dnn.errors import UsageError
from mini_dnn.measuring.batches import Batches
from mini_dnn.measuring.savings import Savings
from mini_dnn.report import batches as networks
from mini_dnn.report import steps
from mini_dnn.report.board import Board, Entry
from mini_dnn.report.course import CODES, is_about
from mini_dnn.report.document import NOT_THERE, Table, markdown_table
from mini_dnn.report.overlap import over_slower_copy
from mini_dnn.report.rows import course_at, title
from mini_dnn.report.savings import about, gains_table, problems, rows_table
from mini_dnn.report.stale import BROKEN, GONE
from mini_dnn.report.tables import number, op_cells, op_columns, times

PLACES = (  # READMEs, and the name of the marker in each
    ("README.md", "op-times"),
    ("milestones/m*/README.md", "ladder"),
    ("ladders/*/README.md", "ladder"),  # the folder has the name of its operation
    ("ladders/*/README.md", "savings"),
    ("networks/*/README.md", "batches"),
)
MEASURE_SAVINGS = "python benchmarks/savings.py --out benchmarks/results/NAME.json --picture docs/savings.svg"
MEASURE_BATCHES = "python benchmarks/resnet_rungs.py --out benchmarks/results/NAME.json"
BATCHES_PICTURE = "![Latency and images a second by batch](../../docs/{folder}.svg)"  # see docs/pictures.py
SAVINGS_PICTURE = "![Time, bytes and energy of a product](../../docs/savings.svg)"  # see its --picture
LAST = "m3"  # the milestone that leads to the final kernel


def updated(
    boards: Sequence[Board], root: Path, savings: Sequence[Savings] = (), batches: Sequence[Batches] = ()
) -> Mapping[Path, tuple[str, str]]:
    """Return the present and the updated text of each README that has markers.

    Parameters
    ----------
    boards
        One board for each operation, as returned by `shown`.
    savings
        The savings measured on the device of the first board.
    batches
        Networks by batch size, on any device.

    Raises
    ------
    UsageError
        No README has markers, or one marker of a pair is missing.
    """
    found: dict[Path, tuple[str, str]] = {}
    for path, marker in ((path, marker) for glob, marker in PLACES for path in sorted(root.glob(glob))):
        is_now, text = found.get(path) or (path.read_text(encoding="utf-8"),) * 2
        start, end = f"<!-- {marker}:start -->", f"<!-- {marker}:end -->"
        if (text.count(start), text.count(end)) == (0, 0):
            continue
        folder = path.parent.relative_to(root)
        match marker:
            case "savings":
                block = _savings(savings, folder.name)
            case "batches":
                block = _batches(boards, batches, folder)
            case _:
                block = _block(boards, folder)
        found[path] = (is_now, replaced(text, marker, block, path))
    if not found:
        raise UsageError(
            f"no README under {root} has a place for a table; put '<!-- op-times:start -->' and "
            "'<!-- op-times:end -->' into README.md, or 'ladder' markers into milestones/m*/README.md or "
            "ladders/*/README.md"
        )
    return found


def replaced(text: str, marker: str, block: str, path: Path) -> str:
    """Replace the text between the two markers of a page.

    Raises
    ------
    UsageError
        The markers do not occur exactly once each, in this order.
    """
    start, end = f"<!-- {marker}:start -->", f"<!-- {marker}:end -->"
    before, _, rest = text.partition(start)
    _, found_end, after = rest.partition(end)
    if (text.count(start), text.count(end)) != (1, 1) or not found_end:
        raise UsageError(
            f"{path}: expected one '{start}' and after it one '{end}'; correct the markers first"
        )
    return f"{before}{start}\n\n{block}\n\n{end}{after}"


def _savings(savings: Sequence[Savings], op: str) -> str:
    """The savings of a smaller type in an operation, or how to measure them."""
    one = next((one for one in savings if one.content.op == op), None)
    if one is None:
        return f"Not measured yet: `{MEASURE_SAVINGS}`, then `run.py report --readmes`."
    content = one.content
    place = f"{content.device.name}, commit `{(content.commit or 'unknown')[:10]}`"
    text = f"{place}{' with changes' * bool(content.dirty)}, problems {problems(content)}. {about(content)}"
    tables = [markdown_table(table) for table in (rows_table(content), gains_table(content))]
    return "\n\n".join([SAVINGS_PICTURE, *tables, f"{text} Written by `run.py report --readmes`."])


def _batches(boards: Sequence[Board], batches: Sequence[Batches], folder: Path) -> str:
    """The table of a folder's variants by batch size, or how to measure them."""
    network = networks.of_folder(boards, batches, folder.as_posix())
    if network is None:
        return f"Not measured yet: `{MEASURE_BATCHES}`, then `run.py report --readmes`."
    first, last = network.batches[0], network.batches[-1]
    tables = [networks.times_table(network), networks.work_table(network, [last])]
    tables.append(networks.memory_table(network, list(dict.fromkeys([first, last]))))
    tables += [networks.libraries_table(network)] * bool(network.libraries)
    doubtful = [f"- {line}" for line in networks.doubts(network)]
    of_steps = [
        f"{steps.about(one)}\n\n{markdown_table(steps.steps_table(one))}"
        for one in steps.of_folder(batches, folder.as_posix())
    ]
    text = f"{networks.about(network)} Written by `run.py report --readmes`.{' Notes:' * bool(doubtful)}"
    picture = BATCHES_PICTURE.format(folder=folder.name)
    notes = ["\n".join(doubtful)] * bool(doubtful)
    return "\n\n".join([picture, *map(markdown_table, tables), text, *notes, *of_steps])


def _block(boards: Sequence[Board], folder: Path) -> str:
    """The table of a folder's README, or how to measure its figures."""
    op = folder.name if folder.parent.name == "ladders" else ops.DEFAULT
    board = next((board for board in boards if board.operation.name == op), None)
    entries = _entries(board, folder.name) if board else []
    if board is None or not entries:
        command = f"run.py bench{'' if op == ops.DEFAULT else f' {op}'} --out benchmarks/results/NAME.json"
        return f"Not measured at {title(course_at(op))} yet: `{command}`, then `run.py report --readmes`."
    return _table(board, entries)


def _entries(board: Board, folder: str) -> list[Entry]:
    """The variants of a folder, with the variants outside it that they improve on, and the final kernel."""
    known = [entry for entry in board.course if entry.stale not in (GONE, BROKEN)]
    if not folder:
        return known
    inside = [entry for entry in known if entry.variant.startswith(f"{folder}/")]
    parents = {entry.any_row.parent for entry in inside}
    before = [e for e in known if e.variant in parents and e not in inside and e.variant != board.final]
    last = [e for e in known if e.variant == board.final and e not in inside and folder == LAST]
    return before + inside + last


def _table(board: Board, entries: Sequence[Entry]) -> str:
    of_course = is_about(board)
    rows = [
        [
            f"`{entry.variant}`",
            *([CODES.get(entry.variant, NOT_THERE)] if of_course else []),
            *op_cells(entry),
            _over(board, entry),
        ]
        for entry in entries
    ]
    heads = ["variant", *(["course"] if of_course else [])]
    columns = [*heads, *op_columns(entries[0].problems), "over its parent"]
    table = Table(columns, rows, text_columns=len(heads))
    used = {id(row.record): row.record for entry in entries for row in entry.rows.values()}.values()
    commits = dict.fromkeys(
        f"`{(r.commit or 'unknown')[:10]}`" + " with changes" * bool(r.dirty) for r in used
    )
    host = [f"`{entry.variant}`" for entry in entries if entry.any_row.on_host]
    note = f" {', '.join(host)}: on the CPU, {entries[0].any_row.record.device.cpu}." if host else ""
    return (
        f"{markdown_table(table)}\n\n{board.device}, {title(entries[0].at)}, commit {', '.join(commits)}."
        f"{note}{_overlapping(entries)} Written by `run.py report --readmes`."
    )


def _overlapping(entries: Sequence[Entry]) -> str:
    """A note on each variant whose gain appears only in layer times."""
    notes = ""
    for entry in entries:
        if entry.overlaps:
            rows = entry.rows.values()
            layer_ms = " + ".join(number(row.layer_ms) for row in rows)
            notes += (
                f" `{entry.variant}` overlaps its copies with its kernels, which op times do not show: its "
                f"layer times between pinned arrays are {layer_ms} ms"
            )
            ratios = [ratio for row in rows if (ratio := over_slower_copy(row)) is not None]
            if ratios:
                factors = " and ".join(map(number, ratios))
                notes += f", {factors} times the time of the slower copy alone"
            notes += "."
    return notes


def _over(board: Board, entry: Entry) -> str:
    if entry.overlaps:
        return "layer time, below"
    factor = board.speed_up(entry, entry.any_row.parent)
    return NOT_THERE if factor is None else f"{times(factor)} `{entry.any_row.parent}`"
