"""gemm/v18_thirds: all tiles, parts of k, what lies beyond an operand, and the choice of a tile."""

from itertools import cycle
from math import inf
from typing import Any

import numpy as np
import pytest
from convolutions import solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.plans.gemm_floats import THIRDS, Thirds, fastest_thirds
from mini_dnn.running.runner import run
from mini_dnn.variant import find

V18 = find("gemm/v18_thirds")
RULES: dict[str, Any] = V18.plan.__globals__  # type: ignore[union-attr]
PROBLEMS = [  # more than one tile in all directions, and a k of more steps than a ring has stages
    GemmShape(70, 132, 580, "fp32", "fp32", "nn", 2),
    GemmShape(65, 70, 515, "fp32", "bf16", "nt", 2, 0.5, -1.5),  # lines that start anywhere
    GemmShape(68, 130, 516, "fp32", "fp16", "tn", 2, 1.0, 0.0, 70, 131, 133),
    GemmShape(72, 140, 516, "fp32", "fp32", "tt", 1, 1.0, 1.0, 76, 520),
]


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """One tile for all problems."""
    monkeypatch.setitem(RULES, "fastest_thirds", lambda p: request.param)
    monkeypatch.setitem(RULES, "microseconds_of_v13", lambda p: inf)


@pytest.mark.parametrize(
    ("forced", "problem"),
    [  # each layout with 64 and with 128 columns
        pytest.param(tile, problem, id=f"{tile.columns}-{tile.split}-{problem.layout}")
        for tile, problem in zip(THIRDS, cycle(PROBLEMS))
    ],
    indirect=["forced"],
)
@pytest.mark.usefixtures("forced")
def test_a_tile(problem: GemmShape, quick_emulator: Device) -> None:
    found = solved(V18, problem, quick_emulator)
    assert found.ok, found


@pytest.mark.parametrize("forced", [Thirds(64, 2)], indirect=True)
@pytest.mark.usefixtures("forced")
def test_no_finding() -> None:
    assert solved(V18, GemmShape(66, 70, 260, "fp32"), CheckedEmulator()).ok


def test_infinity_minus_infinity_is_no_finding() -> None:
    """Even though registers have sums that have no value yet, so that it looks like the use of one."""
    problem = GemmShape(65, 65, 65, "fp32")
    arrays = dict(V18.operation.inputs(problem, 0))
    arrays["a"] = np.full_like(arrays["a"], np.inf)
    run(V18, problem, arrays, CheckedEmulator())


def test_floats_that_thirds_cannot_represent(quick_emulator: Device) -> None:
    """Infinities, values near the largest and smallest float, and sums beyond the largest one."""
    problem = GemmShape(5, 3, 8, "fp32")
    a, b = np.ones((1, 5, 8), np.float32), np.ones((1, 8, 3), np.float32)
    a[0, 0], a[0, 1, 0], a[0, 2], a[0, 3] = 3e38, np.inf, 1.4e-45, 0
    b[0, :, 0], b[0, :, 1] = 1e38, [1e-38, -1e-38] * 4
    found = run(V18, problem, {"a": a, "b": b}, quick_emulator).y[0]
    with np.errstate(over="ignore", invalid="ignore"):
        exact = (a[0].astype(float) @ b[0].astype(float)).astype(np.float32)
    assert exact[1].tolist() == [np.inf] * 3
    np.testing.assert_allclose(found, exact, rtol=1e-6)


@pytest.mark.parametrize(
    ("problem", "columns", "split"),
    [
        (GemmShape(512, 512, 512), 64, 2),
        (GemmShape(256, 256, 256), 64, 4),
        (GemmShape(384, 384, 384), 64, 3),
        (GemmShape(128, 128, 128), 64, 1),
        (GemmShape(197, 768, 768), 128, 4),
        (GemmShape(512, 512, 8192), 64, 2),
        (GemmShape(64, 4096, 4096), 128, 3),  # the columns of b are not in L2
    ],
)
def test_the_fastest_tile_that_was_measured_is_chosen(problem: GemmShape, columns: int, split: int) -> None:
    assert fastest_thirds(problem) == Thirds(columns, split)
    assert not V18.limit_for(problem)


@pytest.mark.parametrize("size", [768, 1024, 1536, 4096])
def test_products_that_are_faster_if_they_are_split_before(size: int) -> None:
    assert V18.limit_for(GemmShape(size, size, size)).endswith("gemm/v13 is faster for this one; use that")
    assert not V18.limit_for(GemmShape(size, size, size, "fp32", "bf16")), "gemm/v13 stores floats only"
