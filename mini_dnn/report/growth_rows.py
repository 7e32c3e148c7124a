"""Op times from ``bench --growth``, as rows that can stand next to those of ``bench``."""

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

SAME = {f.name for f in fields(Row)}  # a row of growth has some of these fields, too, which are copied


def of_growth(growths: Iterable[Growth], record: Record) -> list[Row]:
    """Return rows for op times of a growth run, which are timed in the same way as those of ``bench``.

    A growth row names only its variant and the hash of its code. The other fields are taken from the present
    code, so rows of other code are left out, and so are batch sizes at which no other variant is measured.
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
    """Complete a row with what the variant and the problem define."""
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
    """Return a variant of this checkout that has kernels, or None if there is none of this name."""
    try:
        variant = own(name)
    except VariantError:
        return None
    return None if variant is None or variant.host else variant
