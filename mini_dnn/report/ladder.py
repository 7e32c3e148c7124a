"""The ladder of an operation: the rungs from its first kernel to its fastest one.

A rung improves on the one before it. The file ``ladder.toml`` next to the lesson records what limited each
rung::

    op = "gemm"
    problem = "fp16-4096"        # the course problem that the picture shows; without it, the sum of all
    rivals = ["gemm/cublas"]     # variants that call a library

    [limits]                     # by variant; the last variant is the top of the ladder
    "gemm/v0_naive" = "load units: one load of a warp touches 32 cache lines"

Without this file, the ladder leads to the fastest variant, and the limits are empty.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from mini_dnn.paths import ROOT
from mini_dnn.report.board import Board, Entry
from mini_dnn.report.rows import title
from mini_dnn.report.stale import official, present

FILE = "ladder.toml"
PLACES = ("milestones", "ladders/*", "layers/*", "networks/*")
MOST_NAMED = 3  # problems that a sentence names at most


@dataclass(frozen=True)
class Notes:
    """The content of the ``ladder.toml`` of an operation."""

    problem: str = ""
    rivals: tuple[str, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rung:
    """One step of the ladder. ``entry`` is None if it was not measured."""

    number: int
    variant: str
    idea: str
    limit: str
    entry: Entry | None


@dataclass(frozen=True)
class Ladder:
    """The rungs, the problems over which their times are summed, and the rival."""

    board: Board
    rungs: Sequence[Rung]
    problems: Sequence[str]

    @property
    def measured(self) -> list[Rung]:
        """The rungs that have a time."""
        return [rung for rung in self.rungs if self.op_ms(rung) is not None]

    def op_ms(self, rung: Rung) -> float | None:
        """The sum of a rung's op times over all problems of the ladder."""
        return rung.entry.sum_of(self.problems) if rung.entry else None

    def gain(self, rung: Rung) -> float | None:
        """How many times as fast as the rung before it a rung is."""
        before = next((one for one in self.rungs if one.number == rung.number - 1), None)
        mine, theirs = self.op_ms(rung), self.op_ms(before) if before else None
        return theirs / mine if mine and theirs else None

    @property
    def place(self) -> str:
        """The problems in words."""
        problems, course = list(self.problems), title(self.board.main)
        names = ", ".join(f"`{name}`" for name in problems[:-1])
        names += " and " * (len(problems) > 1) + f"`{problems[-1]}`"
        return (
            f"{names} at {course}" if len(problems) <= MOST_NAMED else f"{len(problems)} problems at {course}"
        )

    def roof_ms(self, entry: Entry) -> float | None:
        """The least time that the roofline allows an entry, or None if a ceiling is not known."""
        found = [(entry.op_ms(p), self.board.roof(entry.rows[p])) for p in self.problems if p in entry.rows]
        known = [ms * roof.fraction for ms, roof in found if ms and roof and not roof.missing]
        return sum(known) if found and len(known) == len(found) else None


@cache
def notes() -> Mapping[str, Notes]:
    """The content of all ``ladder.toml`` files, by operation."""
    found = {}
    for file in sorted(file for place in PLACES for file in ROOT.glob(f"{place}/{FILE}")):
        content = tomllib.loads(file.read_text(encoding="utf-8"))
        found[content["op"]] = Notes(
            content.get("problem", ""), tuple(content.get("rivals", ())), content.get("limits", {})
        )
    return found


def ladder_of(board: Board) -> Ladder | None:
    """The ladder of a board at the problems of its main table, or None if no rung was measured."""
    said = notes().get(board.operation.name, Notes())
    entries = {entry.variant: entry for entry in board.at(board.main) if _timed(entry)}
    names = _chain(board, _top(said, entries))
    if not set(names) & set(entries):
        return None
    rungs = [
        Rung(at, name, _idea(board, name), said.limits.get(name, ""), entries.get(name))
        for at, name in enumerate(names, 1)
    ]
    shared = _shared(board, [rung.entry for rung in rungs if rung.entry])
    problems = [said.problem] if said.problem in shared else shared
    found = Ladder(board, rungs, problems)
    return found if found.measured else None


def _timed(entry: Entry) -> bool:
    return not entry.any_row.on_host and any(row.op_ms for row in entry.rows.values())


def _top(said: Notes, entries: Mapping[str, Entry]) -> str:
    """The last rung: the last one that the file names, or else the fastest variant."""
    if said.limits:
        return list(said.limits)[-1]
    sums = {name: sum(row.op_ms or 0 for row in entry.rows.values()) for name, entry in entries.items()}
    return min(sums, key=sums.__getitem__, default="")


def _chain(board: Board, top: str) -> list[str]:
    """A variant and its ancestors, starting with the operation's first kernel."""
    found: list[str] = []
    name: str | None = top
    while name and name not in found:
        variant = board.variants.get(name) or present(name)
        if variant is None or variant.op != board.operation.name or variant.host:
            break
        found.insert(0, name)
        name = variant.parent and official(variant.parent)
    return found


def _idea(board: Board, name: str) -> str:
    variant = board.variants.get(name) or present(name)
    return variant.idea if variant else ""


def _shared(board: Board, entries: Sequence[Entry]) -> list[str]:
    """The problems that all rungs have in common, or else those that most rungs have."""
    problems = list(board.problems(board.main))
    by_all = [name for name in problems if all(entry.op_ms(name) is not None for entry in entries)]
    if by_all or not problems:
        return by_all
    return [max(problems, key=lambda name: sum(entry.op_ms(name) is not None for entry in entries))]
