"""gemm/v13_split: rows that are split late, and columns that do not stay in registers."""

from typing import Any

import pytest
from convolutions import solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.plans import gemm_halves
from mini_dnn.variant import find

V13 = find("gemm/v13_split")
RULES: dict[str, Any] = V13.plan.__globals__  # type: ignore[union-attr]


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two blocks and bands of one tile, so that small products have rows that are split late."""
    for name, value in {"BAND": 2, "COLUMNS": 2}.items():
        monkeypatch.setitem(RULES, name, value)
    monkeypatch.setattr(gemm_halves, "MULTIPROCESSORS", 2)
    monkeypatch.setitem(RULES, "columns", lambda p: (1, -(-(p.n - 192) // 128), 128))


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("layout", ["nn", "nt"])
def test_rows_that_are_split_late(layout: str, quick_emulator: Device) -> None:
    problem = GemmShape(300, 300, 131, "fp32", layout=layout)
    assert RULES["late"](problem) == 256
    assert solved(V13, problem, quick_emulator).ok


@pytest.mark.usefixtures("few")
def test_rows_that_are_split_late_and_longer_than_a_warp_loads_at_once(quick_emulator: Device) -> None:
    problem = GemmShape(130, 200, 1100, "fp32")
    assert RULES["late"](problem) == 128
    assert solved(V13, problem, quick_emulator).ok


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_tiles_of_64_columns_and_clusters_of_three(
    layout: str, quick_emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "columns", lambda p: (1, 2, 64))
    problem = GemmShape(130, 300, 1300, "fp32", layout=layout, batch=2)  # three blocks do not divide the rows
    launch = RULES["plan"](problem)[0]
    assert (launch.cluster == 3) == (layout != "nt")
    assert solved(V13, problem, quick_emulator).ok


def test_few_tiles_have_64_columns() -> None:
    of = {size: RULES["columns"](GemmShape(size, size, size))[2] for size in (256, 1024, 1280, 2048, 8192)}
    assert of == {256: 64, 1024: 64, 1280: 128, 2048: 128, 8192: 128}


@pytest.mark.exhaustive
@pytest.mark.usefixtures("few")
def test_no_finding_where_rows_are_split_late() -> None:
    problem = GemmShape(130, 200, 20, "fp32")
    assert RULES["late"](problem) == 128
    assert solved(V13, problem, CheckedEmulator()).ok


def test_rows_are_split_late_only_if_they_are_ready_in_time() -> None:
    late = RULES["late"]
    assert late(GemmShape(4096, 4096, 4096, "fp32")) == 4096 - 8 * 128
    assert late(GemmShape(8192, 8192, 8192, "fp32")) == 8192 - 16 * 128
    assert late(GemmShape(8192, 1024, 4096, "fp32")) == 0, "few columns of tiles"
    assert late(GemmShape(4096, 4096, 4096, "fp32", layout="tn")) == 0
    assert late(GemmShape(4096, 4096, 4096, "fp32", batch=2)) == 0


def test_a_k_that_does_not_stay_in_registers(quick_emulator: Device) -> None:
    most = RULES["CLUSTER"] * RULES["STEPS_KEPT"] * 2 * gemm_halves.CHUNK
    assert solved(V13, GemmShape(20, 30, most + 70, "fp32", layout="tn"), quick_emulator).ok
