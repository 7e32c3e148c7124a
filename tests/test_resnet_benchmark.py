"""benchmarks/resnet.py: its explanations of the figures, and the part that needs no PyTorch."""

from typing import Any

import network_steps
import numpy as np
import pytest
import resnet

from mini_dnn.device import Device
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.variant import Planned, find

PROBLEM = ResNetShape(1, 33, 3, "imagenet", "64-64-128-64", "1-1-1-1", 10, "fp16")


def row(name: str, ms: list[float], error: float = 1e-3) -> resnet.Row:
    figures = {"max_error": error, "largest": 9.0, "bound": 1e-2, "agrees": error <= 1e-2}
    return {"batch": 32, "program": name, "ms": ms, **figures}


def test_a_table_says_what_is_wrong() -> None:
    text = resnet.table([row("ours", [2.0, 1.0, 1.5]), row("PyTorch eager", [6.0], float("nan"))])
    assert "| ours | 1.5000 | 21,333 | 1.0e-03 | agrees |" in text
    assert text.endswith("| PyTorch eager | 6.0000 | 5,333 | nan | WRONG: the bound is 1.0e-02 |")


def test_ours_takes_turns_and_its_scores_are_those_of_the_answer(quick_emulator: Device) -> None:
    arrays = resnet.OPERATION.inputs(PROBLEM, 0)
    with resnet.graph(find("networks/resnet18/v6_graph"), PROBLEM, arrays, quick_emulator) as candidate:
        candidate.timed.args[0].replay()
        found = candidate.scores()
    off = np.abs(found - resnet.OPERATION.answer(PROBLEM, arrays)["scores"])
    assert (off <= resnet.OPERATION.bound(PROBLEM, arrays, "fp16")["scores"]).all()
    assert off.max() > 0


def test_each_kind_of_step_is_measured_behind_a_whole_pass(
    quick_emulator: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def graph_ms(planned: Planned, arrays: Any, device: Device) -> float:
        return len(planned.steps) * 1e-3

    monkeypatch.setattr(network_steps, "graph_ms", graph_ms)
    rows = network_steps.measure_steps(
        find("networks/resnet18/v6_graph"), PROBLEM, {}, quick_emulator, resnet.label
    )
    assert sum(row["count"] for row in rows) == 10
    assert rows[0]["step"].startswith("conv1 stem_and_pool")
    assert rows[-1]["step"].startswith("head")
    assert all(row["us"] == pytest.approx(1) for row in rows)
    assert "10.0 us in all steps, 10.0 us as they follow each other" in capsys.readouterr().out
    counted = resnet.counted(rows, PROBLEM)
    assert resnet.rate(counted).startswith("convolutions behind the first: 8.0 us, ")
    convolutions = PROBLEM.sizes.convolutions
    # Including the products of two shortcuts
    flops = sum(2 * c.P**2 * c.K * c.C * c.R**2 for c in convolutions)
    assert sum(row["flops"] for row in counted if "flops" in row) == flops
    assert [row.get("part") for row in counted] == [resnet.FIRST, *[resnet.BEHIND] * 8, None]


def test_launches_that_are_no_convolutions_have_no_rate() -> None:
    rows = [{"step": "layer1_0_conv1 whole 128", "us": 1.0, "count": 1}]
    assert resnet.counted(rows, PROBLEM) == rows
    assert resnet.rate(rows).startswith("no rate of the convolutions")
