"""The errors of ``attention/v12_accurate`` and ``v13_renewed``, and those of a running maximum."""

from typing import Any

import numpy as np
import pytest
from convolutions import solved

from mini_dnn.checking.check import check
from mini_dnn.device import Device
from mini_dnn.ops import Arrays
from mini_dnn.ops.attention import AttentionShape
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find

ACCURATE, PARENT = find("attention/v12_accurate"), find("attention/v11_odd_token")
each_rung = pytest.mark.parametrize(
    "rung", [ACCURATE, find("attention/v13_renewed")], ids=lambda rung: str(rung.name)
)
PROBLEM = AttentionShape(1, 6, 385, 64)  # two items a head, four blocks of keys and the odd one
RULES: dict[str, Any] = ACCURATE.plan.__globals__  # type: ignore[union-attr]


def normal(p: AttentionShape, wide: float = 1) -> Arrays:
    """Normal values, of which q is `wide` times as large."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((p.B, p.H, p.T, p.d)) for _ in range(3))
    return {"q": np.float16(q * wide), "k": np.float16(k), "v": np.float16(v)}


def with_outlier(p: AttentionShape) -> Arrays:
    """Normal values, but all queries are close to key 300: its weight is a fifth in the mean."""
    arrays = normal(p)
    arrays["q"][..., 0] += 6
    arrays["k"][:, :, 300] = 0
    arrays["k"][:, :, 300, 0] = 7
    return arrays


def scores(arrays: Arrays) -> np.ndarray:
    q, k = (arrays[name].astype(np.float64) for name in "qk")
    found: np.ndarray = q @ k.swapaxes(-1, -2) / 8
    return found


def reference(arrays: Arrays) -> np.ndarray:
    s = scores(arrays)
    weights = np.exp(s - s.max(-1, keepdims=True))
    found: np.ndarray = weights @ arrays["v"].astype(np.float64) / weights.sum(-1, keepdims=True)
    return found


def running_maximum(arrays: Arrays, keys: int = 128) -> np.ndarray:
    """As in cuDNN: exponentials are relative to the largest score so far, and rounded to halves."""
    s = scores(arrays)
    largest = np.maximum.accumulate(
        [s[..., j : j + keys].max(-1, keepdims=True) for j in range(0, s.shape[-1], keys)]
    )
    weights = np.concatenate(
        [
            np.exp(s[..., i * keys : (i + 1) * keys] - m).astype(np.float16) * np.exp(m - largest[-1])
            for i, m in enumerate(largest)
        ],
        -1,
    )
    found: np.ndarray = (weights @ arrays["v"].astype(np.float64) / weights.sum(-1, keepdims=True)).astype(
        np.float16
    )
    return found


def errors(found: np.ndarray, arrays: Arrays) -> tuple[float, float]:
    """The median and the largest one."""
    off = np.abs(found.astype(np.float64) - reference(arrays))
    return float(np.median(off)), float(off.max())


def test_the_median_error_does_not_exceed_that_of_a_running_maximum(device: Device) -> None:
    arrays = normal(PROBLEM)
    median, _ = errors(run(ACCURATE, PROBLEM, arrays, device).outputs["o"], arrays)
    of_parent, _ = errors(run(PARENT, PROBLEM, arrays, device).outputs["o"], arrays)
    of_model, _ = errors(running_maximum(arrays), arrays)
    assert median < of_model < of_parent


@each_rung
def test_the_largest_error_does_not_exceed_that_of_a_running_maximum(rung: Variant, device: Device) -> None:
    arrays = with_outlier(PROBLEM)
    _, largest = errors(run(rung, PROBLEM, arrays, device).outputs["o"], arrays)
    _, of_parent = errors(run(PARENT, PROBLEM, arrays, device).outputs["o"], arrays)
    _, of_model = errors(running_maximum(arrays), arrays)
    assert largest <= 1.02 * of_model < of_parent


@each_rung
def test_wide_scores_and_one_multiprocessor(
    rung: Variant, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References change in nearly every block, and a block computes several items."""
    monkeypatch.setitem(RULES, "MULTIPROCESSORS", 1)
    arrays = normal(PROBLEM, wide=4)
    _, largest = errors(run(rung, PROBLEM, arrays, device).outputs["o"], arrays)
    _, of_model = errors(running_maximum(arrays), arrays)
    assert largest <= 1.1 * of_model


@each_rung
def test_a_tile_that_is_split(rung: Variant, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one of seven. Three warpgroups share its blocks of keys, the last of which is shorter."""
    monkeypatch.setitem(RULES, "MULTIPROCESSORS", 1)
    monkeypatch.setitem(RULES, "LEAST_SPLIT", 300)
    problem = AttentionShape(1, 4, 449, 64)
    assert not rung.planned(problem, 227 * 1024).codes
    assert solved(rung, problem, device).ok


@pytest.mark.exhaustive
@each_rung
def test_accurate_tiles_without_findings(rung: Variant) -> None:
    assert not rung.planned(PROBLEM, 227 * 1024).codes  # of other variants
    assert not check(rung, [AttentionShape(1, 1, 385, 64)]).findings
