"""Op times in the results of ``bench --growth``, as rows beside those of ``bench``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any

from mini_dnn import ops
from mini_dnn.device.sources import source_hash
from mini_dnn.errors import VariantError
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.serving_records import Growth
from mini_dnn.nn.weights import TEST_COUNTS
from mini_dnn.report.rows import Record, Row
from mini_dnn.variant import Variant, own

SAME = {f.name for f in fields(Row)}  # of a row of growth


def of_growth(growths: Iterable[Growth], record: Record) -> list[Row]:
    """Op times that were measured for their growth, by the same clock as those of ``bench``.

    Such a row names its variant and code only. The rest is what this code says of itself, so rows of other
    code are left out, and so are batches at which nobody else is measured.
    """
    growths = list(growths)
    present = {name: _present(name) for name in {row.variant for row in growths}}
    rows = []
    for row in growths:
        variant = present[row.variant]
        named = ops.find(row.op).course.get(row.problem)
        if variant is None or named is None or row.parts != 1 or code_of(variant) != row.code_hash:
            continue
        if row.batch in (*TEST_COUNTS, named.batch):
            rows.append(_row(row, variant, named.with_batch(row.batch), record))
    return rows


def _row(row: Growth, variant: Variant, problem: Any, record: Record) -> Row:
    """The row, with what the variant and the problem say of themselves."""
    return Row(
        **{f.name: getattr(row, f.name) for f in fields(Growth) if f.name in SAME},
        record=record,
        shape=problem.fields,
        min_bytes=problem.min_bytes,
        parent=variant.parent,
        precision=variant.precision,
        source_hash=source_hash(variant.source),
        layer_ms=None,
    )


def _present(name: str) -> Variant | None:
    """A variant of this checkout, with kernels, as it is now; None if there is no such one."""
    try:
        variant = own(name)
    except VariantError:
        return None
    return None if variant is None or variant.host else variant
