"""``gemm/v12_eighths``: rows of a that are read in place, and problems that it leaves to another rung."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from convolutions import kernels, solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.runner import run
from mini_dnn.variant import find

RUNG = find("gemm/v12_eighths")
RULES: dict[str, Any] = RUNG.plan.__globals__  # type: ignore[union-attr]
TILES: list[Any] = list(RULES["OWN"])
PROBLEMS = [
    GemmShape(8, 8, 1, "fp16", "fp16"),  # one row in each eighth
    GemmShape(9, 3, 7, "bf16", "bf16"),
    GemmShape(71, 257, 63, "fp16", "fp16"),  # b is copied; c ends with parts of pieces
    # b is read in place, and the eighths differ in their numbers of rows
    GemmShape(150, 264, 129, "fp16", "fp16"),
    GemmShape(64, 128, 68, "fp16", "bf16"),  # c is stored by tensor copies
    GemmShape(72, 300, 65, "bf16", "fp32", "nn", 1, 0.5, -1.5),
    GemmShape(65, 70, 130, "fp16", "fp16", "nn", 1, 2.0, 0.0, 0, 72, 75),  # gaps behind rows of b and c
    GemmShape(1100, 20, 90, "fp16", "fp16"),  # several tiles, one below the other, in each eighth
    GemmShape(40, 600, 450, "fp16", "fp16"),  # more steps than a ring has stages
    GemmShape(515, 20, 33, "fp16", "fp16"),  # tiles of a single row: the 65th of three eighths
]


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: p.text)
def test_eighths(problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    assert kernels(RUNG, problem)[-1] == "gemm_eighths"
    assert ("repitch" in kernels(RUNG, problem)) == bool(problem.pitches[1] % 8)
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.parametrize("k", [k for k in range(1, 72) if k % 8])
def test_every_length_of_a_row(k: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: TILES[-1])
    assert solved(RUNG, GemmShape(19, 30, k, "fp16", "fp16"), device, seed=1).ok


@pytest.mark.parametrize("n", [1, 7, 9, 63, 127, 129, 250])
def test_every_start_of_a_row_of_c(n: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: TILES[0])
    assert solved(RUNG, GemmShape(35, n, 33, "fp16", "fp16", ldc=n + 1), device, seed=1).ok
    assert solved(RUNG, GemmShape(35, n, 33, "fp16", "fp16"), device, seed=1).ok


def test_neighbours_of_a_row_do_not_count(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = GemmShape(64, 64, 63, "fp16", "fp32")
    arrays = dict(RUNG.operation.inputs(problem, seed=1))
    arrays["a"] = arrays["a"] * np.where(np.arange(64) % 2, 8192, 1e-4).astype(np.float16)[:, None]
    monkeypatch.setitem(RULES, "choose", lambda p: TILES[-1])
    c = run(RUNG, problem, arrays, device).outputs["c"][0]
    wanted = arrays["a"][0].astype(np.float64) @ arrays["b"][0].astype(np.float64)
    assert np.abs(c - wanted)[::2].max() < 1e-5 * np.abs(wanted[::2]).max()


@pytest.mark.exhaustive
@pytest.mark.parametrize("number", [0, 3, 5, 6, 8])
def test_no_finding_in_checked_mode(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: TILES[number % len(TILES)])
    assert solved(RUNG, PROBLEMS[number], CheckedEmulator(), seed=1).ok


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        *((sizes, TILES[0]) for sizes in ((4095, 4095, 4095), (8191, 8191, 8191), (4096, 4096, 4095))),
        *((sizes, TILES[0]) for sizes in ((2047, 2047, 2047), (3511, 999, 1775), (3548, 773, 1322))),
        *((sizes, TILES[1]) for sizes in ((2501, 2499, 2503), (1337, 2482, 2969))),
        *((sizes, None) for sizes in ((4095, 4095, 4096), (1000, 1001, 999), (3833, 2052, 691))),
        *((sizes, None) for sizes in ((60, 61, 62), (3, 2308, 3118), (4001, 4001, 9))),
    ],
)
def test_the_choice_suits_the_shape(sizes: tuple[int, int, int], tile: Any) -> None:
    assert RULES["choose"](GemmShape(*sizes, "fp16", "fp16")) is tile


@pytest.mark.parametrize(
    "fields",
    [{"layout": "nt"}, {"layout": "tn"}, {"batch": 2}, {"lda": 4097}, {"k": 4096}, {"dtype": "bf16", "m": 7}],
)
def test_other_problems_are_left_to_another_rung(fields: dict[str, Any]) -> None:
    problem = replace(GemmShape(4095, 4095, 4095, "fp16", "fp16"), **fields)
    assert RULES["choose"](problem) is None
    assert kernels(RUNG, problem) == kernels(find("gemm/v11_ahead"), problem)
