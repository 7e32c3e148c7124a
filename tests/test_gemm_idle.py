"""``gemm/v16_idle``: large tiles of eighths, blocks that copy b, and problems that it leaves to another rung."""

from typing import Any

import pytest
from convolutions import kernels, solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import find

RUNG = find("gemm/v16_idle")
RULES: dict[str, Any] = RUNG.plan.__globals__  # type: ignore[union-attr]
Cut = RULES["Cut"]
PROBLEMS = [  # each with its cut
    (GemmShape(71, 711, 263, "fp16", "fp16"), Cut(1, 2, 3, 16, 1, 1)),
    (GemmShape(2100, 391, 261, "fp16", "fp16"), Cut(1, 1, 5, 8, 1, 1)),
    (GemmShape(40, 1537, 201, "bf16", "bf16"), Cut(3, 2, 2, 16, 1, 2)),
    (GemmShape(64, 960, 299, "fp16", "fp16"), Cut(2, 1, 2, 16, 8, 4)),  # b is read in place
    (GemmShape(65, 449, 906, "fp16", "fp16", alpha=0.5), Cut(0, 2, 1, 8, 1, 2)),  # b is copied before
]


@pytest.mark.parametrize(("problem", "cut"), PROBLEMS)
def test_all_cuts(problem: GemmShape, cut: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: cut)
    assert kernels(RUNG, problem)[-1] == "gemm_idle"
    assert solved(RUNG, problem, device, seed=1).ok


def test_no_finding_in_checked_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: Cut(1, 1, 2, 8, 1, 1))
    assert solved(RUNG, GemmShape(30, 503, 265, "fp16", "fp16"), CheckedEmulator(), seed=1).ok
