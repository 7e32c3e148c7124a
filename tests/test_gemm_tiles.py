"""gemm/v8_final: every tile that its model may choose, its choices; widths of gemm/v9_fp32; long grids."""

from dataclasses import replace
from typing import Any

import pytest
from convolutions import kernels, planned, solved
from sampling import some_of

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.gemm import OPERATION, GemmShape
from mini_dnn.plans import gemm_halves
from mini_dnn.running import compute
from mini_dnn.variant import find, names

V8 = find("gemm/v8_final")
RULES: dict[str, Any] = V8.plan.__globals__  # type: ignore[union-attr]
TILES = RULES["TILES"]
BY_HAND = [tile for tile in TILES if tile.loaders]
SHAPES = [
    GemmShape(200, 264, 520, "fp16", "fp16"),
    GemmShape(129, 257, 321, "fp16", "fp16"),
    GemmShape(72, 136, 320, "bf16", "fp32", "tt", 2, 0.5, -1.5),
    GemmShape(150, 100, 400, "fp16", "fp16", "tn"),
]
SHORT = [  # operands that end within 16 bytes, with several lines in these
    GemmShape(3, 2, 1, "fp16", "fp16"),
    GemmShape(67, 3, 5, "fp16", "fp32", "nt", 3, 2.0, 1.0),
    GemmShape(9, 131, 2, "bf16", "bf16", "tt"),
    GemmShape(70, 66, 130, "fp16", "fp16", "tn", 2, 1.0, 0.0, 71, 69, 67),
]


def agrees(problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether a tile gives the right result with one cluster at a time, so that a block has several tiles."""
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    if tile.split == 1:
        monkeypatch.setitem(RULES, "AT_ONCE", {tile.cluster: 1})
    return solved(V8, problem, device, seed=1).ok


@pytest.mark.parametrize(("problem", "tile"), some_of(SHAPES, TILES, one_of=4))
def test_every_tile_does_every_shape(
    problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert agrees(problem, tile, device, monkeypatch)


@pytest.mark.parametrize("problem", SHORT, ids=str)
def test_operands_that_end_within_a_piece(
    problem: GemmShape, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tile in BY_HAND:
        if tile.split == 1:
            assert agrees(problem, tile, device, monkeypatch)


@pytest.mark.parametrize(
    ("problem", "tile"),
    [
        (GemmShape(67, 70, 75, "fp16", "fp16"), BY_HAND[2]),
        (GemmShape(35, 150, 69, "fp16", "fp16", "tn", 2), TILES[3]),
        *(
            (GemmShape(130, 137, 135, "bf16", "bf16", "tt"), tile)
            for tile in [tile for tile in TILES if tile.split <= 2][::2]
        ),
    ],
)
def test_no_finding_in_checked_mode(problem: GemmShape, tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert agrees(problem, tile, CheckedEmulator(), monkeypatch)


def test_the_choice_suits_the_shape() -> None:
    def chosen(m: int, n: int, k: int) -> tuple[int, int, int, int, bool]:
        tile = RULES["choose"](GemmShape(m, n, k, "fp16", "fp16"))
        return tile.rows, tile.columns, tile.share, tile.split, tile.loaders > 0

    assert chosen(8192, 8192, 8192) == chosen(2048, 2048, 2048) == (128, 256, 2, 1, False)
    assert chosen(4095, 4095, 4095) == (128, 256, 2, 1, False)
    assert chosen(1024, 1024, 1024) == chosen(1000, 1001, 999) == (64, 128, 1, 1, False)
    assert chosen(512, 512, 512) == (64, 64, 1, 1, False)
    assert chosen(512, 512, 8192) == (64, 64, 1, 2, False)
    assert chosen(22, 510, 34) == (64, 64, 1, 1, True)
    assert chosen(3000, 9, 1500) == (64, 64, 1, 2, True)


def test_odd_operands_are_copied_in_one_launch_or_loaded_by_hand() -> None:
    assert kernels(V8, GemmShape(1000, 1001, 999, "fp16", "fp16")) == ["repitch", "gemm"]
    assert kernels(V8, GemmShape(1000, 1001, 1000, "fp16", "fp16")) == ["repitch", "gemm"]
    assert kernels(V8, GemmShape(100, 100, 100, "fp16", "fp16")) == ["gemm_by_hand"]
    assert kernels(V8, GemmShape(104, 104, 104, "fp16", "fp16")) == ["gemm"]
    far_apart = GemmShape(100, 100, 100, "fp16", "fp16", lda=(1 << 24) + 1)
    assert kernels(V8, far_apart) == ["repitch", "gemm"]


@pytest.mark.parametrize(("rows", "n"), [(1, 193), (7, 1000), (32, 4096), (64, 8192), (3, 100_000)])
def test_widths_of_v9_are_those_of_the_shortest_time(rows: int, n: int) -> None:
    blocks, wide_cost, narrow_cost = gemm_halves.MULTIPROCESSORS, 192, 128 * 1.045

    def busiest(wide: int) -> float:
        narrow = max(0, -(-(n - wide * 192) // 128))
        tiles = [wide_cost] * (rows * wide) + [narrow_cost] * (rows * narrow)
        return max(sum(tiles[i::blocks]) for i in range(blocks))

    wide, narrow, _ = gemm_halves.widths(rows, n, ((128, 1.045),))
    assert wide * 192 + narrow * 128 >= n
    assert busiest(wide) <= min(map(busiest, range(max(0, wide - 40), wide + 20)))


@pytest.mark.parametrize("sizes", [(1, 2_200_000, 8), (16, 4_300_000, 1000), (2, 3, 4_300_000)])
@pytest.mark.parametrize("dtype", ["fp32", "fp16"])
def test_the_grids_of_long_products(sizes: tuple[int, int, int], dtype: str) -> None:
    m, n, k = sizes
    problems = (GemmShape(m, n, k, dtype, dtype), GemmShape(n, m, k, dtype, dtype, "tt"))
    cases = [(rung, p) for rung in map(find, names("gemm")) for p in problems if not rung.limit_for(p)]
    assert len(cases) > 8
    for rung, problem in cases:  # by default, a rung is not used if its own launches exceed a limit
        fits = planned(rung, problem).fits(1 << 60)
        assert fits or rung.limit_of_launches(problem), f"a grid of {rung.name} is too long for {problem}"


def test_a_rung_whose_grid_would_be_too_long_is_not_the_default(
    quick_emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    v9, problem = find("gemm/v9_fp32"), GemmShape(8, 1, 9_000_000)
    monkeypatch.setattr(compute, "preferred", lambda _: [v9, find("gemm/v3_registers")])
    assert compute.best(OPERATION, replace(problem, k=4_000_000), quick_emulator) is v9
    assert compute.best(OPERATION, problem, quick_emulator).name == "gemm/v3_registers"
    assert "split_columns would have a grid of 2 x 140,625 x 1 blocks; CUDA" in v9.limit_of_launches(problem)


def test_widths_of_v9_of_a_million_columns() -> None:
    assert gemm_halves.widths(8, 1_000_000, ((128, 1.045),)) == (5197, 17, 128)
