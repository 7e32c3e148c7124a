"""``gemm/v15_idle``: large tiles of rows that start anywhere, and columns of b that are copied late."""

from dataclasses import replace
from typing import Any

import pytest
from convolutions import kernels, solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import find

RUNG = find("gemm/v15_idle")
RULES: dict[str, Any] = RUNG.plan.__globals__  # type: ignore[union-attr]
Cut = RULES["Cut"]
PROBLEMS = [  # with cuts: tall and flat columns, clusters, period, columns of the first band, early strips
    (GemmShape(71, 711, 263, "fp16", "fp16"), Cut(1, 2, 3, 16, 1, 1)),
    # Two tiles below each other in a class
    (GemmShape(2100, 391, 261, "fp16", "fp16"), Cut(1, 1, 5, 8, 1, 1)),
    (GemmShape(40, 1537, 201, "bf16", "bf16"), Cut(3, 2, 2, 16, 1, 2)),  # bands of one and two columns
    (GemmShape(64, 960, 299, "fp16", "fp16"), Cut(2, 1, 2)),  # b is read in place
    (GemmShape(65, 449, 906, "fp16", "fp16", alpha=0.5), Cut(0, 2, 1, 8, 1, 2)),  # all of b is copied early
    # Whole strips end where b ends
    (GemmShape(33, 512, 271, "fp16", "bf16", ldb=515), Cut(1, 1, 1, 8, 1, 1)),
]


@pytest.mark.parametrize(("problem", "cut"), PROBLEMS)
def test_all_cuts(problem: GemmShape, cut: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: cut)
    copied = problem.pitches[1] % 8 > 0
    assert kernels(RUNG, problem) == (["copy_early", "gemm_idle"] if copied else ["gemm_idle"])
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.parametrize("k", range(257, 264))
def test_every_start_of_a_row(k: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: Cut(1, 0, 1, 16, 1, 1))
    assert solved(RUNG, GemmShape(19, 300 + k % 7, k, "fp16", "fp16"), device, seed=1).ok


@pytest.mark.exhaustive
def test_no_finding_in_checked_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: Cut(1, 1, 2, 8, 1, 1))
    assert solved(RUNG, GemmShape(30, 503, 265, "fp16", "fp16"), CheckedEmulator(), seed=1).ok


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ((8191, 8191, 8191), Cut(20, 2, 64, 16, 2, 3)),
        ((4095, 4095, 4095), Cut(8, 4, 64, 16, 4, 6)),
        ((1796, 2736, 2103), Cut(6, 2, 64, 8)),  # one round; b is read in place
        ((4097, 4097, 4097), None),  # the last tiles of the classes would have one row
        ((4096, 4096, 4095), None),  # nothing to copy, and flat tiles fill the rounds
        ((3990, 2657, 873), None),  # the end of a large tile takes too long
        ((3000, 1000, 3001), None),
    ],
)
def test_the_choice_suits_the_shape(sizes: tuple[int, int, int], cut: Any) -> None:
    assert RULES["choose"](GemmShape(*sizes, "fp16", "fp16")) == cut


def test_strips_are_copied_before_the_product_unless_there_is_time() -> None:
    early = [RULES["best"](GemmShape(m, 8191, 4095, "fp16", "fp16")).early for m in (2048, 4096, 8192)]
    assert early == sorted(early, reverse=True)
    assert 3 <= early[-1] < early[0] <= 32


@pytest.mark.parametrize(
    "fields",
    [{"layout": "nt"}, {"batch": 2}, {"lda": 8192}, {"k": 8192}, {"out": "fp32"}, {"beta": 0.5}, {"m": 15}],
)
def test_other_problems_are_left_to_another_rung(fields: dict[str, Any]) -> None:
    problem = replace(GemmShape(8191, 8191, 8191, "fp16", "fp16"), **fields)
    assert RULES["choose"](problem) is None
    assert kernels(RUNG, problem) == kernels(find("gemm/v12_eighths"), problem)
