"""gemm/v19_fma: all tiles, parts of k, what lies beyond an operand, and the choice of a tile."""

from dataclasses import replace
from itertools import cycle
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from convolutions import only_launch, solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.runner import run
from mini_dnn.variant import find

V19 = find("gemm/v19_fma")
RULES: dict[str, Any] = V19.plan.__globals__  # type: ignore[union-attr]
Tile, choose = RULES["Tile"], RULES["choose"]
PROBLEMS = [  # more than one tile in all directions, and parts of k that end within a stage
    GemmShape(70, 132, 300, "fp32", "fp32", "nn", 2),
    GemmShape(65, 70, 301, "fp32", "bf16", "nt", 2, 0.5, -1.5),  # lines that start anywhere
    GemmShape(68, 130, 292, "fp32", "fp16", "tn", 2, 1.0, 0.0, 70, 131, 132),  # a gap of c in fours
    GemmShape(72, 140, 300, "fp32", "fp32", "tt", 1, 1.0, 1.0, 76, 304),
]
SLOW = SimpleNamespace(microseconds=lambda p: np.inf)
PARTS = cycle((1, 2, 3, 8, 6, 4, 1))  # of k, so that each tile has some of them


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """One tile for all problems, however long they would take."""
    monkeypatch.setitem(RULES, "choose", lambda p: request.param)
    monkeypatch.setitem(RULES, "fastest_thirds", lambda p: SLOW)
    monkeypatch.setitem(RULES, "microseconds_of_v13", SLOW.microseconds)


@pytest.mark.parametrize(
    ("forced", "problem"),
    [
        pytest.param(tile, problem, id=f"{tile.rows}-{tile.columns}-{tile.split}-{problem.layout}")
        for rows in RULES["SIDES"]
        for columns in RULES["SIDES"]
        for problem in PROBLEMS
        for tile in [Tile(rows, columns, next(PARTS))]
    ],
    indirect=["forced"],
)
@pytest.mark.usefixtures("forced")
def test_a_tile(problem: GemmShape, quick_emulator: Device) -> None:
    found = solved(V19, problem, quick_emulator)
    assert found.ok, found


@pytest.mark.parametrize("forced", [Tile(16, 16, 2), Tile(64, 64, 1)], indirect=True)
@pytest.mark.usefixtures("forced")
def test_no_finding() -> None:
    assert solved(V19, GemmShape(66, 70, 290, "fp32"), CheckedEmulator()).ok


@pytest.mark.parametrize("name", ["gemm/v18", "gemm/v19"])
def test_an_operand_that_the_previous_launch_writes(name: str) -> None:
    """It may still be running, so a kernel that reads the operand too early is reported."""
    problem, rung = GemmShape(33, 36, 36), find(name)
    launch = only_launch(rung, problem)
    sizes = launch.args[4:]
    steps = [replace(launch, args=(*given, *sizes)) for given in (("a", "b", "t", "t"), ("t", "b", "c", "c"))]
    twice = replace(rung, plan=lambda p: steps, scratch=lambda p: {"t": p.arrays["c"].shape})
    given = rung.operation.inputs(problem, 0)
    a, b = (given[operand].astype(float) for operand in "ab")
    found = run(twice, problem, given, CheckedEmulator()).y
    np.testing.assert_allclose(found, a @ b @ b, rtol=0, atol=1e-4)


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 64, 65, 128, 129])
def test_a_short_sum(k: int, quick_emulator: Device) -> None:
    """It needs only some of the stages."""
    found = solved(V19, GemmShape(5, 7, k, "fp32"), quick_emulator)
    assert found.ok, found


def test_extreme_floats(quick_emulator: Device) -> None:
    """Infinities, and products that are subnormal."""
    a, b = np.ones((1, 3, 8), np.float32), np.ones((1, 8, 2), np.float32)
    a[0, 0, 0], a[0, 1], b[0, :, 1] = np.inf, 1e-20, 1e-20
    found = run(V19, GemmShape(3, 2, 8, "fp32"), {"a": a, "b": b}, quick_emulator).y[0]
    np.testing.assert_allclose(found, (a[0].astype(float) @ b[0]).astype(np.float32), rtol=1e-5)


@pytest.mark.parametrize(
    ("problem", "tile"),
    [
        (GemmShape(128, 128, 128), (16, 16, 1)),
        (GemmShape(256, 256, 256), (16, 32, 1)),
        (GemmShape(16, 16, 4096), (16, 16, 8)),
        (GemmShape(16, 4096, 4096), (16, 64, 2)),
        (GemmShape(4096, 16, 4096), (64, 16, 2)),
        (GemmShape(100, 100, 3000), (16, 64, 8)),
        (GemmShape(2288, 2016, 16), (64, 64, 1)),
    ],
)
def test_the_fastest_tile_that_was_measured_is_chosen(problem: GemmShape, tile: tuple[int, int, int]) -> None:
    assert choose(problem) == Tile(*tile)
    assert not V19.limit_for(problem)


@pytest.mark.parametrize(
    ("problem", "faster"),
    [
        (GemmShape(384, 384, 384), "gemm/v18"),
        (GemmShape(64, 4096, 4096), "gemm/v18"),
        (GemmShape(2048, 2048, 2048), "gemm/v13"),
    ],
)
def test_products_for_which_another_rung_is_faster(problem: GemmShape, faster: str) -> None:
    assert V19.limit_for(problem).endswith(f"{faster} is faster for this one; use that")
