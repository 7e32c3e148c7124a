"""A page for staff: the results of a class, and its most frequent mistakes."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Sequence

from mini_dnn.grading.grades import FAILED, PASSED, SKIPPED, Check, Grade
from mini_dnn.grading.outputs.text import code_span, one_line

BINS = 10  # bars of the distribution
BAR = 40  # characters of the longest bar
MOST_MISTAKES = 12
MISTAKE_CHARACTERS = 100
NUMBERS = re.compile(r"\d+(?:[.,]\d+)*(?:e[+-]?\d+)?")


def summary(grades: Sequence[Grade]) -> str:
    """Return a page of Markdown: points, their distribution, results per check, most frequent failures."""
    parts = ["# Class summary", ""]
    if not grades:
        return "\n".join([*parts, "Nothing was graded yet.", ""])
    points = [grade.points for grade in grades]
    most = max(grade.max_points for grade in grades)
    refused = sum(bool(grade.refused) for grade in grades)
    parts += [
        f"{len(grades)} submission{'s' * (len(grades) > 1)}: mean {statistics.fmean(points):.2f}, median "
        f"{statistics.median(points):.2f} of {most:g} points. Refused: {refused}; "
        "the column `refused` of `grades.csv` lists the reasons.",
        "",
        "## Points",
        "",
        *_distribution(points, most),
        "",
        "## Checks",
        "",
        *_checks(grades),
        "",
        "## Most frequent failures",
        "",
        *_mistakes(grades),
    ]
    return "\n".join(parts) + "\n"


def _distribution(points: Sequence[float], most: float) -> list[str]:
    """Draw a bar for each tenth of the points."""
    if most <= 0:
        return ["No check has points."]
    counts = Counter(min(int(BINS * max(value, 0.0) / most), BINS - 1) for value in points)
    longest = max(counts.values())
    lines = ["```text"]
    for at in range(BINS):
        low, high = at * most / BINS, (at + 1) * most / BINS
        bar = "#" * round(BAR * counts[at] / longest)
        lines.append(f"{low:7.2f} to {high:7.2f}  {counts[at]:4}  {bar}".rstrip())
    return [*lines, "```"]


def _checks(grades: Sequence[Grade]) -> list[str]:
    names = dict.fromkeys(check.name for grade in grades for check in grade.checks if check.max_points)
    lines = [
        "| check | passed | failed | not run | mean points | of |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in names:
        found = [
            (0.0 if grade.refused else check.points, check)
            for grade in grades
            for check in grade.checks
            if check.name == name
        ]
        states = Counter(check.status for _, check in found)
        cells = [states[PASSED], states[FAILED], states[SKIPPED]]
        mean = sum(earned for earned, _ in found) / len(grades)  # others have not reached the check
        worth = max(check.max_points for _, check in found)
        lines.append(f"| {code_span(name)} | {' | '.join(map(str, cells))} | {mean:.2f} | {worth:g} |")
    return lines


def _mistakes(grades: Sequence[Grade]) -> list[str]:
    """Group failures that differ only in numbers.

    Show how often each occurred, and one submission with it.
    """
    met: dict[tuple[str, str], list[str]] = {}
    for grade in grades:
        for check in grade.checks:
            if check.status == FAILED:
                met.setdefault((check.name, _kind(check)), []).append(grade.submission)
    if not met:
        return ["Nothing failed."]
    ranked = sorted(met.items(), key=lambda item: (-len(item[1]), item[0]))[:MOST_MISTAKES]
    lines = ["| count | check | message | example |", "| ---: | --- | --- | --- |"]
    for (name, kind), who in ranked:
        said = code_span(kind) if kind else ""
        lines.append(f"| {len(who)} | {code_span(name)} | {said} | {code_span(one_line(who[0]))} |")
    return lines


def _kind(check: Check) -> str:
    """A failed check's message without numbers: its hint if there is one, else its first lines."""
    text = check.staff if check.hidden and check.staff else check.message
    hints = [line for line in text.splitlines() if line.startswith("hint: ")]
    return NUMBERS.sub("…", one_line(hints[0] if hints else text, MISTAKE_CHARACTERS))
