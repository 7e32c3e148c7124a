"""``gemm/v11_ahead``: its tiles, the choice of one, the loads before its wait, and what others take."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from convolutions import SM_90_BYTES, only_launch, solved

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator, KernelError
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.execute import Execution
from mini_dnn.variant import find

RUNG = find("gemm/v11_ahead")
launch = partial(only_launch, RUNG)
RULES: dict[str, Any] = RUNG.plan.__globals__  # type: ignore[union-attr]
TILES: list[Any] = list(RULES["TILES"])


def rounds(rows: int, columns: int, **shares: Any) -> Any:
    """A tile of several rounds."""
    return RULES["Tile"](RULES["ROUNDS"], rows, columns, **shares)


SINGLE = [tile for tile in TILES if tile.kind == RULES["SINGLE"]]
WHOLE_SUMS = [
    tile for tile in SINGLE if tile.split == 1 and tile.columns == 64 and tile.rows in (16, 32, 64, 128)
]
HALF_SUMS = [tile for tile in SINGLE if tile.split == 2]
SEVERAL = [tile for tile in SINGLE if (tile.rows, tile.columns, tile.split) in ((80, 128, 1), (144, 192, 1))]
WIDE = [tile for tile in TILES if tile.kind == RULES["WIDE"]]
ROUNDS = [
    (rounds(64, 64, share_a=2, halves=True), GemmShape(200, 200, 712, "fp16", "bf16", "nt", 1, 0.5)),
    (rounds(80, 128, share_a=2, share_b=2), GemmShape(264, 200, 264, "bf16", "fp16", "nn", 2, constant="b")),
    (rounds(144, 256, share_b=2, halves=True), GemmShape(300, 264, 72, "fp16", "fp16")),
    (rounds(192, 192), GemmShape(400, 392, 264, "fp16", "fp16")),
    (rounds(96, 64, share_a=4, share_b=2), GemmShape(200, 264, 136, "fp16", "fp16")),
]
SHORTEST = GemmShape(136, 264, 200, "fp16", "fp16")  # smallest k of wide tiles: a step before the last three
# Blocks have 8 or 9 steps, more than a ring has stages
LONG = GemmShape(75, 136, 1096, "fp16", "bf16", "nt", 2, 0.5)
PROBLEMS = [  # all of k at once, or more steps than a ring has stages; ends within tiles
    GemmShape(40, 72, 712, "fp16", "fp16"),
    GemmShape(130, 136, 64, "bf16", "bf16", "nt", 2, 0.5),
    GemmShape(5, 24, 24, "fp16", "bf16", "nn", 3, 1.0, 0.0, 32, 40, 48),
    GemmShape(264, 200, 1096, "bf16", "fp16", "nt", constant="b"),
]


@pytest.mark.parametrize(
    ("tile", "problem"),
    [
        # Half of the pairs: each tile has two problems, and each problem has half of the tiles
        *((tile, problem) for i, tile in enumerate(WHOLE_SUMS) for problem in PROBLEMS[i % 2 :: 2]),
        *((tile, PROBLEMS[3]) for tile in SEVERAL),  # warpgroups
        *((tile, LONG) for tile in (HALF_SUMS[0], HALF_SUMS[2], HALF_SUMS[-1])),
        *((tile, problem) for tile in WIDE for problem in (PROBLEMS[0], SHORTEST, PROBLEMS[3])),
    ],
    ids=lambda value: value.text if isinstance(value, GemmShape) else str(value),
)
def test_tiles(problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    assert launch(problem).kernel == "gemm_ahead"
    assert launch(problem).cluster == tile.split
    assert solved(RUNG, problem, device, seed=1).ok


@pytest.mark.parametrize(("tile", "problem"), ROUNDS, ids=str)
def test_tiles_of_several_rounds(
    problem: GemmShape, tile: Any, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks of one cluster compute all tiles, so that each block has several."""
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    monkeypatch.setitem(RULES, "AT_ONCE", {tile.cluster: 1})
    assert launch(problem).kernel == "gemm_rounds"
    assert launch(problem).grid == (tile.cluster,)
    assert solved(RUNG, problem, device, seed=1).ok


ALONE = [tile for tile in TILES if tile.share_a == tile.share_b == 1 and not tile.halves]


@pytest.mark.parametrize("tile", ALONE, ids=str)
def test_blocks_have_the_shared_memory_that_they_need(tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    of_block = launch(GemmShape(4096, 4096, 4096, "fp16", "fp16")).shared_bytes + 2 * 1024
    assert tile.blocks * of_block <= 228 * 1024  # the system reserves a part, and mbarriers need space, too


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("tile", "problem"),
    [
        (WHOLE_SUMS[-1], PROBLEMS[0]),
        *((tile, PROBLEMS[3]) for tile in (*WHOLE_SUMS[::3], *WIDE)),
        (HALF_SUMS[0], LONG),
        *(ROUNDS[i] for i in (1, 3)),
    ],
    ids=lambda value: value.text if isinstance(value, GemmShape) else str(value),
)
def test_no_finding_in_checked_mode(problem: GemmShape, tile: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "choose", lambda p: tile)
    assert solved(RUNG, problem, CheckedEmulator(), seed=1).ok


SINGLE_TILE, WIDE_TILE = RULES["SINGLE"], RULES["WIDE"]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((512, 512, 512), RULES["Tile"](SINGLE_TILE, 32, 64, 2)),
        ((1024, 1024, 1024), RULES["Tile"](SINGLE_TILE, 128, 64)),
        ((64, 4096, 4096), RULES["Tile"](SINGLE_TILE, 64, 64, split=2)),
        ((275, 880, 3840), RULES["Tile"](SINGLE_TILE, 128, 128, split=4)),
        ((2048, 2048, 2048), RULES["Tile"](WIDE_TILE, 128, 256)),
        ((1500, 2048, 1024), RULES["Tile"](WIDE_TILE, 128, 192)),
        ((6304, 768, 768), rounds(192, 192)),
        ((3592, 480, 3208), rounds(128, 128, share_a=4, share_b=2)),
        ((3136, 2128, 1688), rounds(224, 128, share_a=2, halves=True)),
        ((4096, 4096, 4096), None),
        ((512, 512, 8192), None),
    ],
    ids=str,
)
def test_the_choice_suits_the_shape(sizes: tuple[int, int, int], expected: Any) -> None:
    assert RULES["choose"](GemmShape(*sizes, "fp16", "fp16")) == expected


SQUARE = GemmShape(64, 64, 64, "fp16", "fp16")


def chained(constant: str, b: str, device: Device) -> np.ndarray:
    """c of two products: c of the first product is a of the second, or b."""
    variant, problem = RUNG, replace(SQUARE, constant=constant)
    plans = [find("gemm/v11_ahead").planned(p, SM_90_BYTES) for p in (SQUARE, problem)]
    executions = [Execution(p, device.compile(p.source, p.defines), device) for p in plans]
    arrays = variant.operation.inputs(SQUARE, seed=0)
    first, second = executions
    for name, array in arrays.items():
        device.copy_in(first.buffers[name], array)
        device.copy_in(second.buffers[name], array)
    device.synchronize()
    kept = second.buffers[b]
    second.buffers[b] = first.buffers["c"]
    found = np.empty((1, 64, 64), np.float16)
    try:
        first.kernels()
        second.kernels()
        device.copy_out(second.buffers["c"], found)
    finally:
        second.buffers[b] = kept
        for execution in executions:
            execution.free()
    return found


@pytest.mark.parametrize(("constant", "b"), [("", "b"), ("", "a"), ("b", "a")])
def test_what_a_chain_may_say(constant: str, b: str) -> None:
    arrays = RUNG.operation.inputs(SQUARE, seed=0)
    x, y = (arrays[name][0].astype(np.float64) for name in "ab")
    expected = (x @ y) @ y if b == "a" else x @ (x @ y)
    found = chained(constant, b, CheckedEmulator())
    np.testing.assert_allclose(found[0], expected, rtol=0, atol=0.01 * np.abs(expected).max())


def test_what_is_not_constant_is_found_by_checked_mode() -> None:
    with pytest.raises(KernelError) as caught:
        chained("b", "b", CheckedEmulator())
    found = caught.value.finding
    assert found.kind == "race"
    assert found.what.startswith("gemm_ahead reads c[0, 0, 0]")
    assert "which gemm_ahead writes, before ptx::grid_wait()" in found.what


@pytest.mark.parametrize(
    "problem",
    [
        GemmShape(512, 512, 512, "fp16", "fp32"),
        GemmShape(512, 512, 512, "fp16", "fp16", beta=1.0),
        GemmShape(512, 512, 512, "fp16", "fp16", "tn"),
        GemmShape(512, 511, 512, "fp16", "fp16"),
        GemmShape(1, 512, 512, "fp16", "fp16"),
    ],
    ids=lambda p: p.text,
)
def test_other_problems_are_left_to_v10(problem: GemmShape) -> None:
    planned, v10 = (variant.planned(problem, SM_90_BYTES) for variant in (RUNG, find("gemm/v10_small")))
    assert [s.kernel for s in planned.launches] == [s.kernel for s in v10.launches]
    assert planned.codes[-1].source.parent.name in ("v10_small", "v8_final")


def test_the_last_block_of_a_cluster_has_work() -> None:
    """What the model may choose gives each block of a cluster a row or a column of tiles."""
    problem = GemmShape(300, 264, 712, "fp16", "fp16")
    for tile in (tile for tile in TILES if tile.takes(problem) and tile.kind == RULES["ROUNDS"]):
        m = problem.m // 2 if tile.halves else problem.m
        assert tile.rows * (tile.share_b - 1) < m
        assert tile.columns * (tile.share_a - 1) < problem.n
