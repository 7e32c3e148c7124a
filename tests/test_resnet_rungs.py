"""The benchmark of the rungs of ResNet-18 by batch size."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import resnet_rungs

from mini_dnn.device import Device
from mini_dnn.measuring.batches import batches_file
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.files import read_json
from mini_dnn.variant import find

TINY = "1,9,1,small,8-8-8-8,1-1-1-1,5,fp16"


def test_rungs_are_measured_and_compared(
    tmp_path: Path, emulator: Device, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The clock is made up, because the emulator has none."""

    def replayed(graph: Any, device: Device, count: int) -> float:
        graph.replay()
        return 40.0

    class Lent:
        """The emulator, which stays open for other tests."""

        close: Callable[[], None] = staticmethod(lambda: None)

        def __getattr__(self, name: str) -> Any:
            return getattr(emulator, name)

    monkeypatch.setattr(resnet_rungs, "open_device", lambda kind: Lent())
    monkeypatch.setattr(resnet_rungs, "build_plans", lambda plans, arch: None)
    monkeypatch.setattr(resnet_rungs, "replayed", replayed)
    out = tmp_path / "rungs.json"
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
    content = batches_file(read_json(out), out)
    first, third = content.rows
    assert [row.program for row in content.rows] == ["networks/resnet18/v1_conv_bn"] * 2
    assert (first.batch, third.batch) == (1, 3)
    assert first.code_hash == code_of(find("networks/resnet18/v1_conv_bn"))
    assert (content.op, first.problem) == ("resnet", "9,1,small,8-8-8-8,1-1-1-1,5,1-2-2-2")
    assert first.round_trips == 12
    assert first.copied_bytes
    assert first.memory
    assert third.memory
    assert third.copied_bytes == 3 * first.copied_bytes
    assert third.memory["activations"] == 3 * first.memory["activations"]
    assert first.max_error is not None
    assert first.max_error < 1e-5
    assert first.agrees
    assert "v1_conv_bn, batch 3: 40.000 ms, 75 images/s, 40.000 with copies" in capsys.readouterr().out
