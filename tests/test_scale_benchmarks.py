"""The conclusions that the benchmarks of docs/scale.md draw from their measurements."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import scale_grading
import scale_stages

from mini_dnn.paths import ROOT


def one(points: float, **fields: Any) -> dict[str, Any]:
    staff = [str([{"sm_mhz": 1980}])]
    return {"stages": ["cpu"], "points": points, "refused": "", "op_ms": None, "performance": staff} | fields


def records() -> dict[str, dict[str, Any]]:
    both = {"stages": ["cpu", "gpu"]}
    cheats = {name: one(0.0, refused="a cheat", **both) for name in scale_stages.DISHONEST}
    honest = {"right": one(14.0, op_ms=0.5, **both), "slow": one(10.0, op_ms=5.0, **both)}
    return honest | {"wrong": one(0.0), "beyond": one(0.0)} | cheats


def test_two_stages_are_as_expected() -> None:
    assert scale_stages.faults(records()) == []


@pytest.mark.parametrize(
    ("name", "field", "value", "fault"),
    [
        ("right", "stages", ["cpu"], "right should have a second stage"),
        ("wrong", "stages", ["cpu", "gpu"], "wrong should have no second stage"),
        ("half_when_timed", "refused", "", "half_when_timed is not refused"),
        ("skips_when_timed", "points", 7.0, "skips_when_timed has points"),
        ("beyond", "op_ms", 0.1, "beyond has a time"),
        ("slow", "op_ms", 0.4, "slow is not slower than right"),
        ("slow", "performance", ["[None, None]"], "slow has no clocks"),
    ],
)
def test_what_two_stages_do_wrong_is_reported(name: str, field: str, value: Any, fault: str) -> None:
    found = records()
    found[name][field] = value
    assert scale_stages.faults(found) == [fault]


def test_the_speed_up_is_that_of_medians() -> None:
    runs = [
        {"engine": engine, "workers": workers, "cores": 2, "seconds": s, "cpu_s": 30.0, "machine_cpu_s": 31.0}
        | {"graded": 5, "same_grades": True}
        for engine, workers, s in [("local", 1, 40), ("local", 1, 44), ("local", 2, 21), ("slurm", 2, 28)]
    ]
    text = scale_grading.table({"runs": runs, "cores": 2, "cpu": "a processor", "commit": "0123456789ab"})
    assert "| local | 2 | 2 | 21.0 | 2.00 | 30.0 | 1.0 | 5 of 5 |" in text
    assert "| Slurm | 2 | 2 | 28.0 | 1.50 | – | – | 5 of 5 |" in text


def test_the_page_has_the_measured_table() -> None:
    found = json.loads(scale_grading.RESULT.read_text())
    assert scale_grading.table(found) in scale_grading.PAGE.read_text()
    assert {run["graded"] for run in found["runs"]} == {found["submissions"]}
    assert all(run["same_grades"] for run in found["runs"])


def test_measured_processes_import_no_more_than_they_need() -> None:
    """Workers import these files, and their start is a part of what is measured."""
    code = "import grading, scale, scale_program, sys; print('command_line' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "benchmarks", capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"
