"""Results as the report needs them: sums, speed-ups, rates, the roofline, and which rows are still valid."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mini_dnn import ops
from mini_dnn.errors import VariantError
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.records import Skipped, Sweep
from mini_dnn.measuring.roof import Roof, roof
from mini_dnn.ops import Operation
from mini_dnn.report.load import Results
from mini_dnn.report.peers import Peer
from mini_dnn.report.rows import COURSE, SIZES, At, Record, Row, course_at
from mini_dnn.report.serving import Serving
from mini_dnn.report.stale import official, present, why_rows_stale
from mini_dnn.variant import Variant, climbed, find, mine, names

Key = tuple[str, str, int]  # variant, problem and batch size
THROTTLED = {  # NVML's nvmlClocksThrottleReason bits that slow a kernel down
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "software thermal limit",
    0x40: "hardware thermal limit",
    0x80: "power brake",
}


@dataclass(frozen=True)
class Entry:
    """One variant in one table."""

    variant: str
    at: At
    rows: Mapping[str, Row]  # by name of the problem
    problems: Sequence[str]  # all problems of the table, measured or not
    refused: frozenset[str]  # the problems that the variant does not accept
    stale: str  # why the figures are no longer those of the sources; empty if they are

    @property
    def any_row(self) -> Row:
        """One of the rows, for the fields that all of them share."""
        return next(iter(self.rows.values()))

    def op_ms(self, problem: str) -> float | None:
        """The op time of a problem, or None if it was not measured."""
        return self.rows[problem].op_ms if problem in self.rows else None

    @property
    def overlaps(self) -> bool:
        """Whether the variant overlaps its own copies.

        Such a gain shows in the layer time, not in the op time.
        """
        return any(row.streams for row in self.rows.values())

    @property
    def sum_ms(self) -> float | None:
        """The sum of the op times of all problems, or None if one is missing."""
        return self.sum_of(self.problems)

    def sum_of(self, problems: Collection[str]) -> float | None:
        """Return the sum of the op times of these problems, or None if one is missing."""
        times = [self.op_ms(problem) for problem in problems]
        return None if None in times or not times else sum(time for time in times if time is not None)


@dataclass(frozen=True)
class Board:
    """All results of one operation on one device."""

    device: str
    operation: Operation
    records: Sequence[Record]
    entries: Mapping[tuple[str, At], Entry]  # by variant and table, in the order of the course
    runs: Mapping[Key, Sequence[Row]]  # all measured rows of the code that the entries show
    ceilings: Mapping[str, float]
    variants: Mapping[str, Variant | None]  # the variants in their present form; None if one no longer exists
    sweeps: Sequence[Sweep]
    skipped: Sequence[Skipped]
    peers: Sequence[Peer]
    servings: Sequence[Serving]  # all of the device, of any operation

    @property
    def tables(self) -> list[At]:
        """The tables: one for each batch size, smallest first, then the course's sizes and other sizes."""
        found = {at for _, at in self.entries}
        return [
            *sorted(at for at in found if isinstance(at, int)),
            *(a for a in (COURSE, SIZES) if a in found),
        ]

    @property
    def main(self) -> At:
        """The table that the plots show: the course's problems, or else the largest batch size."""
        own = course_at(self.operation.name)
        if own in self.tables:
            return own
        batches = [at for at in self.tables if isinstance(at, int)]
        return batches[-1] if batches else self.tables[0]

    def at(self, at: At) -> list[Entry]:
        """Return all variants of a table."""
        return [entry for (_, of_entry), entry in self.entries.items() if of_entry == at]

    def problems(self, at: At) -> Sequence[str]:
        """Return all problems of a table."""
        entries = self.at(at)
        return entries[0].problems if entries else ()

    @property
    def in_network(self) -> bool:
        """Whether some rows were measured in the network, so that its accuracy is known."""
        return any(row.accuracy is not None for entry in self.entries.values() for row in entry.rows.values())

    @property
    def course(self) -> list[Entry]:
        """All variants, with their results at the course's problems."""
        return self.at(course_at(self.operation.name))

    @property
    def final(self) -> str:
        """The best variant of the operation."""
        return official(self.operation.default)

    @property
    def baseline(self) -> str:
        """The variant that the others are compared with."""
        return official(self.operation.baseline)

    def speed_up(self, entry: Entry, over: str | None) -> float | None:
        """Return how many times as fast as the variant ``over`` an entry of the same table is.

        The speed-up compares the sums of the op times of those problems that both variants accept.
        """
        other = self.entries.get((over, entry.at)) if over else None
        if other is None:
            return None
        both = [name for name in entry.problems if name not in entry.refused | other.refused]
        mine, theirs = entry.sum_of(both), other.sum_of(both)
        return None if mine is None or theirs is None else theirs / mine

    def compute_type(self, row: Row) -> str:
        """Return the type in which a row's products are computed, one of `COMPUTE_TYPES`."""
        variant = self.variants.get(row.variant)
        return variant.computes_in(row.sizes) if variant and variant.compute_type else row.precision

    def roof(self, row: Row) -> Roof | None:
        """Return how close an op comes to the roofline.

        The result is None on the CPU, and if there is no time or no ceiling.
        """
        if row.op_ms is None or row.on_host:
            return None
        return roof(row.op_ms, row.flops, row.min_bytes, self.compute_type(row), self.ceilings)


def gbps(row: Row) -> float | None:
    """Return the rate in GB/s if the op reads its input once and writes its output once."""
    return None if row.op_ms is None else row.min_bytes / row.op_ms / 1e6


def tflops(row: Row) -> float | None:
    """Return the TFLOP/s of the operation's arithmetic, or None if its FLOPs are not counted."""
    return row.flops / row.op_ms / 1e9 if row.op_ms and row.flops else None


def throttling(row: Row) -> list[str]:
    """Return the reasons for throttling while the row was measured (in old files: right after it)."""
    bits = int(row.state.throttle_reasons, 16) if row.state else 0
    return [name for bit, name in THROTTLED.items() if bits & bit]


def boards(results: Results) -> list[Board]:
    """Return a board for each operation on each device.

    Devices with op times of the course's problems for most operations come first, and among these the ones
    with the latest results. For each device, the default operation comes first.
    """
    keys = dict.fromkeys((row.record.device.name, row.op) for row in results.rows)
    found = [_board(device, ops.find(op), results) for device, op in keys]
    by_device: dict[str, list[Board]] = {}
    for board in sorted(found, key=lambda board: ops.names().index(board.operation.name)):
        by_device.setdefault(board.device, []).append(board)

    def is_timed(board: Board) -> bool:
        return any(entry.sum_ms is not None and not entry.any_row.on_host for entry in board.course)

    def rank(of_device: list[Board]) -> tuple[int, str]:
        latest = max(record.started for board in of_device for record in board.records)
        return sum(map(is_timed, of_device)), latest

    return [board for of_device in sorted(by_device.values(), key=rank, reverse=True) for board in of_device]


def shown(found: Iterable[Board]) -> list[Board]:
    """Return the boards that the READMEs show: for each operation, that of the first device that has it."""
    first: dict[str, Board] = {}
    for board in found:
        first.setdefault(board.operation.name, board)
    return list(first.values())


def _board(device: str, operation: Operation, results: Results) -> Board:
    def here(row: Row) -> bool:
        return row.record.device.name == device and row.op == operation.name

    rows = [row for row in results.rows if here(row)]
    records = [record for record in results.records if record.device.name == device]
    skipped = [skip for record in records for skip in record.skipped if skip.op == operation.name]
    variants = {name: present(name) for name in dict.fromkeys(row.variant for row in rows)}
    code = {_key(row): row.code_hash for row in rows}
    runs: dict[Key, list[Row]] = {}
    for row in results.runs:
        if here(row) and row.code_hash == code[_key(row)]:
            runs.setdefault(_key(row), []).append(row)
    counted = {id(row.record) for of_key in runs.values() for row in of_key}
    sweeps = [sweep for record in records for sweep in record.sweeps if sweep.op == operation.name]
    return Board(
        device=device,
        operation=operation,
        records=[record for record in records if id(record) in counted],
        entries=_entries(operation, rows, variants, skipped),
        runs=runs,
        ceilings={name: value for record in records for name, value in record.memory.items()},
        variants=variants,
        sweeps=list({(s.variant, s.problem, s.batch): s for s in sweeps}.values()),
        skipped=list({(skip.variant, skip.problem): skip for skip in skipped}.values()),
        peers=[
            peer
            for peer in results.peers
            if device.startswith(f"{peer.device} (") and peer.row.op == operation.name  # its architecture
        ],
        servings=[serving for serving in results.servings if serving.content.device.name == device],
    )


def _entries(
    operation: Operation,
    rows: Sequence[Row],
    variants: Mapping[str, Variant | None],
    skipped: Sequence[Skipped],
) -> dict[tuple[str, At], Entry]:
    of_entry: dict[tuple[str, At], dict[str, Row]] = {}
    problems: dict[At, dict[str, None]] = {}
    for row in rows:
        of_entry.setdefault((row.variant, row.at), {})[row.problem] = row
        problems.setdefault(row.at, {})[row.problem] = None
    place = {name: at for at, name in enumerate(climbed({n: _parent(n) for n in (*names(), *mine())}))}
    hashes = {name: code_of(variant) if variant else None for name, variant in variants.items()}
    refused = {name: {skip.problem for skip in skipped if skip.variant == name} for name in variants}

    def order(key: tuple[str, At]) -> tuple[int, str, bool, Any]:
        name, at = key
        return place.get(name, len(place)), name, isinstance(at, str), at

    return {
        (name, at): Entry(
            variant=name,
            at=at,
            rows=of_entry[name, at],
            problems=sorted(problems[at], key=lambda problem: _rank(operation, problem)),
            refused=frozenset(refused[name] - set(of_entry[name, at])),
            stale=why_rows_stale(of_entry[name, at].values(), variants[name], hashes[name]),
        )
        for name, at in sorted(of_entry, key=order)
    }


def _parent(name: str) -> str | None:
    """Return the parent of a variant, or None if it has no parent or cannot be loaded."""
    try:
        return find(name).parent
    except VariantError:
        return None


def _rank(operation: Operation, problem: str) -> int:
    """The sort key of problems: those of the course in their order, then all others."""
    names = list(operation.course)
    return names.index(problem) if problem in names else len(names)


def _key(row: Row) -> Key:
    return row.variant, row.problem, row.batch
