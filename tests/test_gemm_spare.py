"""gemm/v15_spare: spare blocks that split columns of b, and rows of a that are split in parts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from convolutions import solved
from sampling import exhaustive_unless
from uneven import ZEROS, uneven

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.runner import run
from mini_dnn.running.verify import verify
from mini_dnn.variant import find

V15 = find("gemm/v15_spare")
RULES: dict[str, Any] = V15.plan.__globals__  # type: ignore[union-attr]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two spare blocks and two others, bands of two tiles and short parts, for small products."""
    small = {"MULTIPROCESSORS": 4, "SPARE": 2, "BAND": 1, "FEWEST_ROUNDS": 2, "SPARE_COST": 9.0, "PART": 256}
    for name, value in small.items():
        monkeypatch.setitem(RULES, name, value)
    RULES["suits"].cache_clear()
    yield
    RULES["suits"].cache_clear()


def by_itself(problem: GemmShape) -> GemmShape:
    """The problem, for which the variant needs no other one."""
    assert RULES["suits"](problem), problem
    return problem


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(
    "problem",
    [
        GemmShape(300, 701, 131, "fp32", lda=132, ldb=704),
        # Three bands, the last one shorter
        pytest.param(GemmShape(640, 600, 600, "fp32"), marks=exhaustive_unless(False)),
        # Three strips for a spare block
        pytest.param(GemmShape(256, 900, 1100, "fp32", beta=0.5), marks=exhaustive_unless(False)),
    ],
    ids=str,
)
def test_what_is_split_late(problem: GemmShape, quick_emulator: Device) -> None:
    assert solved(V15, by_itself(problem), quick_emulator).ok


@pytest.mark.usefixtures("few")
def test_rows_whose_parts_differ_widely(quick_emulator: Device) -> None:
    problem = by_itself(GemmShape(200, 500, 1024, "fp32"))
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(problem.arrays[name].shape, np.float32) for name in "ab"}
    arrays["a"] *= np.exp2(rng.integers(-60, 60, (1, 200, 4))).repeat(256, 2).astype(np.float32)
    arrays["a"][:, ::7, 256:512] = 0
    c = run(V15, problem, arrays, quick_emulator).outputs["c"]
    a, b = (arrays[name].astype(np.float64) for name in "ab")
    assert (abs(c - a @ b) <= 4e-7 * 32 * (abs(a) @ abs(b))).all()


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("spread", [21, 35, ZEROS])
def test_small_elements_that_meet_large_ones(spread: int, quick_emulator: Device) -> None:
    problem = by_itself(GemmShape(200, 500, 600, "fp32"))
    arrays = uneven(problem, spread)
    found = verify(V15.operation, problem, arrays, run(V15, problem, arrays, quick_emulator).outputs, "fp32")
    assert found.ok, found


@pytest.mark.usefixtures("few")
def test_no_finding_where_columns_and_parts_are_split_late() -> None:
    assert solved(V15, by_itself(GemmShape(130, 500, 300, "fp32")), CheckedEmulator()).ok


def test_spare_blocks_only_where_columns_are_ready_in_time() -> None:
    suits = RULES["suits"]
    assert suits(GemmShape(4096, 4096, 4096, "fp32"))
    assert suits(GemmShape(8192, 8192, 8192, "fp32"))
    assert not suits(GemmShape(2048, 2048, 2048, "fp32")), "few rounds"
    assert not suits(GemmShape(4096, 4096, 4096, "fp32", layout="nt"))
    assert not suits(GemmShape(4096, 4096, 4096, "fp32", batch=2))
    assert not suits(GemmShape(4096, 4096, 4095, "fp32")), "the copy engine cannot load its rows"
    assert V15.planned(GemmShape(4096, 4096, 4096, "fp32"), 227 * 1024).launches[-1].grid == (132,)
