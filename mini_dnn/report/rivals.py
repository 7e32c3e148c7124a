"""Libraries on the same device, fastest first, in whichever setting they are fastest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from mini_dnn.report.board import Board
from mini_dnn.report.document import NOT_THERE, Block, Heading, Table, Text
from mini_dnn.report.ladder import Ladder, ladder_of, notes
from mini_dnn.report.rows import course_at, table_of, title
from mini_dnn.report.tables import number, op_columns, times

ABOUT = (
    "The fastest library comes first, in its fastest precision and order of axes, even if this is an "
    "advantage."
)
HALVES = "With fp16, a library also stores fp16 in memory: half the bytes of a variant for fp32."
VERSIONS = "{programs}, on the same GPU with a cold L2 cache, from `{file}`."


@dataclass(frozen=True)
class Rival:
    """A library in one setting, or a variant that calls a library."""

    words: tuple[str, str, str]  # name, precision, order of the axes
    op_ms: Mapping[str, float]  # by problem

    def sum_of(self, problems: Sequence[str]) -> float | None:
        """Return the sum of the op times of these problems, or None if one is missing."""
        known = [self.op_ms.get(problem) for problem in problems]
        return None if None in known or not known else sum(ms for ms in known if ms is not None)

    @property
    def name(self) -> str:
        """The library's name and its setting."""
        library, *setting = self.words
        known = ", ".join(word for word in setting if word != NOT_THERE)
        return f"{library} ({known})" if known else library


def rivals_of(board: Board, problems: Sequence[str]) -> list[Rival]:
    """Return all libraries, fastest first. Libraries that lack one of the problems come last."""
    own = course_at(board.operation.name)
    of_peer: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in (peer.row for peer in board.peers):
        if table_of(row.op, row.problem, row.batch) == own:
            of_peer.setdefault((row.peer, row.precision, row.order), {})[row.problem] = row.op_ms
    found = [Rival(words, op_ms) for words, op_ms in of_peer.items()] + list(_variants(board))

    def rank(rival: Rival) -> tuple[bool, float]:
        sum_ms = rival.sum_of(problems)
        return sum_ms is None, sum_ms or sum(rival.op_ms.values())

    return sorted(found, key=rank)


def _variants(board: Board) -> Iterator[Rival]:
    """The variants that call a library."""
    said = notes().get(board.operation.name)
    for name in said.rivals if said else ():
        entry = board.entries.get((name, course_at(board.operation.name)))
        if entry:
            op_ms = {problem: row.op_ms for problem, row in entry.rows.items() if row.op_ms}
            yield Rival((f"`{name}`", NOT_THERE, NOT_THERE), op_ms)


def problems_of(board: Board) -> list[str]:
    """The problems at which libraries are compared: those of the ladder, or else all that libraries have."""
    found = ladder_of(board)
    of_ladder = list(found.problems) if found else []
    every = {problem for rival in rivals_of(board, of_ladder) for problem in rival.op_ms}
    return [name for name in of_ladder or board.operation.course if name in every]


def fastest(ladder: Ladder) -> Rival | None:
    """Return the library that is fastest at the problems of a ladder."""
    found = [one for one in rivals_of(ladder.board, ladder.problems) if one.sum_of(ladder.problems)]
    return found[0] if found else None


def peers_table(board: Board) -> Table:
    """Libraries on the same device at the problems of the ladder, compared with the final kernel."""
    problems = problems_of(board)
    ladder = ladder_of(board)
    final = ladder.rungs[-1].variant if ladder else board.final
    entry = board.entries.get((final, course_at(board.operation.name)))
    final_ms = entry.sum_of(problems) if entry else None
    rows = []
    for rival in rivals_of(board, problems):
        sum_ms = rival.sum_of(problems)
        known = [rival.op_ms.get(problem) for problem in problems]
        cells = [*known, sum_ms] if len(problems) > 1 else known
        if any(cells):
            over = [times(sum_ms / final_ms if sum_ms else None)] if final_ms else []
            rows.append([*rival.words, *map(number, cells), *over])
    columns = ["library", "precision", "order", *op_columns(problems)]
    over_it = [f"`{final}` over it"] if final_ms else []
    return Table([*columns, *over_it], rows, text_columns=3, bar=len(columns) - 1)


def rivals_blocks(board: Board) -> list[Block]:
    """The table below its heading, or nothing if no library was measured."""
    table = peers_table(board)
    if not table.rows:
        return []
    problems = " and ".join(f"`{name}`" for name in problems_of(board))
    text = f"{problems} at {title(course_at(board.operation.name))}. {ABOUT}"
    text += f" {HALVES}" if any(peer.row.precision == "fp16" for peer in board.peers) else ""
    files: dict[str, dict[str, None]] = {}
    for peer in board.peers:
        files.setdefault(peer.file.name, {})[peer.versions] = None
    where = [VERSIONS.format(programs=", ".join(found), file=file) for file, found in files.items()]
    return [Heading(2, "Compared with libraries"), Text(" ".join([text, *where])), table]
