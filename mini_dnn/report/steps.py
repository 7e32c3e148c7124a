"""Where a pass of a network spends its time: each kind of launch, and the rate of each part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mini_dnn.measuring.batches import Batches, BatchesRow, StepRow
from mini_dnn.report.document import Table
from mini_dnn.report.stale import why_stale
from mini_dnn.report.tables import number, percent


@dataclass(frozen=True)
class Pass:
    """The launches of one variant at one batch size, and the row with the total time if the file has one."""

    file: Batches
    steps: Sequence[StepRow]
    whole: BatchesRow | None

    @property
    def variant(self) -> str:
        """The name of the variant."""
        return self.steps[0].variant

    @property
    def problem(self) -> str | None:
        """The sizes of the network, or None if the file does not have them."""
        return self.steps[0].problem or (self.whole.problem if self.whole else None)

    @property
    def is_counted(self) -> bool:
        """Whether the FLOPs of the products of a launch were counted."""
        return any(step.flops is not None for step in self.steps)

    @property
    def batch(self) -> int:
        """The batch size."""
        return self.steps[0].batch


def passes(one: Batches) -> Iterator[Pass]:
    """Return the passes of a file whose launches were timed."""
    steps = one.content.steps
    for key in dict.fromkeys((step.variant, step.problem, step.batch) for step in steps):
        variant, problem, batch = key
        rows = [row for row in one.content.rows if (row.program, row.batch) == (variant, batch)]
        whole = [row for row in rows if problem in (None, row.problem)]
        of = [step for step in steps if (step.variant, step.problem, step.batch) == key]
        yield Pass(one, of, whole[0] if len(whole) == 1 else None)


def of_folder(found: Sequence[Batches], folder: str) -> list[Pass]:
    """Return the passes of a folder's variants on any device."""
    every = (one for file in found for one in passes(file))
    return [one for one in every if one.variant.startswith(f"{folder}/")]


def steps_table(one: Pass) -> Table:
    """Each kind of launch, then each part: time, share, and the rate of products if they were counted."""
    total = _us(one.steps)
    parts = list(dict.fromkeys(step.part for step in one.steps if step.part))
    groups = [(f"`{step.step}`", [step]) for step in one.steps]
    groups += [(part, [step for step in one.steps if step.part == part]) for part in parts]
    rows = [
        [
            name,
            f"{sum(step.count for step in of):,}",
            number(of[0].us if len(of) == 1 else None),
            number(_us(of)),
            percent(_us(of) / total, 1),
            *([number(rate(of))] * one.is_counted),
        ]
        for name, of in groups
    ]
    columns = ["launch: layer, kernel, grid", "launches", "us each", "us in all", "share"]
    columns += ["TFLOP/s"] * one.is_counted
    return Table(columns, rows, strong=frozenset(range(len(one.steps), len(rows))))


def rate(steps: Sequence[StepRow]) -> float | None:
    """Return the TFLOP/s of several launches together, or None if the products of one were not counted."""
    flops = [step.flops for step in steps]
    if None in flops:
        return None
    return sum((step.flops or 0) * step.count for step in steps) / _us(steps) / 1e6


def about(one: Pass) -> str:
    """Describe what was timed and how, and whether the code is still the same."""
    content, code = one.file.content, one.whole.code_hash if one.whole else None
    images = f"{one.batch:,} image{'s' * (one.batch != 1)}"
    whole = f", and a whole pass takes {number(one.whole.median_ms * 1e3)} us" if one.whole else ""
    padding = " Products of padding do not count in TFLOP/s." * one.is_counted
    changes = " with changes" * bool(content.dirty)
    why = why_stale(one.variant, code) if code else ""
    return (
        f"Where `{one.variant}` spends its time with {images}: each kind of launch was timed in a row, and "
        f"together they take {number(_us(one.steps))} us{whole}.{padding} {content.device.name}; "
        f"`{one.file.file.name}` (commit {(content.commit or 'unknown')[:10]}{changes})."
        f"{f' Stale: {why}.' * bool(why)}"
    )


def _us(steps: Sequence[StepRow]) -> float:
    return sum(step.us * step.count for step in steps)
