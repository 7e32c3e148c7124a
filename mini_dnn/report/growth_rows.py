"""Op times in the results of ``bench --growth``, as rows beside those of ``bench``."""

from __future__ import annotations

from collections.abc import Iterable

from mini_dnn import ops
from mini_dnn.device.sources import source_hash
from mini_dnn.errors import VariantError
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.records import Growth
from mini_dnn.nn.weights import TEST_COUNTS
from mini_dnn.report.rows import Record, Row
from mini_dnn.variant import Variant, find


def of_growth(growths: Iterable[Growth], record: Record) -> list[Row]:
    """Op times that were measured for their growth, by the same clock as those of ``bench``.

    Such a row names its variant and code only. The rest is what this code says of itself, so rows of other
    code are left out, and so are batches at which nobody else is measured.
    """
    growths = list(growths)
    present = {name: _present(name) for name in {row.variant for row in growths}}
    rows = []
    for row in growths:
        course = ops.find(row.op).course
        if row.problem not in course or row.parts != 1:
            continue
        known = row.batch in (*TEST_COUNTS, course[row.problem].batch)
        variant = present[row.variant]
        if not known or variant is None or code_of(variant) != row.code_hash:
            continue
        problem = course[row.problem].with_batch(row.batch)
        rows.append(
            Row(
                record=record,
                op=row.op,
                problem=row.problem,
                shape=problem.fields,
                batch=row.batch,
                variant=row.variant,
                parent=variant.parent,
                precision=variant.precision,
                source_hash=source_hash(variant.source),
                code_hash=row.code_hash,
                flops=row.flops,
                min_bytes=problem.min_bytes,
                op_ms=row.op_ms,
                op_ms_quartiles=row.op_ms_quartiles,
                median_error=row.median_error,
                settled=row.settled,
                repeats=row.repeats,
                parts=row.parts,
                layer_ms=None,
                max_error=row.max_error,
                state=row.state,
            )
        )
    return rows


def _present(name: str) -> Variant | None:
    """A variant with kernels as it is now; None if there is no such one."""
    try:
        variant = find(name)
    except VariantError:
        return None
    return None if variant.host else variant
