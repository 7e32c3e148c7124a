"""gemm/v8_final: every tile that its model may choose, and the choices themselves."""

from collections.abc import Iterator
from typing import Any

import pytest

from mini_dnn.device import Device
from mini_dnn.ops import find as find_operation
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.runner import run
from mini_dnn.running.verify import verify
from mini_dnn.variant import find

V8 = find("gemm/v8_final")
RULES: dict[str, Any] = V8.plan.__globals__  # type: ignore[union-attr]
TILES = RULES["TILES"]
SHAPES = [
    GemmShape(200, 264, 520, "fp16", "fp16"),
    GemmShape(129, 257, 449, "fp16", "fp16"),
    GemmShape(72, 136, 456, "bf16", "fp32", "tt", 2, 0.5, -1.5),
    GemmShape(150, 100, 400, "fp16", "fp16", "tn"),
]


@pytest.fixture(params=TILES, ids=str)
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A tile that is chosen for every problem, and one cluster at a time: a block has several tiles."""
    chosen = request.param
    monkeypatch.setitem(RULES, "choose", lambda p: chosen)
    if chosen.split == 1:
        monkeypatch.setitem(RULES, "AT_ONCE", {chosen.cluster: 1})
    return chosen


@pytest.mark.parametrize("problem", SHAPES, ids=str)
def test_every_tile_does_every_shape(problem: GemmShape, tile: Any, device: Device) -> None:
    operation = find_operation("gemm")
    arrays = operation.inputs(problem, seed=1)
    found = run(V8, problem, arrays, device)
    assert verify(operation, problem, arrays, found.outputs, V8.precision).ok


def test_the_choice_suits_the_shape() -> None:
    def chosen(m: int, n: int, k: int) -> tuple[int, int, int, int]:
        tile = RULES["choose"](GemmShape(m, n, k, "fp16", "fp16"))
        return tile.rows, tile.columns, tile.share, tile.split

    assert chosen(8192, 8192, 8192) == chosen(2048, 2048, 2048) == (128, 256, 2, 1)
    assert chosen(1024, 1024, 1024) == (64, 128, 1, 1)
    assert chosen(512, 512, 512) == (64, 64, 1, 1)
    assert chosen(512, 512, 8192) == (64, 64, 1, 2)
