"""Problems that ``attention/v11_odd_token`` computes itself, and those that it leaves to another variant."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mini_dnn.checking.check import check
from mini_dnn.device import Device
from mini_dnn.ops import Arrays
from mini_dnn.ops.attention import AttentionShape
from mini_dnn.running.runner import run
from mini_dnn.running.verify import verify
from mini_dnn.variant import find

RUNG = find("attention/v11_odd_token")
RULES: dict[str, Any] = RUNG.plan.__globals__  # type: ignore[union-attr]
MOST_SHARED = 227 * 1024  # bytes of a block of an H100
WHOLE = AttentionShape(1, 3, 385, 64)  # six tiles: two items a head
SPLIT = AttentionShape(1, 4, 449, 64, "fp16", "packed")  # seven: the last one is split, where that pays
PROBLEMS = [
    WHOLE,
    SPLIT,
    replace(SPLIT, B=2, layout="contiguous", scale=0.4),
    AttentionShape(1, 1, 577, 64, "fp16", "packed"),
]


@pytest.fixture
def one_multiprocessor(monkeypatch: pytest.MonkeyPatch) -> None:
    """One block computes all units, and tiles are split at a smaller number of tokens."""
    monkeypatch.setitem(RULES, "MULTIPROCESSORS", 1)
    monkeypatch.setitem(RULES, "LEAST_SPLIT", 300)


def is_own(problem: AttentionShape) -> bool:
    return not RUNG.planned(problem, MOST_SHARED).codes  # no code of other variants


@pytest.mark.parametrize(
    ("T", "own"), [(193, 0), (384, 0), (385, 1), (386, 0), (449, 0), (513, 0), (577, 1), (1025, 1), (1217, 1)]
)
def test_other_lengths_are_left_to_another(T: int, own: int) -> None:
    assert is_own(AttentionShape(32, 12, T, 64)) == bool(own)


def test_other_problems_are_left_to_another() -> None:
    assert is_own(WHOLE)
    for problem in (replace(WHOLE, causal=True), replace(WHOLE, scale=-0.2), replace(WHOLE, d=32)):
        assert not is_own(problem)
    assert not is_own(AttentionShape(1, 22, 1025, 64))  # one item each, split or not


def compare(problem: AttentionShape, arrays: Arrays, device: Device) -> None:
    assert is_own(problem)
    outputs = run(RUNG, problem, arrays, device).outputs
    found = verify(RUNG.operation, problem, arrays, outputs, RUNG.precision)
    assert found.ok, str(found)


@pytest.mark.usefixtures("one_multiprocessor")
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.text)
def test_odd_tokens_of_one_block(problem: AttentionShape, device: Device) -> None:
    compare(problem, RUNG.operation.inputs(problem, 0), device)


@pytest.mark.parametrize(
    ("problem", "multiprocessors"), [(WHOLE, 132), (AttentionShape(1, 9, 449, 64), 13)], ids=str
)
def test_odd_tokens_of_several_blocks(
    problem: AttentionShape, multiprocessors: int, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks with several units, which share heads. In the second problem an odd number of units is split."""
    monkeypatch.setitem(RULES, "MULTIPROCESSORS", multiprocessors)
    monkeypatch.setitem(RULES, "LEAST_SPLIT", 300)
    compare(problem, RUNG.operation.inputs(problem, 0), device)


def drawn(p: AttentionShape, key: float, late: float) -> Arrays:
    """Normal values. The odd key is multiplied by ``key``, and keys of the second half by ``late``."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((p.B, p.H, p.T, p.d)).astype(np.float16) for _ in range(3))
    k[:, :, p.T // 2 :] *= np.float16(late)
    k[:, :, -1] *= np.float16(key)
    return {"q": q, "k": k, "v": v}


@pytest.mark.usefixtures("one_multiprocessor")
@pytest.mark.parametrize(("key", "late"), [(1, 1), (40, 1), (1, 6), (0, 0), (1, 0)])
@pytest.mark.parametrize("problem", [WHOLE, replace(SPLIT, layout="contiguous")], ids=lambda p: p.text)
def test_odd_keys_and_references(problem: AttentionShape, key: float, late: float, device: Device) -> None:
    compare(problem, drawn(problem, key, late), device)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("one_multiprocessor")
@pytest.mark.parametrize("problem", [replace(WHOLE, H=1), replace(SPLIT, H=2)], ids=lambda p: p.text)
def test_odd_tokens_without_findings(problem: AttentionShape) -> None:
    assert is_own(problem)
    assert not check(RUNG, [problem]).findings
