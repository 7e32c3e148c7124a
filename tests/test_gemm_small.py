"""``gemm/v10_small``: its tiles, its parts of k, vectors (also of floats), and what it leaves to others."""

from dataclasses import replace
from typing import Any

import pytest
from convolutions import SM_90_BYTES, kernels, solved

from mini_dnn.checking.check import check
from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import OPERATION, GemmShape
from mini_dnn.running.compute import best
from mini_dnn.variant import find

RUNG, FLOATS = find("gemm/v10_small"), find("gemm/v17_vectors")
RULES: dict[str, Any] = RUNG.plan.__globals__  # type: ignore[union-attr]
TILES: list[Any] = list(RULES["OWN"])
LONG = next(t for t in TILES if t.kind == RULES["LONG"])
SMALL = [t for t in TILES if t.kind == RULES["SMALL"]]
SHORT = [t for t in TILES if t.kind == RULES["ANYWHERE"] and t.stages == 1]
DEEP = [t for t in TILES if t.kind == RULES["ANYWHERE"] and t.stages > 1]
DEEP += [replace(DEEP[0], **fields) for fields in ({"parts": 1}, {"rows": 64, "parts": 2, "blocks": 3})]
ALIGNED = [  # among them a k of more stages than a ring has, ends within eight elements, and odd rows of c
    GemmShape(40, 72, 712, "fp16", "fp16"),
    GemmShape(33, 50, 70, "fp16", "bf16", "nt", 2, 1.0, 0.0, 72, 72, 51),
    GemmShape(30, 44, 100, "bf16", "fp32", "tn", 2, 0.5, -1.5, 32, 48),
    GemmShape(136, 20, 584, "fp16", "fp16", "tt"),
]
PARTED = [  # each of four blocks gets one step, or more steps than a ring has stages
    GemmShape(72, 130, 270, "fp16", "fp16", "nt", 2, 0.5, 1.0, 272, 272, 133),
    GemmShape(136, 264, 2200, "fp16", "fp16"),
    GemmShape(72, 136, 320, "bf16", "fp32", "tt", 2, 0.5, -1.5),
]
ODD = [  # lines that start at any address
    GemmShape(70, 100, 300, "fp16", "fp16", "nn", 1, 1.0, 0.0, 301, 0, 101),
    GemmShape(3, 131, 401, "fp16", "fp16"),
    GemmShape(33, 50, 277, "bf16", "bf16", "nt", 2, 1.0, 0.0, 279, 278, 51),
    GemmShape(30, 44, 100, "bf16", "fp32", "tn", 2, 0.5, -1.5, 33, 45),
    GemmShape(77, 67, 130, "fp16", "fp16", "tt", 2, 0.5, 1.5),
    GemmShape(2, 3, 1, "fp16", "fp16"),
]
# Each tile is tested with every size in rows, which needs one kernel, and with one or two other forms.
ODD_IN_TILES = [
    pytest.param(problem, tile, id=f"{problem.text}-tile{at}")
    for at, tile in enumerate(DEEP)
    for number, problem in enumerate(ODD)
    if problem.layout == "nn" or (at + number) % 2 == 0
]
COLUMNS = [  # columns of a matrix: whole or partial pieces of eight, with k in one block or in several
    GemmShape(1, 200, 3000, "fp16", "fp16"),
    GemmShape(1, 99, 70, "bf16", "fp32", "nn", 2, 0.5, -1.5, 0, 104),
    GemmShape(77, 1, 600, "fp16", "fp16", "tt", 2, 1.0, 2.0, 80),
    GemmShape(136, 1, 40, "fp16", "bf16", "tn", 1, 1.0, 0.0, 0, 3),
    GemmShape(1, 3000, 300, "fp16", "fp16"),  # wider strips
    GemmShape(1, 5700, 130, "fp16", "fp16"),
    GemmShape(1, 10, 768, "fp16", "fp16"),  # lines that start anywhere
    GemmShape(77, 1, 600, "bf16", "bf16", "tt", 2, 1.0, 2.0, 79),
]
ROWS = [  # rows of a matrix: whole pieces of eight, or a rest; eight elements of the vector at once, or one
    GemmShape(77, 1, 1104, "fp16", "fp16"),
    GemmShape(9, 1, 1003, "bf16", "fp32", "nt", 2, 0.5, -1.5, 1008),
    GemmShape(1, 10, 2070, "fp16", "bf16", "tt", 1, 1.0, 0.0, 3, 2072),
    GemmShape(12, 1, 5, "fp16", "fp16", "nn", 2, 1.0, 2.0, 8, 0, 2),
]


@pytest.mark.parametrize("tile", SMALL)
@pytest.mark.parametrize("problem", ALIGNED, ids=lambda p: p.text)
def test_small_tiles(problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    assert kernels(RUNG, problem) == ["gemm_small"]
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.parametrize(("problem", "tile"), ODD_IN_TILES)
def test_lines_that_start_anywhere(
    problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    assert kernels(RUNG, problem) == ["gemm_anywhere", "add_parts"][: 1 + (tile.parts > 1)]
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.parametrize("tile", SHORT)
@pytest.mark.parametrize("k", [1, 10, 16, 25, 32, 63])
@pytest.mark.parametrize("layout", ["nn", "tt"])
def test_short_sums(k: int, layout: str, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if k > tile.depth:
        pytest.skip("a single stage is for a single step")
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    assert solved(RUNG, GemmShape(83, 161, k, "fp16", "fp16", layout), device, seed=1).ok


@pytest.mark.parametrize("blocks", [1, 132])
@pytest.mark.parametrize("problem", PARTED, ids=lambda p: p.text)
def test_parts(problem: GemmShape, blocks: int, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: LONG)
    monkeypatch.setitem(RULES, "AT_ONCE", {1: blocks})  # a block has one tile, or all tiles
    assert kernels(RUNG, problem) == ["gemm_parts", "add_parts"]
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.parametrize("problem", [*COLUMNS, *ROWS], ids=lambda p: p.text)
def test_a_matrix_times_a_vector(problem: GemmShape, device: Device) -> None:
    assert kernels(RUNG, problem) == ["sum_columns" if problem in COLUMNS else "sum_rows"]
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.parametrize(
    "problem",
    [
        GemmShape(1, 600, 1040),
        GemmShape(1, 70, 130, "fp32", "fp16", "nn", 3, 0.5, -1.0, ldb=71),  # lines that start anywhere
        GemmShape(77, 1, 600),
        GemmShape(9, 1, 1003, "fp32", "bf16", "nt", 2, 0.5, -1.5),
    ],
    ids=lambda p: p.text,
)
def test_floats_are_multiplied_by_a_vector_as_they_are(problem: GemmShape, device: Device) -> None:
    assert kernels(FLOATS, problem) == ["sum_columns" if problem.m == 1 else "sum_rows"]
    assert best(OPERATION, problem, device).name == FLOATS.name
    assert solved(FLOATS, problem, device, seed=1).ok


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("problem", "tile"),
    [
        (ALIGNED[0], SMALL[0]),
        (ALIGNED[2], SMALL[1]),
        (PARTED[0], LONG),
        (ODD[4], DEEP[0]),
        (ODD[2], DEEP[-1]),
        (ODD[5], SHORT[0]),
    ],
)
def test_no_finding_in_checked_mode(problem: GemmShape, tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    assert solved(RUNG, problem, CheckedEmulator(), seed=1).ok


@pytest.mark.exhaustive
def test_products_with_a_vector_have_no_finding() -> None:
    report = check(RUNG, [*COLUMNS[:2], COLUMNS[-1], ROWS[1]])
    assert not report.findings


@pytest.mark.parametrize(
    ("sizes", "tile"),
    [
        *(((128, 128, k), SMALL[0]) for k in (64, 128, 512)),
        *(((256, 256, k), SMALL[1]) for k in (256, 512)),
        *(((64, 2048, 128), SMALL[1]), ((320, 320, 320), SMALL[1]), ((8, 4096, 4096), SMALL[1])),
        ((512, 512, 8192), LONG),
        *(((size, size, size), None) for size in (384, 512, 1024, 2048, 4096)),
        *(
            (sizes, None)
            for sizes in ((511, 513, 515), (1000, 1001, 999), (1551, 3301, 89), (3957, 52, 2967))
        ),
        *(((m, n, k), SHORT[0]) for m, n, k in ((2393, 1061, 10), (4001, 4001, 9))),
        *(((m, n, k), SHORT[1]) for m, n, k in ((3383, 561, 25), (3001, 3001, 31))),
        *(((60, 61, 62), SHORT[3]), ((100, 100, 100), SHORT[4])),
        *(((3, 2308, 3118), DEEP[0]), ((29, 2404, 2394), DEEP[2]), ((5, 5, 4001), DEEP[4])),
    ],
)
def test_the_choice_suits_the_shape(sizes: tuple[int, int, int], tile: Any) -> None:
    assert RULES["choose"](GemmShape(*sizes, "fp16", "fp16")) is tile


def test_the_distances_within_a_tile_that_starts_anywhere_are_below_2_30() -> None:
    for pitch in ((1 << 23) - 1, (1 << 23) + 1, 9_600_001):
        problem = GemmShape(16, pitch, 128, "fp16", "fp16")
        taken = [tile for tile in SHORT + DEEP if tile.takes(problem)]
        assert bool(taken) == (pitch < 1 << 23)
        assert all(max(tile.depth, tile.rows, tile.columns) * pitch < 1 << 30 for tile in taken)


@pytest.mark.parametrize(
    "problem",
    [
        GemmShape(1024, 1024, 1024, "fp16", "fp16"),
        GemmShape(511, 513, 515, "fp16", "fp16"),
        GemmShape(1, 200, 3001, "fp16", "fp16", "nt"),  # a matrix whose rows are not aligned, and a vector
    ],
    ids=lambda p: p.text,
)
def test_other_problems_are_left_to_v8(problem: GemmShape) -> None:
    planned = RUNG.planned(problem, SM_90_BYTES)
    v8 = find("gemm/v8_final").planned(problem, SM_90_BYTES)
    assert [code.source for code in planned.codes] == [v8.source]
    assert kernels(RUNG, problem) == kernels(find("gemm/v8_final"), problem)


def test_every_part_has_its_sums() -> None:
    planned = RUNG.planned(GemmShape(512, 512, 8192, "fp16", "fp16"), SM_90_BYTES)
    assert planned.scratch["partial"].shape == (1, 4, 512, 512)
