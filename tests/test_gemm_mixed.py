"""``gemm/v14_mixed``: tiles of two kinds, and problems that it leaves to another rung."""

from dataclasses import replace
from typing import Any

import pytest
from convolutions import kernels, solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import find

RUNG = find("gemm/v14_mixed")
RULES: dict[str, Any] = RUNG.plan.__globals__  # type: ignore[union-attr]
Cut = RULES["Cut"]
PROBLEMS = [  # each with its cut: the numbers of columns of tall tiles, columns of flat tiles, and clusters
    (GemmShape(700, 712, 264, "fp16", "fp16"), Cut(1, 2, 5)),
    (GemmShape(1100, 1000, 200, "fp16", "fp16", batch=2), Cut(1, 3, 7)),  # two bands of flat tiles
    (GemmShape(300, 960, 296, "fp16", "fp16"), Cut(3, 0, 2)),  # the last pair has columns of one block only
    (GemmShape(200, 448, 904, "fp16", "fp16", alpha=0.5), Cut(0, 2, 1)),  # both tiles by one cluster
    *((GemmShape(696, 712, 264, "bf16", "bf16", layout), Cut(1, 2, 5)) for layout in ("tt", "nt", "tn")),
]


@pytest.fixture(autouse=True)
def narrow_bands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bands of two columns, so that small products have several."""
    monkeypatch.setitem(RULES, "BAND", 2)


@pytest.mark.parametrize(("problem", "cut"), PROBLEMS)
def test_both_kinds_of_tiles(
    problem: GemmShape, cut: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: cut)
    assert kernels(RUNG, problem) == ["gemm_mixed"]
    assert solved(RUNG, problem, device).ok


def test_no_finding_in_checked_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: Cut(1, 1, 2))
    assert solved(RUNG, GemmShape(300, 504, 328, "fp16", "fp16"), CheckedEmulator()).ok


@pytest.mark.parametrize(
    ("sizes", "cut"),
    [
        ((8192, 8192, 8192), Cut(20, 2, 64)),  # ten tall tiles and a flat one on each of 128 multiprocessors
        ((4096, 4096, 4096), Cut(8, 4, 64)),
        ((6144, 6144, 6144), Cut(16, 0, 64)),
        ((4096, 4096, 1024), None),  # the end of a large tile takes too long
        ((16384, 1024, 4096), None),  # flat tiles would read all of a once more
        ((4608, 4608, 4608), None),  # rounds of flat tiles are full
        ((2048, 2048, 8192), None),  # one round
        ((256, 65536, 4096), None),
        ((1, 100_000, 4096), None),
    ],
)
def test_the_choice_suits_the_shape(sizes: tuple[int, int, int], cut: Any) -> None:
    assert RULES["choose"](GemmShape(*sizes, "fp16", "fp16")) == cut


@pytest.mark.parametrize("fields", [{"out": "fp32"}, {"beta": 0.5}, {"k": 4095}, {"ldc": 4097}])
def test_other_problems_are_left_to_another_rung(fields: dict[str, Any]) -> None:
    problem = replace(GemmShape(4096, 4096, 4096, "fp16", "fp16"), **fields)
    assert RULES["choose"](problem) is None
    assert kernels(RUNG, problem) == kernels(find("gemm/v15_idle"), problem)


def test_every_cut_covers_all_columns_by_at_most_all_clusters() -> None:
    for n in range(1024, 9000, 136):
        cut, work = RULES["best"](GemmShape(2000, n, 4096, "fp16", "fp16"))
        columns = cut.tall * RULES["TALL"] + cut.flat * RULES["FLAT"]
        assert n <= columns < n + RULES["TALL"]
        assert cut.clusters <= RULES["CLUSTERS"]
        # There are 8 rows of tiles; a tall tile is 1.5 times the work of a flat one
        assert work * cut.clusters >= 8 * (cut.tall * 1.5 + cut.flat)
