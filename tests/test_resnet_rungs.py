"""Benchmarks of the rungs of ResNet-18 by batch, and their part of its page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import resnet_page
import resnet_rungs
from matplotlib.figure import Figure

from mini_dnn.device import Device
from mini_dnn.report.theme import LIGHT

TINY = "1,9,1,small,8-8-8-8,1-1-1-1,5,fp16"


def row(name: str, batch: int, ms: float, **more: Any) -> dict[str, Any]:
    memory = {
        "weights": 46_000_000,
        "activations": 12_000_000 * batch,
        "workspace": 0,
        "images and scores": 1,
    }
    figures = {
        "launches": 69,
        "round_trips": 0,
        "copied_bytes": 0,
        "memory": memory,
        "taken_bytes": 900_000_000,
    }
    return {
        **{"variant": f"networks/resnet18/{name}", "batch": batch, "agrees": True},
        **{"ms": [ms, 2 * ms, ms], "served_ms": [1.25 * ms], **figures, **more},
    }


def found() -> dict[str, Any]:
    trips = {"round_trips": 68, "copied_bytes": 4_000_000_000, "stay_ms": [50.0]}
    rows = [row("v0_transfers", 1, 5.0), row("v0_transfers", 64, 160.0, **trips)]
    rows += [
        row("v4_tensor_cores", 1, 1.25),
        row("v4_tensor_cores", 64, 3.2),
        row("v9_wrong", 1, 0.1, agrees=False),
    ]
    return {"device": "a GPU", "commit": {"commit": "0123456789abcdef"}, "rows": rows}


CPU = {
    "cpu": "a CPU",
    "threads": 16,
    "commit": "fedcba9876543210",
    "batches": {"1": {"ours": {"wall_ms": 10.0}}},
}


def test_the_text_has_times_copies_and_memory() -> None:
    text = resnet_page.text_of(found(), CPU)
    assert "| `v4_tensor_cores` | 1.25 | 3.2 | 50 × | 8 × |" in text
    assert "| `cpu` | 10 |  |  |  |" in text
    assert "| `v0_transfers` | 69 | 68 | 4,000 | 200 | 75% |" in text
    assert "| `v4_tensor_cores` | 46.0 | 12.0 | 768.0 | 0.0 | 900 |" in text
    assert "Omitted because they differ from float64: networks/resnet18/v9_wrong, batch 1." in text
    assert "`cpu` is NumPy in fp32 with 16 threads on a CPU, commit `fedcba9876`." in text


def test_it_is_drawn() -> None:
    figure = resnet_page.draw(resnet_page.rows_of(found(), CPU), LIGHT)
    assert isinstance(figure, Figure)
    assert [line.get_label() for line in figure.axes[0].lines] == ["v0_transfers", "v4_tensor_cores", "cpu"]


def test_rungs_are_measured_and_compared(
    tmp_path: Path, emulator: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what a clock would say: the emulator has none."""

    def replayed(graph: Any, device: Device, count: int) -> float:
        graph.replay()
        return 40.0

    class Lent:
        """The emulator that other tests go on to use."""

        close: Callable[[], None] = staticmethod(lambda: None)

        def __getattr__(self, name: str) -> Any:
            return getattr(emulator, name)

    monkeypatch.setattr(resnet_rungs, "open_device", lambda kind: Lent())
    monkeypatch.setattr(resnet_rungs, "build_plans", lambda plans, device: None)
    monkeypatch.setattr(resnet_rungs, "replayed", replayed)
    out = tmp_path / "results" / "rungs.json"
    words = [
        "--problem",
        TINY,
        "--batches",
        "1,3",
        "--impl",
        "networks/resnet18/v1_conv_bn",
        "--out",
        str(out),
    ]
    assert resnet_rungs.main(words) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["variant"].rpartition("/")[2], row["batch"]) for row in rows] == [
        ("v1_conv_bn", 1),
        ("v1_conv_bn", 3),
    ]
    assert rows[0]["round_trips"] == 12
    assert rows[1]["copied_bytes"] == 3 * rows[0]["copied_bytes"] > 0
    assert rows[1]["memory"]["activations"] == 3 * rows[0]["memory"]["activations"]
    assert rows[0]["max_error"] < 1e-5
    assert "v1_conv_bn, batch 3: 40.000 ms, 75 images/s, 40.000 with copies" in capsys.readouterr().out
