"""The report: its tables and plots, what they mean, and what is missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from mini_dnn.paths import ROOT
from mini_dnn.report import course
from mini_dnn.report.batches_page import batches_blocks
from mini_dnn.report.board import Board, Entry, boards
from mini_dnn.report.document import Block, Folded, Heading, Items, Text, Warnings
from mini_dnn.report.figures import figures, op_times, roofline_blocks
from mini_dnn.report.folder import write_folder
from mini_dnn.report.headline import glance, ladder_blocks, not_measured, sentence
from mini_dnn.report.load import OLD_LAYER_TIMES, Results
from mini_dnn.report.overlap import about as about_overlap
from mini_dnn.report.overlap import overlap_table, verdict
from mini_dnn.report.pagedata import data_of, variants_of
from mini_dnn.report.repeats import repeats
from mini_dnn.report.rivals import rivals_blocks
from mini_dnn.report.rows import At, Row, title
from mini_dnn.report.savings_page import savings_blocks
from mini_dnn.report.serving_page import serving_blocks
from mini_dnn.report.tables import layers_table, ops_csv, rates_table, times_table
from mini_dnn.report.trust import doubts, missing, unverified, where
from mini_dnn.report.webpage import files

TITLE = "mini_dnn: op times"


LAYERS = (
    "A layer time is the wall-clock time of one call from the host: allocation, the copies of all inputs and "
    "outputs, and one op. It is measured once, with ordinary host memory whose pages are touched for the "
    "first time. Copies take nearly all of it, so even kernels that differ by a factor of ten differ little "
    "here. The last columns show the share of the op."
)
PINNED = (
    "{names} contains its own copies, and is measured differently: several times, with pinned host memory. "
    "Compare its layer times with the time of the copies at the pinned rates, not with the other rows."
)
SOURCES = "`run.py show NAME` prints a variant, and `run.py diff NAME` prints its changes to its parent."
TAKEN_APART = "Rates, errors, and how well each time is known"
OF_OLD_KIND = (
    "Layer times in {files} are of an older kind: they include the initialisation of all buffers with NaN, "
    "which layer times do not include since schema 2 of the results files."
)


def write_report(results: Results, out: Path, force: bool = False) -> list[Path]:
    """Write ``index.html``, ``report.md``, the plots and ``ops.csv`` into a folder and return their paths.

    Parameters
    ----------
    force
        Whether to replace files of these names even if the folder holds no report.

    Raises
    ------
    UsageError
        The folder cannot be written, or it has files of these names but no report.
    """
    found = boards(results)
    blocks = _blocks(found, results) + unverified(results)
    return write_folder(_files(blocks, found, out), out, TITLE, force)


def _files(blocks: Sequence[Block], found: Sequence[Board], out: Path) -> dict[str, bytes]:
    """The page, the Markdown with its pictures, and the CSV file, by file name."""
    variants = variants_of(found)
    to_root = os.path.relpath(ROOT, out.resolve()) if out.resolve().is_relative_to(ROOT) else ""
    links = {name: f"{to_root}/{of.source}" for name, of in variants.items()} if to_root else {}
    written = files(blocks, TITLE, data_of(found, variants, to_root), links)
    return {**written, "ops.csv": ops_csv(found).encode()}


def _blocks(found: Sequence[Board], results: Results) -> list[Block]:
    headings = _headings(found)
    blocks: list[Block] = [Heading(1, TITLE)]
    if text := sentence(found[0]):
        blocks.append(Text(text, lead=True))
    if len(found) > 1:
        blocks += [glance(headings), *not_measured(found, results.batches)]
    for at, (heading, board) in enumerate(headings.items(), 1):
        suffix = "" if at == 1 else f"-{at}"  # ends the names of the plots' files
        first = at == 1 or found[at - 2].device != board.device  # the first part of its device
        blocks += [Heading(1, heading), *_board(board, suffix, at == 1)]
        blocks += serving_blocks(board.servings, suffix) if first else []
        blocks += savings_blocks(board, results.savings, suffix)
        blocks += batches_blocks(board, results.batches, suffix)
        blocks += repeats(board)
        blocks += where(board)
        lacking = list(missing(board))
        blocks += [Heading(2, "What is missing"), Items(lacking)] if lacking else []
    return blocks


def _headings(found: Sequence[Board]) -> Mapping[str, Board]:
    """The boards by the headings of their parts, which name every device but the first."""
    return {
        board.operation.name
        + f" on {board.device}" * (board.device != found[0].device)
        + f": {board.operation.about}": board
        for board in found
    }


def _board(board: Board, suffix: str, is_first: bool) -> list[Block]:
    """All results of one operation on one device."""
    last = board.records[-1]
    text = sentence(board)
    blocks: list[Block] = [Text(text, lead=True)] if text and not is_first else []
    blocks.append(
        Text(f"Measured on {board.device}, last on {last.started[:10]}. The CPU is {last.device.cpu}.")
    )
    warnings = list(doubts(board))
    blocks += [Warnings(warnings)] if warnings else []
    blocks += ladder_blocks(board, suffix)
    blocks += roofline_blocks(board, suffix)
    blocks += rivals_blocks(board)
    blocks += _table(board, board.main, op_times(board, suffix))
    blocks += figures(board, suffix)
    if course.is_about(board) and (is_first or course.measured(board)):
        blocks += course.course_blocks(board)
    for at in board.tables:
        blocks += _table(board, at) if at != board.main else []
    return blocks


def _table(board: Board, at: At, first: Iterable[Block] = ()) -> list[Block]:
    """The results of all variants at the problems of one table."""
    entries = board.at(at)
    sizes = {name: row.sizes for entry in entries for name, row in entry.rows.items()}
    problems = "; ".join(f"{n} is `{name}`, {sizes[name]}" for n, name in enumerate(board.problems(at), 1))
    over = f" and over `{board.baseline}`" if board.baseline else ""
    sums = "of the sum, over the parent" if len(sizes) > 1 else "over the parent"
    bold = "; the fastest sum is in bold" if len(sizes) > 1 else "; the fastest is in bold"
    rows = [row for entry in entries for row in entry.rows.values()]
    name = f"{title(at)[0].upper()}{title(at)[1:]}"
    blocks: list[Block] = [
        Text(f"Problem {problems}. Speed-ups are {sums}{over}{bold}. {SOURCES * (at == board.main)}".strip()),
        times_table(board, at),
        *_refused(board, entries),
        *_layers(board, at),
        Folded(TAKEN_APART, [Text(_rates_text(board, rows)), rates_table(board, at)]),
    ]
    if at != board.main:
        return [Heading(2, name), Folded(f"The tables of {title(at)}", blocks)]
    return [Heading(2, name), *first, *blocks]


def _layers(board: Board, at: At) -> list[Block]:
    """Layer times, and what they include."""
    table, entries = layers_table(board, at), board.at(at)
    blocks: list[Block] = []
    if table.rows:
        overlapping = [f"`{entry.variant}`" for entry in entries if entry.overlaps]
        pinned = f" {PINNED.format(names=', '.join(overlapping))}" if overlapping else ""
        blocks += [Heading(3, f"Layer times, {title(at)}"), Text(LAYERS + pinned), *_notes(entries), table]
    if any(entry.overlaps for entry in entries):
        text = f"{about_overlap(board.operation.name)} {verdict(entries)}".strip()
        blocks += [Text(text)] if at == board.main else []
        blocks += [overlap_table(entries)]
    return blocks


def _refused(board: Board, entries: Sequence[Entry]) -> list[Block]:
    """The problems that variants do not accept."""
    reasons = {(skip.variant, skip.problem): skip.reason for skip in board.skipped}
    items = [
        f"`{entry.variant}` does not support `{problem}`: {reasons[entry.variant, problem]}"
        for entry in entries
        for problem in entry.problems
        if problem in entry.refused
    ]
    about = (
        "There is no sum if a problem is missing; speed-ups are for the problems that both variants support."
    )
    return [Text(about), Items(items)] if items else []


def _notes(entries: Sequence[Entry]) -> list[Block]:
    """Notes that readers of the layer times need for some of the variants."""
    rows = [row for entry in entries for row in entry.rows.values()]
    old = dict.fromkeys(f"`{row.record.file.name}`" for row in rows if row.record.schema == OLD_LAYER_TIMES)
    return [Text(OF_OLD_KIND.format(files=", ".join(old)))] if old else []


def _rates_text(board: Board, rows: Sequence[Row]) -> str:
    text = (
        "GB/s counts each input and output once, in its own type; TFLOP/s counts the operations of the "
        "definition. Nearer ceiling: the one that takes longer at the peak rates of the device, and would "
        "limit a perfect kernel. A kernel that reaches only a small share of its roofline is limited by "
        "something else, such as instructions, shared memory or latency; a profiler shows which. Max error "
        "is the largest absolute difference from float64."
    )
    if "copy_gbps" not in board.ceilings:
        return text + (
            " There is no share of the roofline, because the ceilings of this device were not measured."
        )
    roofs = [board.roof(row) for row in rows]
    lacking = sorted({roof.missing for roof in roofs if roof and roof.missing})
    if lacking:
        text += (
            f" The arithmetic ceiling of {', '.join(lacking)} is not known: the share refers to the "
            "memory ceiling only, and is a lower bound."
        )
    return text
