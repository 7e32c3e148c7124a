"""The cost of grading is measured by clocks in the processes that it starts."""

from __future__ import annotations

import os
from pathlib import Path

import grading
import pytest
from grading import Clocks

from mini_dnn.grading.confined.sandbox import Isolation


def test_clocks_of_many_processes(tmp_path: Path) -> None:
    file = tmp_path / "clocks"
    file.write_bytes(bytes(grading.CLOCKS.size))
    clocks = Clocks(file)
    pid = os.fork()
    if pid == 0:
        clocks.add("run", 1.5, 0.5)
        os._exit(0)
    os.waitpid(pid, 0)
    clocks.add("run", 1.0, 0.25)
    assert clocks.timed("compile", lambda a: a + 1)(2) == 3
    found = dict(zip(grading.SLOTS, grading.CLOCKS.unpack(file.read_bytes()), strict=True))
    assert (found["run s"], found["run cpu_s"], found["process s"]) == (2.5, 0.75, 0.0)
    assert found["compile s"] > 0


@pytest.mark.exhaustive
@pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")
def test_a_submission_is_measured(tmp_path: Path) -> None:
    found = grading.measured(["milestones/m1/direct"], tmp_path)
    assert found["compile cpu_s"] > 0 < found["run cpu_s"]
    assert found["overhead cpu_s"] > 0 < found["overhead s"]
    assert found["process cpu_s"] == pytest.approx(
        found["overhead cpu_s"] + found["compile cpu_s"] + found["run cpu_s"]
    )
