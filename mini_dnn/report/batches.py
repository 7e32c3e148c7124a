"""Measurements of a whole network at several batch sizes, as tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from mini_dnn.measuring.batches import Batches, BatchesRow
from mini_dnn.report.board import Board
from mini_dnn.report.document import NOT_THERE, Table
from mini_dnn.report.stale import NOT_SAID, stale_lines
from mini_dnn.report.tables import number, percent, times

Rows = Mapping[str, Mapping[int, BatchesRow]]  # by program and batch size


@dataclass(frozen=True)
class ByBatch:
    """What was measured of one network on one device.

    Parameters
    ----------
    device, problem
        The GPU, and the sizes of the network.
    ours
        The variants, in the order of the ladder. Runs that include libraries are used only if there is no
        other run.
    host, libraries
        Programs on the CPU, and libraries on the same GPU.
    runs
        The runs that include libraries, each with its own rows of our variants.
    files
        All files that contributed rows.
    """

    device: str
    problem: str
    ours: Rows
    host: Rows
    libraries: Rows
    runs: Sequence[Batches]
    files: Sequence[Batches]

    @property
    def batches(self) -> list[int]:
        """All batch sizes of the variants, smallest first."""
        return sorted({batch for of_program in self.ours.values() for batch in of_program})

    @property
    def references(self) -> list[tuple[str, Mapping[int, BatchesRow]]]:
        """The references for speed-ups, with names: the first rung, and the first program on the CPU."""
        first = [(f"`{short(name)}`", of) for name, of in self.ours.items()][:1]
        return [*first, *(("the CPU", of) for of in list(self.host.values())[:1])]

    def rows(self) -> Iterator[BatchesRow]:
        """All rows of the files."""
        return (row for one in self.files for row in _of(one, self.problem))


def short(program: str) -> str:
    """The last part of a variant's name."""
    return program.rpartition("/")[2]


def by_batch(board: Board, found: Iterable[Batches]) -> list[ByBatch]:
    """Return the networks of a board's operation that were measured on the board's device."""
    of_op = [one for one in found if one.content.op == board.operation.name]
    here = [one for one in of_op if one.content.device.name == board.device]
    alone = [one for one in here if not one.content.has_libraries]
    runs = [one for one in here if one.content.has_libraries]
    order = list(dict.fromkeys(variant for variant, _ in board.entries))
    networks = []
    for problem in dict.fromkeys(row.problem for one in here for row in one.content.rows):
        ours = _rows([*runs, *alone], problem, "ours")
        host = _rows(of_op, problem, "host")
        on_host = [one for one in of_op if any(row.kind == "host" for row in _of(one, problem))]
        networks.append(
            ByBatch(
                device=board.device,
                problem=problem,
                ours={name: ours[name] for name in sorted(ours, key=lambda name: _place(order, name))},
                host=host,
                libraries=_rows(runs, problem, "library"),
                runs=[one for one in runs if any(_of(one, problem))],
                files=[one for one in of_op if one in on_host or (one in here and any(_of(one, problem)))],
            )
        )
    return [network for network in networks if network.ours]


def of_folder(boards: Iterable[Board], found: Sequence[Batches], folder: str) -> ByBatch | None:
    """Return the network whose variants are in ``folder``, or None if it was not measured."""
    networks = (network for board in boards for network in by_batch(board, found))
    return next((one for one in networks if any(name.startswith(f"{folder}/") for name in one.ours)), None)


def _place(order: Sequence[str], name: str) -> tuple[int, str]:
    return order.index(name) if name in order else len(order), name


def _of(one: Batches, problem: str) -> Iterator[BatchesRow]:
    return (row for row in one.content.rows if row.problem == problem)


def _rows(files: Iterable[Batches], problem: str, kind: str) -> dict[str, dict[int, BatchesRow]]:
    """Return the rows of one kind without failed accuracy checks. Of repeated rows, the last one counts."""
    found: dict[str, dict[int, BatchesRow]] = {}
    for one in files:
        for row in _of(one, problem):
            if row.kind == kind and row.agrees is not False:
                found.setdefault(row.program, {})[row.batch] = row
    return {program: dict(sorted(rows.items())) for program, rows in found.items()}


def doubts(network: ByBatch) -> Iterator[str]:
    """Warnings that a reader must see before relying on the figures."""
    for one in network.files:
        if one.content.dirty:
            yield f"`{one.file.name}` was measured with files that differ from its commit"
    silent = [
        f"`{one.file.name}`"
        for one in network.files
        if any(row.kind == "ours" and row.code_hash is None for row in _of(one, network.problem))
    ]
    if silent:
        yield f"{', '.join(silent)}: {NOT_SAID}"
    rows = list(network.rows())
    yield from stale_lines((row.program, row.code_hash) for row in rows)
    if wrong := dict.fromkeys(f"`{r.program}`, batch {r.batch:,}" for r in rows if r.agrees is False):
        yield f"omitted because their scores differ from float64: {'; '.join(wrong)}"
    if unknown := dict.fromkeys(f"`{row.program}`" for row in rows if row.agrees is None):
        yield f"scores were not compared with float64: {', '.join(unknown)}"


def about(network: ByBatch) -> str:
    """Describe which figures the tables have."""
    sources = []
    for one in network.files:
        commit = (one.content.commit or "unknown")[:10]
        on_host = any(row.kind == "host" for row in _of(one, network.problem))
        place = f", on the CPU, {one.content.device.cpu}" * on_host
        sources.append(f"`{one.file.name}` (commit {commit}{place})")
    sizes = f"sizes, as in `--shapes` but without batch and type: `{network.problem}`"
    return f"{network.device}; {sizes}. From {', '.join(sources)}."


def _over(row: BatchesRow | None, other: BatchesRow | None) -> str:
    return times(other.median_ms / row.median_ms if row and other and other is not row else None)


def _heads(batches: Sequence[int], unit: str = "ms") -> list[str]:
    return [f"batch {batch:,}, {unit}" for batch in batches]


def times_table(network: ByBatch) -> Table:
    """Milliseconds for each batch size, and speed-ups at the smallest and the largest one."""
    batches = network.batches
    ends = list(dict.fromkeys([batches[0], batches[-1]]))
    rows = [
        [
            f"`{program}`",
            *(number(of[batch].median_ms if batch in of else None) for batch in batches),
            *(_over(of.get(batch), other.get(batch)) for _, other in network.references for batch in ends),
        ]
        for program, of in {**network.ours, **network.host}.items()
    ]
    over = [f"over {name}, batch {batch:,}" for name, _ in network.references for batch in ends]
    return Table(["program", *_heads(batches), *over], rows)


def rates_table(network: ByBatch) -> Table:
    """Images per second for each batch size."""
    batches = network.batches
    rows = [
        [f"`{program}`", *(f"{of[b].images_per_s:,.0f}" if b in of else NOT_THERE for b in batches)]
        for program, of in {**network.ours, **network.host}.items()
    ]
    return Table(["program", *_heads(batches, "images/s")], rows)


def work_table(network: ByBatch, batches: Sequence[int]) -> Table:
    """Launches and copies of each variant at the given batch sizes."""
    rows = [
        [
            f"`{program}`",
            f"{batch:,}",
            number(row.median_ms),
            *(_over(row, other.get(batch)) for _, other in network.references),
            *map(_count, (row.launches, row.round_trips)),
            _megabytes(row.copied_bytes),
            number(row.with_copies_ms),
            percent(row.copies_share),
        ]
        for program, batch, row in _each(network.ours, batches)
        if row.launches is not None
    ]
    over = [f"over {name}" for name, _ in network.references]
    columns = ["program", "batch", "ms", *over, "launches", "round trips", "MB of round trips"]
    return Table([*columns, "ms with copies", "share of copies"], rows)


def memory_table(network: ByBatch, batches: Sequence[int]) -> Table:
    """Megabytes for each role of memory at the given batch sizes."""
    names = roles(network)
    rows = [
        [
            f"`{program}`",
            f"{batch:,}",
            *(_megabytes(row.memory.get(role)) for role in names),
            _megabytes(row.taken_bytes),
        ]
        for program, batch, row in _each(network.ours, batches)
        if row.memory is not None
    ]
    columns = ["program", "batch", *(f"{role}, MB" for role in names), "taken from the GPU, MB"]
    return Table(columns, rows)


def libraries_table(network: ByBatch) -> Table:
    """Libraries, and the variants that were timed alternately with them, for each run."""
    batches = sorted({row.batch for one in network.runs for row in _of(one, network.problem)})
    rows = []
    for one in network.runs:
        ours = list(_rows([one], network.problem, "ours").values())
        best = {
            b: min((of[b] for of in ours if b in of), key=lambda r: r.median_ms, default=None)
            for b in batches
        }
        for kind in ("ours", "library"):
            for program, of in _rows([one], network.problem, kind).items():
                ms = [number(of[batch].median_ms if batch in of else None) for batch in batches]
                over = [_under(of.get(batch), best[batch]) for batch in batches]
                rows.append([f"`{program}`" if kind == "ours" else program, f"`{one.file.stem}`", *ms, *over])
    over = [f"batch {batch:,}, over ours" for batch in batches]
    return Table(["program", "run", *_heads(batches), *over], rows, text_columns=2)


def _under(row: BatchesRow | None, best: BatchesRow | None) -> str:
    """Format the time of a row as a multiple of the time of our best variant."""
    return times(row.median_ms / best.median_ms if row and best and row is not best else None)


def _each(rows: Rows, batches: Sequence[int]) -> Iterator[tuple[str, int, BatchesRow]]:
    return ((name, batch, of[batch]) for name, of in rows.items() for batch in batches if batch in of)


def roles(network: ByBatch) -> list[str]:
    """The roles of memory, in the order in which the files have them."""
    return list(
        dict.fromkeys(role for *_, row in _each(network.ours, network.batches) for role in row.memory or ())
    )


def _count(value: int | None) -> str:
    return NOT_THERE if value is None else f"{value:,}"


def _megabytes(value: int | None) -> str:
    return NOT_THERE if value is None else f"{value / 1e6:,.1f}"
