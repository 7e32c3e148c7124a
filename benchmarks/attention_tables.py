"""Tables of the figures of `attention.py`: one per problem, and a summary of random problems."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

LIBRARY = "cuDNN"  # the reference for comparisons
MODES = ("written", "read", "warm")
RIGHT = 1e-3  # relative norm of the error that distinguishes a wrong result from rounding

Row = dict[str, Any]


def medians(rows: Sequence[Row]) -> dict[tuple[str, str], float]:
    """The median for each name and mode, in the faster layout."""
    found: dict[tuple[str, str], float] = {}
    for row in rows:
        key, median = (row["variant"], row["mode"]), statistics.median(row["us"])
        found[key] = min(median, found.get(key, median))
    return found


def table(rows: Sequence[Row], errors: Sequence[Row]) -> str:
    """A table of one problem: times of each candidate in each mode, relative to cuDNN, and errors."""
    times = medians(rows)
    worst = {name: dict.fromkeys(("largest", "median"), 0.0) for name, _ in times}
    for row in errors:
        known = worst[row["variant"]]
        known.update({key: max(known[key], row[key]) for key in known})
    lines = [
        f"| us | {' | '.join(MODES)} | {LIBRARY} over it | error, largest | median |",
        "| --- | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for name in dict.fromkeys(name for name, _ in times):
        found = [times.get((name, mode)) for mode in MODES]
        gains = [_gain(times.get((LIBRARY, mode)), us) for mode, us in zip(MODES, found, strict=True)]
        cells = [f"{us:.2f}" if us else "" for us in found]
        error = [f"{value:.1e}" if value else "" for value in worst[name].values()]
        lines.append(f"| {' | '.join([name, *cells, ' / '.join(gains), *error])} |")
    return "\n".join(lines)


def _gain(library: float | None, us: float | None) -> str:
    return f"{library / us:.2f}" if library and us else "-"


def outcome(rows: Sequence[Row], errors: Sequence[Row], name: str) -> str:
    """The number of random problems in which a variant is faster than the library, and the exceptions."""
    problems = list(dict.fromkeys(row["problem"] for row in rows))
    faster, slower = 0, []
    for problem in problems:
        times = medians([row for row in rows if row["problem"] == problem])
        ours, library = times.get((name, "written")), times.get((LIBRARY, "written"))
        if ours is None or library is None:
            slower.append(f"  {problem}: {name if ours is None else LIBRARY} did not run")
        elif ours < library:
            faster += 1
        else:
            slower.append(f"  {problem}: {ours:.2f} us, {LIBRARY} {library:.2f} us")
    known = {(row["problem"], row["variant"]): row for row in errors}
    pairs = [(known.get((p, name)), known.get((p, LIBRARY))) for p in problems]
    both = [(ours, library) for ours, library in pairs if ours and library]
    closer = [sum(ours[key] <= library[key] for ours, library in both) for key in ("largest", "median")]
    return "\n".join(
        [
            f"{name}: faster than {LIBRARY} at {faster} of {len(problems)} problems; its largest error is no "
            f"larger at {closer[0]} of {len(both)}, its median at {closer[1]}",
            *slower,
        ]
    )


def wrong_words(errors: Sequence[Row]) -> list[str]:
    """A line for each wrong result."""
    return [
        f"  WRONG: {row['variant']} at {row['problem']}: relative error {row['relative']:.1e}"
        for row in errors
        if not row["relative"] <= RIGHT  # NaN is wrong as well
    ]
