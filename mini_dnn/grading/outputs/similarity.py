"""Pages for the staff about submissions with similar code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mini_dnn.grading.outputs.staff import csv_of
from mini_dnn.grading.outputs.text import code_span, one_line
from mini_dnn.grading.similarity import LEAST_SHARE, Likeness, Place

COLUMNS = ("submission", "other", "shipped", "share", "share_of_other", "lines", "other_lines")
MOST_CHARACTERS = 4000  # of a cell with lines of code
MOST_PLACES = 6  # places shown for a pair; the CSV file has all

HEAD = f"""# Similar code

This list is a reason to look, and not a verdict: code from textbooks is similar, too. Read both files at
these lines before you speak to anybody. Names, numbers, layout and comments do not count. Code that the
students received, and code that more than half of the class has, do not count either. A pair is listed if at
least {LEAST_SHARE:.0%} of the code of one submission is also in the other one, or in the variant.
"""


def similarity(pairs: Sequence[Likeness]) -> str:
    """Return a page of Markdown: each pair, the share of similar code, and where it is."""
    if not pairs:
        return f"{HEAD}\nNo two submissions have similar code.\n"
    lines = ["| submission | share | is also in | share |", "| --- | ---: | --- | ---: |"]
    lines += [f"| {' | '.join(_cells(pair))} |" for pair in pairs]
    for pair in pairs:
        lines += ["", f"## {code_span(pair.one)} and {_other(pair)}", ""]
        lines += ["| lines | are also in | lines |", "| --- | --- | --- |"]
        lines += [_row(place) for place in pair.places[:MOST_PLACES]]
    return HEAD + "\n" + "\n".join(lines) + "\n"


def similarity_csv(pairs: Iterable[Likeness]) -> str:
    """Return a CSV file with one row per pair."""
    rows = (
        [
            one_line(pair.one),
            one_line(pair.other),
            "yes" if pair.shipped else "no",
            round(pair.share, 4),
            round(pair.other_share, 4),
            _listed(f"{place.file}:{_ranges(place.lines)}" for place in pair.places),
            _listed(f"{place.other_file}:{_ranges(place.other_lines)}" for place in pair.places),
        ]
        for pair in pairs
    )
    return csv_of(COLUMNS, rows)


def _listed(places: Iterable[str]) -> str:
    return one_line("; ".join(places), MOST_CHARACTERS)


def _cells(pair: Likeness) -> tuple[str, ...]:
    return code_span(pair.one), f"{pair.share:.0%}", _other(pair), f"{pair.other_share:.0%}"


def _other(pair: Likeness) -> str:
    return code_span(pair.other) + (" of this repository" if pair.shipped else "")


def _row(place: Place) -> str:
    cells = (f"{place.file}:{_ranges(place.lines)}", place.other_file, _ranges(place.other_lines))
    return f"| {' | '.join(map(code_span, cells))} |"


def _ranges(lines: Sequence[tuple[int, int]]) -> str:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in lines)
