"""benchmarks/vit.py: its explanations of the figures, and the part that needs no PyTorch."""

from pathlib import Path
from typing import Any

import network_steps
import numpy as np
import pytest
import vit
import whole_networks

from mini_dnn.device import Device
from mini_dnn.measuring.batches import batches_file
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.files import read_json
from mini_dnn.measuring.records import Place
from mini_dnn.ops.vit import VitShape
from mini_dnn.variant import Planned, find

PROBLEM = VitShape(2, 8, 4, 1, 32, 2, 1, 2, 10, "fp16")


def row(name: str, ms: list[float], error: float = 1e-3) -> vit.Row:
    figures = {"max_error": error, "rms_error": error / 4, "bound": 1e-2}
    figures["agrees"] = error <= 1e-2
    return {"batch": 32, "program": name, "ms": ms, **figures}


def test_a_table_names_the_fastest_compiled_one_and_what_is_wrong() -> None:
    rows = [row("ours", [2.0, 1.0, 1.5]), row("torch.compile default", [3.0])]
    rows += [row("torch.compile max-autotune", [1.8], float("nan")), row("PyTorch eager", [6.0])]
    text = vit.table(rows)
    assert "| ours | 1.500 | 21,333 | 1.000 | 1.0e-03 | 2.5e-04 | agrees |" in text
    assert "| PyTorch eager | 6.000 | 5,333 | 4.000 " in text
    assert "| nan | nan | WRONG: the bound is 1.0e-02 |" in text
    assert text.endswith("ours: 1.200 x torch.compile's best")


@pytest.mark.exhaustive
def test_ours_takes_turns_and_its_scores_are_those_of_the_answer(quick_emulator: Device) -> None:
    arrays = vit.OPERATION.inputs(PROBLEM, 0)
    with vit.graph(find("networks/vit/fused"), PROBLEM, arrays, quick_emulator) as candidate:
        candidate.timed.args[0].replay()
        found = candidate.scores()
    right = vit.centred(np.log(vit.OPERATION.answer(PROBLEM, arrays)["probabilities"]))
    assert 0 < np.abs(found - right).max() < 2 * vit.score_bound(PROBLEM, arrays, "fp16")


def test_each_kind_of_step_is_measured_behind_a_whole_pass(
    quick_emulator: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def graph_ms(planned: Planned, arrays: Any, device: Device) -> float:
        return len(planned.steps) * 1e-3

    monkeypatch.setattr(network_steps, "graph_ms", graph_ms)
    rows = network_steps.measure_steps(find("networks/vit/fused"), PROBLEM, {}, quick_emulator, vit.label)
    found = {row["step"].split()[0]: row["count"] for row in rows}
    assert found["cut"] == found["patches.linear"] == found["head"] == found["softmax"] == 1
    assert found["attention.heads.qkv"] == found["attention"] == found["mlp.up"] == 2
    assert all(row["us"] == pytest.approx(1) for row in rows)
    assert "14.0 us in all steps, 14.0 us as they follow each other" in capsys.readouterr().out


def test_rows_are_written_so_that_the_report_can_read_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This includes rows with NaN scores."""
    monkeypatch.setattr(whole_networks, "REST_S", 0.0)
    errors = {"networks/vit/fused": 1e-3, "PyTorch eager": float("nan")}
    candidates = [whole_networks.Candidate(name, lambda count: 50.0, lambda: np.zeros(1)) for name in errors]

    def figures(one: whole_networks.Candidate) -> vit.Row:
        sizes = {"problem": whole_networks.sizes(PROBLEM), "batch": PROBLEM.N}
        return {**sizes, "max_error": errors[one.name], "bound": 1e-2}

    rows = whole_networks.measured(candidates[:1], candidates[1:], figures)
    place, out = Place(name="a GPU", cpu="", state=None), tmp_path / "file.json"
    head = whole_networks.about(place, vit.OPERATION, {"torch": "2.11"})
    whole_networks.write(out, head, {"rows": rows, "steps": []})
    content = batches_file(read_json(out), out)
    ours, library = content.rows
    assert (ours.kind, ours.program, ours.agrees, ours.max_error) == (
        "ours",
        "networks/vit/fused",
        True,
        1e-3,
    )
    assert ours.code_hash == code_of(find("networks/vit/fused"))
    assert (library.kind, library.agrees, library.max_error) == ("library", False, None)
    assert ours.problem == "8,4,1,32,2,1,2,10"
    assert content.versions["torch"] == "2.11"
    assert content.started


def test_nothing_is_begun_when_time_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    assert whole_networks.Budget(float("inf")).left("this")
    assert not whole_networks.Budget(0.0).left("that")
    assert capsys.readouterr().out == "  that: not measured, as --seconds are over\n"
