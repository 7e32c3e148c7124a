"""Op times of convolutions in the results of ``bench --growth``, as rows beside those of ``bench``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mini_dnn.device.code_hash import code_hash
from mini_dnn.device.sources import source_hash
from mini_dnn.errors import VariantError
from mini_dnn.measuring.bench import SCHEMA
from mini_dnn.ops.course import LAYERS, layer_shape
from mini_dnn.report.rows import Record, Row
from mini_dnn.variant import Variant, find

BATCHES = (100, 1_000, 10_000)  # the course's
SAME = ("variant", "code_hash", "batch", "layer", "flops", "op_ms", "median_error", "repeats", "parts")


def of_growth(content: Any, file: Path, ceilings: Mapping[str, float]) -> tuple[Record, list[Row]]:
    """Op times of convolutions that were measured for their growth, by the same clock as those of ``bench``.

    Such a row names its variant and code only. The rest is what this code says of itself, so rows of other
    code are left out, and so are batches that no run through the network has.
    """
    record = Record.of(content, file, SCHEMA, ceilings)
    present = {name: _present(name) for name in {row["variant"] for row in content["growth"]}}
    rows = []
    for row in content["growth"]:
        if row["layer"] not in LAYERS or row["batch"] not in BATCHES or row["parts"] != 1:
            continue
        found = present[row["variant"]]
        if found is None or found[1] != row["code_hash"]:
            continue
        variant = found[0]
        shape = layer_shape(row["layer"]).with_batch(row["batch"])
        rows.append(
            Row(
                record=record,
                parent=variant.parent,
                precision=variant.precision,
                source_hash=source_hash(variant.source),
                shape=shape,
                min_bytes=shape.min_bytes,
                layer_ms=None,
                accuracy=None,
                streams=None,
                max_error=row["max_error"],
                state=row["state"],
                **{name: row[name] for name in SAME},
            )
        )
    return record, rows


def _present(name: str) -> tuple[Variant, str] | None:
    """A variant with kernels as it is now, and its code's hash; None if there is no such one."""
    try:
        variant = find(name)
    except VariantError:
        return None
    return None if variant.host else (variant, code_hash(variant.source))
