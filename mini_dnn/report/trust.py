"""What a reader must know about the figures: doubts, where and how they were measured, what is missing."""

from __future__ import annotations

from collections.abc import Iterator

from mini_dnn.report import course
from mini_dnn.report.board import Board, throttling
from mini_dnn.report.document import Block, Folded, Heading, Table, Text
from mini_dnn.report.load import Results
from mini_dnn.report.rivals import peers_table
from mini_dnn.report.rows import course_at
from mini_dnn.report.tables import method_text, number, places_table

TOO_FAST = 1.02  # multiple of the roofline that measurement errors can explain; a faster time cannot be right
CEILINGS = (
    "Ceilings of the device: copies in GB/s are measured (device to device, from and to pinned host memory). "
    "Arithmetic in TFLOP/s is computed, not measured: multiprocessors times FLOP per clock times the boost "
    "clock, which a GPU may not sustain while all its tensor cores work. Shares of the tf32 and fp16 "
    "ceilings are therefore too small rather than too large."
)
HOW = (
    "Op time: device events around the kernels of one op; on the CPU, wall-clock time. Clocks, °C and W were "
    "read before the run. The lowest SM clock and throttling were recorded during each row, or after it in "
    "files of schema 1. Changed files are unknown if the measurement was made without the git history; each "
    "row still has hashes of its code."
)
NOT_VERIFIED = (
    "Results files have a checksum of what was measured, and a file that was changed since is refused. The "
    "following files are older and have no checksum, so a change of their figures would not be detected: "
)


def doubts(board: Board) -> Iterator[str]:
    """Circumstances that make the figures wrong or may do so."""
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
        yield f"op times were not stable when they were measured: {', '.join(restless)}; measure again"
    most = max(row.batch for row in rows)
    largest = [(row, board.roof(row)) for row in rows if row.batch == most]
    fast = [f"`{row.variant}` ({row.problem})" for row, roof in largest if roof and roof.fraction > TOO_FAST]
    if fast:  # only the largest batch: some bytes of small batches stay in the L2 cache
        yield f"faster than the ceilings allow: {', '.join(fast)}; check the ceilings and the kernel"


def where(board: Board) -> list[Block]:
    """Where, when and how the figures were measured."""
    methods = dict.fromkeys(method_text(record.method) for record in board.records)
    blocks: list[Block] = [places_table(board), Text(HOW), Text("Method: " + "; or: ".join(methods) + ".")]
    if board.ceilings:
        rows = [
            [f"`{name}`", "computed" if name.endswith("_tflops") else "measured", number(value)]
            for name, value in board.ceilings.items()
        ]
        blocks += [Text(CEILINGS), Table(["ceiling", "how", "value"], rows, text_columns=2)]
    return [Heading(2, "Where it was measured"), Folded("Files, clocks, method and ceilings", blocks)]


def unverified(results: Results) -> list[Block]:
    """The files that have no checksum."""
    names = [f"`{file.name}`" for file in results.unverified]
    return [Heading(2, "What is not verified"), Text(NOT_VERIFIED + ", ".join(names) + ".")] if names else []


def missing(board: Board) -> Iterator[str]:
    """Parts of the page that were not measured, and the commands that measure them."""
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
