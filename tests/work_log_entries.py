"""A work log, and an entry for it."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mini_dnn.measuring.work_log import Entry, Tried
from mini_dnn.variant import find


def entry(variant: str = "m1/direct", op_ms: float | None = None, **changes: Any) -> Entry:
    results = [Tried(problem="conv1", shape={"N": 1}, op_ms=op_ms)]
    fields: dict[str, Any] = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "verb": "bench",
        "variant": variant,
        "parent": find(variant).parent,
        "op": "conv2d",
        "idea": "an idea",
        "code_hash": "a" * 64,
        "expected": "twice as fast",
        "device": "Test GPU",
        "ok": True,
        "verdict": "measured",
        "results": results,
    }
    return Entry(**fields | changes)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log.jsonl"
