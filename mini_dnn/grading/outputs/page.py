"""The student's result as a page of Markdown that also reads well as plain text."""

from __future__ import annotations

from collections.abc import Iterable

from mini_dnn.grading.grades import FAILED, PASSED, SKIPPED
from mini_dnn.grading.outputs.text import code_block, code_span
from mini_dnn.grading.outputs.view import Item, View


def page(view: View, alias: str = "") -> str:
    """Write the page: what was earned, what failed, and the message of each check.

    Parameters
    ----------
    alias
        The name of the submission on the leaderboard, if it differs from its own.
    """
    parts = [f"# Result of {code_span(view.submission)}\n", _headline(view)]
    if view.refused:
        parts.append(f"## No credit\n\n{code_block(view.refused)}")
    parts.append(_table(view.items))
    said = [item for item in view.items if item.message]
    parts += _section("What failed", (item for item in said if item.status == FAILED))
    parts += _section("Checks that did not run", (item for item in said if item.status == SKIPPED))
    parts += _section("What passed", (item for item in said if item.status == PASSED))
    if alias:
        parts.append(f"The leaderboard calls you {code_span(alias)}.\n")
    return "\n".join(parts)


def _headline(view: View) -> str:
    lines = [f"**{view.points:g} of {view.max_points:g} points**, rubric {code_span(view.rubric)}"]
    if view.device:
        lines.append(f"on {code_span(view.device)}")
    if view.op_ms is not None:
        lines.append(f"op time {view.op_ms:.4g} ms")
    return ", ".join(lines) + ".\n"


def _table(items: Iterable[Item]) -> str:
    rows = ["| check | result | points |", "| --- | --- | ---: |"]
    rows += [f"| {code_span(item.name)} | {item.status} | {_earned(item)} |" for item in items]
    return "\n".join(rows) + "\n"


def _earned(item: Item) -> str:
    if not item.points and not item.max_points:
        return "–"
    extra = max(0.0, item.points - item.max_points)
    parts = [f"{item.points - extra:g} of {item.max_points:g}"] if item.max_points else []
    return ", ".join([*parts, *([f"{extra:g} extra"] if extra else [])])


def _section(title: str, items: Iterable[Item]) -> list[str]:
    found = [f"### {code_span(item.name)}\n\n{code_block(item.message)}" for item in items]
    return [f"## {title}\n", *found] if found else []
