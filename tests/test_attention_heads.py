"""Problems that ``attention/v10_heads`` computes itself, and those that it leaves to another variant."""

import pytest
from convolutions import solved

from mini_dnn.checking.check import check
from mini_dnn.device import Device
from mini_dnn.ops.attention import AttentionShape
from mini_dnn.variant import find

RUNG = find("attention/v10_heads")
MOST_SHARED = 227 * 1024  # bytes of a block of an H100
OWN = [
    AttentionShape(1, 2, 197, 64),
    AttentionShape(1, 3, 200, 64, "fp16", "packed"),
    AttentionShape(1, 1, 193, 64, "fp16", "contiguous", False, -0.2),
    AttentionShape(1, 1, 137, 64, "fp16", "packed", False, -0.2),
    AttentionShape(1, 4, 192, 64),
    pytest.param(AttentionShape(1, 400, 137, 64), marks=pytest.mark.exhaustive),  # a fourth head in a slot
]


@pytest.mark.parametrize("T", [136, 137, 192, 193, 200, 201])
def test_other_lengths_are_left_to_another(T: int) -> None:
    planned = RUNG.planned(AttentionShape(2, 3, T, 64), MOST_SHARED)
    assert bool(planned.codes) == (not 137 <= T <= 200)


@pytest.mark.parametrize("problem", OWN, ids=lambda p: p.text)
def test_whole_heads(problem: AttentionShape, device: Device) -> None:
    found = solved(RUNG, problem, device)
    assert found.ok, str(found)


@pytest.mark.exhaustive
@pytest.mark.parametrize("problem", [OWN[0], OWN[3]], ids=lambda p: p.text)
def test_whole_heads_without_findings(problem: AttentionShape) -> None:
    report = check(RUNG, [problem])
    assert not report.findings
