"""``gemm/v16_pingpong``: its tiles, in turn and together, the choice of one, and what other rungs take."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from convolutions import kernels, only_launch, solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.plans.gemm_tiles import OF_PLAYERS, TOGETHER, TURNS, Tile
from mini_dnn.variant import find

RUNG = find("gemm/v16_pingpong")
launch = partial(only_launch, RUNG)
RULES: dict[str, Any] = RUNG.plan.__globals__  # type: ignore[union-attr]


def turns(rows: int, columns: int, share_a: int = 1, share_b: int = 1, halves: bool = False) -> Tile:
    """A tile of one warpgroup."""
    return Tile(TURNS, rows, columns, share_a=share_a, share_b=share_b, halves=halves)


def together(rows: int, columns: int, share_a: int = 1, share_b: int = 1, halves: bool = False) -> Tile:
    """A tile of both warpgroups."""
    return Tile(TOGETHER, rows, columns, share_a=share_a, share_b=share_b, halves=halves)


CASES = [  # ends within tiles; sums longer and shorter than the ring; halves, batches, clusters
    (turns(64, 64), GemmShape(200, 200, 712, "fp16", "bf16", "nt", 1, 0.5)),
    (turns(80, 128, 2, 2), GemmShape(264, 200, 264, "bf16", "fp16", "nn", 2, constant="b")),
    (turns(144, 128, 1, 2, True), GemmShape(300, 264, 72, "fp16", "fp16")),
    (turns(192, 128), GemmShape(400, 392, 264, "fp16", "fp16")),
    (turns(32, 64, 4, 2), GemmShape(200, 264, 1160, "fp16", "fp16")),
    (together(96, 128, 2, 2), GemmShape(400, 264, 536, "fp16", "fp16")),
    (together(144, 256, 1, 2, True), GemmShape(300, 392, 328, "fp16", "fp16", "nt")),
]


@pytest.mark.parametrize(("tile", "problem"), CASES, ids=str)
def test_one_cluster_computes_all_tiles(
    problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    monkeypatch.setitem(RULES, "AT_ONCE", {tile.cluster: 1})
    assert launch(problem).kernel == "gemm_pingpong"
    assert launch(problem).grid == (tile.cluster,)
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.parametrize(("tile", "problem"), CASES, ids=str)
def test_each_cluster_has_a_tile(
    problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second warpgroup of a block has nothing to multiply, or both have one tile."""
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    assert launch(problem).grid == (tile.count(problem) * tile.cluster,)
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.exhaustive
@pytest.mark.parametrize(("tile", "problem"), CASES, ids=str)
def test_no_finding_in_checked_mode(problem: GemmShape, tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    monkeypatch.setitem(RULES, "AT_ONCE", {tile.cluster: 1})
    assert solved(RUNG, problem, CheckedEmulator(), seed=1).ok


def test_blocks_have_the_shared_memory_that_they_need(monkeypatch: pytest.MonkeyPatch) -> None:
    for tile in (tile for tile in OF_PLAYERS if tile.cluster == 1 and not tile.halves):
        monkeypatch.setitem(RULES, "choose", lambda p, tile=tile: tile)
        assert launch(GemmShape(4096, 4096, 4096, "fp16", "fp16")).shared_bytes <= 226 * 1024
        assert RULES["stages"](tile) >= 3
        rows, buffers = RULES["pieces"](tile)
        assert tile.rows % rows == 0
        assert buffers in (1, 2)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((3072, 3072, 3072), turns(192, 128, 2)),
        ((6304, 3072, 768), turns(192, 128, 2)),
        ((496, 744, 1136), turns(64, 64, 2, 4)),
        ((1704, 3072, 1672), together(160, 256, 2)),
        ((512, 512, 512), None),
        ((1024, 1024, 1024), None),
        ((2048, 2048, 2048), None),  # one round of wide tiles
        ((4096, 4096, 4096), None),
    ],
    ids=str,
)
def test_the_choice_suits_the_shape(sizes: tuple[int, int, int], expected: Tile | None) -> None:
    assert RULES["choose"](GemmShape(*sizes, "fp16", "fp16")) == expected


@pytest.mark.parametrize(
    "fields", [{"out": "fp32"}, {"beta": 0.5}, {"k": 3071}, {"ldc": 3073}, {"layout": "tn"}]
)
def test_other_problems_are_left_to_another_rung(fields: dict[str, Any]) -> None:
    problem = replace(GemmShape(3072, 3072, 3072, "fp16", "fp16"), **fields)
    assert kernels(RUNG, problem) == kernels(find("gemm/v15_idle"), problem)


def test_the_default_calls_it() -> None:
    problem = GemmShape(3072, 3072, 3072, "fp16", "fp16")
    assert kernels(find("gemm/v14_mixed"), problem) == ["gemm_pingpong"]
