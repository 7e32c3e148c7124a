"""The report: which tables and plots there are, what they mean, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mini_dnn import ops
from mini_dnn.errors import UsageError
from mini_dnn.measuring.savings import Savings
from mini_dnn.paths import write_atomically
from mini_dnn.report import course
from mini_dnn.report.board import Board, Entry, boards, throttling
from mini_dnn.report.document import Block, Heading, Items, Table, Text, Warnings, files
from mini_dnn.report.figures import figures
from mini_dnn.report.load import OLD_LAYER_TIMES, Results
from mini_dnn.report.overlap import about as about_overlap
from mini_dnn.report.overlap import overlap_table, verdict
from mini_dnn.report.repeats import repeats
from mini_dnn.report.rows import At, Row, course_at, title
from mini_dnn.report.savings_page import savings_blocks
from mini_dnn.report.serving_page import serving_blocks
from mini_dnn.report.tables import (
    method_text,
    number,
    ops_csv,
    peers_table,
    places_table,
    rates_table,
    times_table,
)

TITLE = "mini_dnn: op times"
TOO_FAST = 1.02  # of the roofline; what is above cannot be, the rest is the error of both measurements


CEILINGS = (
    "Ceilings of the device: copies in GB/s are measured (device to device, from and to pinned host memory). "
    "Arithmetic in TFLOP/s is not: it is computed, multiprocessors times FLOP a clock times the boost clock, "
    "which a GPU need not hold with all of its tensor cores at work. So shares of the tf32 and fp16 ceilings "
    "come out too small rather than too large."
)
HOW = (
    "Op time: device events around the kernels of one op. Layer time: the wall clock around "
    "allocation, both copies and one op, once; from and to ordinary host memory, whose pages are touched for "
    "the first time. A variant that copies by itself starts and ends in pinned host memory, and is run "
    "several times: its layer time compares with the copies' own time at the pinned rates, not with other "
    "variants' layer times. Op times on the CPU are the wall clock's. Clocks, °C and W were read before the "
    "run; the lowest SM clock and throttling with the rows: all through each, in files of schema 1 after "
    "each. Changed files are unknown where the tree was measured without its history; each row has hashes "
    "of its code all the same."
)
NOT_VERIFIED = (
    "Results files have a checksum of what was measured, and a file that was changed since is refused. These "
    "were written before there was one, so a change of their figures would not be seen: "
)
OF_OLD_KIND = (
    "Layer times of {files} are of an older kind: with the filling of all buffers with NaN, a check, which "
    "layer times are without since schema 2 of the results files."
)


def write_report(results: Results, out: Path, force: bool = False) -> list[Path]:
    """Write ``index.html``, ``report.md``, the plots and ``ops.csv`` into a folder; returns their paths.

    Parameters
    ----------
    force
        Whether files of these names are replaced even if the folder holds no report.

    Raises
    ------
    UsageError
        The folder cannot be written, or it has such files and holds no report.
    """
    found = boards(results)
    blocks = _blocks(found, results.savings) + _unverified(results)
    contents = dict(files(blocks, TITLE)) | {"ops.csv": ops_csv(found).encode()}
    in_the_way = [name for name in contents if (out / name).exists()]
    if in_the_way and not force and not _is_report(out):
        raise UsageError(
            f"--out {out} holds {in_the_way[0]}, and no report of mini_dnn; name another folder, or replace "
            "the file with --force"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            write_atomically(out / name, content, 0o644)
    except OSError as error:
        raise UsageError(
            f"--out {out}: the report cannot be written there ({error}); name a folder"
        ) from error
    return [out / name for name in contents]


def _is_report(folder: Path) -> bool:
    try:
        with (folder / "index.html").open(encoding="utf-8", errors="replace") as page:
            return f"<title>{TITLE}</title>" in page.read(1000)
    except OSError:
        return False


def _blocks(found: Sequence[Board], savings: Sequence[Savings]) -> list[Block]:
    blocks: list[Block] = [Heading(1, TITLE)]
    devices = list(dict.fromkeys(board.device for board in found))
    for at, board in enumerate(found, 1):
        suffix = "" if at == 1 else f"-{at}"  # of the plots' file names
        first = at == 1 or found[at - 2].device != board.device  # of its device
        blocks += [Heading(1, _heading(board, len(devices) > 1 and first))] if at > 1 else []
        blocks += _board(board, suffix, at == 1)
        blocks += serving_blocks(board.servings, suffix) if first else []
        blocks += savings_blocks(board, savings, suffix)
        blocks += repeats(board)
        blocks += _where(board)
        missing = list(_missing(board))
        blocks += [Heading(2, "What is missing"), Items(missing)] if missing else []
    return blocks


def _unverified(results: Results) -> list[Block]:
    names = [f"`{file.name}`" for file in results.unverified]
    return [Heading(2, "What is not verified"), Text(NOT_VERIFIED + ", ".join(names) + ".")] if names else []


def _heading(board: Board, of_device: bool) -> str:
    """Of a part of the report: the device where it changes, or else the operation."""
    default = board.operation.name == ops.DEFAULT
    return board.device if of_device and default else f"{board.operation.name}: {board.operation.about}"


def _board(board: Board, suffix: str, is_first: bool) -> list[Block]:
    """What was measured of one operation on one device."""
    last = board.records[-1]
    what = "Measured" if board.operation.name == ops.DEFAULT else f"`{board.operation.name}`, measured"
    blocks: list[Block] = [
        Text(f"{what} on {board.device}, last on {last.started[:10]}. The CPU is {last.device.cpu}.")
    ]
    doubts = list(_doubts(board))
    blocks += [Warnings(doubts)] if doubts else []
    if course.is_about(board) and (is_first or course.measured(board)):
        blocks += course.course_blocks(board)
    blocks += _peers(board)
    blocks += _table(board, board.main)
    blocks += figures(board, suffix)
    for at in board.tables:
        blocks += _table(board, at) if at != board.main else []
    return blocks


def _doubts(board: Board) -> Iterator[str]:
    rows = [row for entry in board.entries.values() for row in entry.rows.values()]
    for record in board.records:
        if record.dirty:
            commit = (record.commit or "")[:10]
            yield (
                f"`{record.file.name}` was measured with files that differ from commit `{commit}`: "
                "commit, then measure again"
            )
    for reason in dict.fromkeys(reason for row in rows for reason in throttling(row)):
        names = dict.fromkeys(f"`{row.variant}`" for row in rows if reason in throttling(row))
        yield f"the GPU's clocks were held down ({reason}) at {', '.join(names)}"
    for why in dict.fromkeys(entry.stale for entry in board.entries.values() if entry.stale):
        names = dict.fromkeys(f"`{e.variant}`" for e in board.entries.values() if e.stale == why)
        yield f"stale, {why}: {', '.join(names)}; measure again"
    restless = [
        f"`{row.variant}` ({row.problem}, batch {row.batch:,})" for row in rows if row.settled is False
    ]
    if restless:
        yield f"op times had not settled when they were taken: {', '.join(restless)}; measure again"
    most = max(row.batch for row in rows)
    largest = [(row, board.roof(row)) for row in rows if row.batch == most]
    fast = [f"`{row.variant}` ({row.problem})" for row, roof in largest if roof and roof.fraction > TOO_FAST]
    if fast:  # small batches may: part of their bytes stays in the L2 cache
        yield f"faster than the ceilings allow: {', '.join(fast)}; check the ceilings and the kernel"


def _peers(board: Board) -> list[Block]:
    table = peers_table(board)
    versions = ", ".join(dict.fromkeys(f"{peer.versions} (`{peer.file.name}`)" for peer in board.peers))
    text = (
        f"The same operation at {title(course_at(board.operation.name))} by {versions}, on the same GPU, the "
        "L2 cache cold too. Its fp16 is fp16 in memory: half the bytes of any variant's."
    )
    return [Heading(2, "Beside a library"), Text(text), table] if table.rows else []


def _table(board: Board, at: At) -> list[Block]:
    """What was measured of all variants at some problems."""
    entries = board.at(at)
    sizes = {name: row.sizes for entry in entries for name, row in entry.rows.items()}
    problems = "; ".join(f"{n} is `{name}`, {sizes[name]}" for n, name in enumerate(board.problems(at), 1))
    over = f" and over `{board.baseline}`" if board.baseline else ""
    sums = "of the sum, over the parent" if len(sizes) > 1 else "over the parent"
    bold = "; the fastest sum is in bold" if len(sizes) > 1 else "; the fastest is in bold"
    blocks: list[Block] = [
        Heading(2, f"{title(at)[0].upper()}{title(at)[1:]}"),
        Text(f"Problem {problems}. Speed-ups are {sums}{over}{bold}."),
        times_table(board, at),
        *_refused(board, entries),
        *(_notes(entries) if at == board.main else []),
        Text(_rates_text(board, [row for entry in entries for row in entry.rows.values()])),
        rates_table(board, at),
    ]
    if any(entry.overlaps for entry in entries):
        text = f"{about_overlap(board.operation.name)} {verdict(entries)}".strip()
        blocks += [Text(text)] if at == board.main else []
        blocks += [overlap_table(entries)]
    return blocks


def _refused(board: Board, entries: Sequence[Entry]) -> list[Block]:
    """Problems that variants do not take."""
    reasons = {(skip.variant, skip.problem): skip.reason for skip in board.skipped}
    items = [
        f"`{entry.variant}` does not take `{problem}`: {reasons[entry.variant, problem]}"
        for entry in entries
        for problem in entry.problems
        if problem in entry.refused
    ]
    about = "There is no sum where a problem is missing; speed-ups are of those that both variants take."
    return [Text(about), Items(items)] if items else []


def _notes(entries: Sequence[Entry]) -> list[Block]:
    """What a reader of the times has to know of some of them."""
    rows = [row for entry in entries for row in entry.rows.values()]
    old = dict.fromkeys(f"`{row.record.file.name}`" for row in rows if row.record.schema == OLD_LAYER_TIMES)
    overlapping = [f"`{entry.variant}`" for entry in entries if entry.overlaps]
    notes = [OF_OLD_KIND.format(files=", ".join(old))] if old else []
    if overlapping:
        notes.append(
            f"No speed-up is given for {', '.join(overlapping)}: overlapping copies with kernels gains layer "
            "time, not op time, and layer times from pinned memory do not compare with the others'."
        )
    return [Text(" ".join(notes))] if notes else []


def _rates_text(board: Board, rows: Sequence[Row]) -> str:
    text = (
        "GB/s counts each input and output once, in its own type; TFLOP/s the operation's own arithmetic. "
        "Nearer ceiling: which of the two takes the device longer at its ceilings, and would bind a perfect "
        "kernel. One that reaches a small share of its roofline is held up by neither, but by instructions, "
        "shared memory or waiting: a profiler tells. Max error is against float64."
    )
    if "copy_gbps" not in board.ceilings:
        return text + " No share of the roofline, as the ceilings of this device were not measured."
    roofs = [board.roof(row) for row in rows]
    lacking = sorted({roof.missing for roof in roofs if roof and roof.missing})
    if lacking:
        text += (
            f" The arithmetic ceiling of {', '.join(lacking)} is not known: the share is that of the "
            "memory's ceiling alone, so at least so much of the roofline."
        )
    return text


def _where(board: Board) -> list[Block]:
    methods = dict.fromkeys(method_text(record.method) for record in board.records)
    blocks: list[Block] = [
        Heading(2, "Where it was measured"),
        places_table(board),
        Text(HOW),
        Text("Method: " + "; or: ".join(methods) + "."),
    ]
    if board.ceilings:
        rows = [
            [f"`{name}`", "computed" if name.endswith("_tflops") else "measured", number(value)]
            for name, value in board.ceilings.items()
        ]
        blocks += [Text(CEILINGS), Table(["ceiling", "how", "value"], rows, text_columns=2)]
    return blocks


def _missing(board: Board) -> Iterator[str]:
    """What the page would show if it were measured, and the command that measures it."""
    op = board.operation.name
    of_course = course.is_about(board)
    bench = f"`run.py bench{'' if of_course else f' {op}'} --out benchmarks/results/NAME.json"
    rows = [row for entry in board.entries.values() for row in entry.rows.values()]
    if not any(row.op_ms and not row.on_host for row in rows):
        yield f"op times and all that follows from them, as this device has no clock; on a GPU: {bench}`"
        return
    if "copy_gbps" not in board.ceilings:
        yield f"the roofline's ceilings and every share of it: {bench}` on this device"
    if not peers_table(board).rows and of_course:
        yield "a library's op times: `python benchmarks/peers.py --out benchmarks/results/NAME.json`"
    if of_course:
        yield from _missing_of_course(board, bench, any(row.streams for row in rows))


def _missing_of_course(board: Board, bench: str, has_streams: bool) -> Iterator[str]:
    there = course.measured(board)
    absent = [variant for variant in course.steps(board) if variant not in there]
    at = course_at(board.operation.name)
    if absent:
        yield f"the course project's table: {bench} --batch {at} --impl {' '.join(absent)}`"
    if not has_streams:
        yield f"the streams timeline: {bench} --impl m3/streams`"
    if not board.sweeps:
        yield f"the sweep's heat map: {bench} --impl m3/sweep --sweep`"
