"""Write what is made from grades."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from mini_dnn.device.cache import write_atomically
from mini_dnn.grading.grades import Grade


def write_all(grades: Sequence[Grade], folder: Path) -> None:
    """Write ``grades.csv``: a line a submission."""
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["submission", "points", "max_points", "refused", "op_ms"])
    for grade in grades:
        rows.writerow([grade.submission, grade.points, grade.max_points, grade.refused, grade.op_ms])
    write_atomically(folder / "grades.csv", text.getvalue().encode())
