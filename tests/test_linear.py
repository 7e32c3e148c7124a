"""linear/v1_tiles: every tile that its model may choose, and the choices themselves."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sampling import some_of

from mini_dnn import ops
from mini_dnn.checking.check import check
from mini_dnn.device import Device
from mini_dnn.errors import ShapeError
from mini_dnn.ops.linear import LinearShape
from mini_dnn.running.runner import run
from mini_dnn.running.verify import verify
from mini_dnn.variant import find

LINEAR, V1 = ops.find("linear"), find("linear/v1_tiles")
RULES: dict[str, Any] = V1.plan.__globals__  # type: ignore[union-attr]
TILES = RULES["TILES"]
SHAPES = [
    LinearShape(2, 197, 408, 136, "gelu", "shared", True, True),
    LinearShape(3, 67, 392, 72, "none", "full", False, True),
    LinearShape(100, 2, 203, 200, "none", "none", True, False, "fp32"),
]


@pytest.fixture
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A tile for every problem, with one cluster at a time, so that a block has several tiles."""
    chosen = request.param
    monkeypatch.setitem(RULES, "choose", lambda p: chosen)
    monkeypatch.setitem(RULES, "BLOCKS", chosen.share)
    return chosen


@pytest.mark.parametrize(("problem", "tile"), some_of(SHAPES, TILES, one_of=3), indirect=["tile"], ids=str)
def test_every_tile_does_every_shape(problem: LinearShape, tile: Any, device: Device) -> None:
    arrays = LINEAR.inputs(problem, seed=1)
    found = run(V1, problem, arrays, device)
    result = verify(LINEAR, problem, arrays, found.outputs, V1.precision)
    assert result.ok, str(result)


@pytest.mark.exhaustive
@pytest.mark.parametrize("tile", [TILES[0]], indirect=True, ids=str)
def test_blocks_that_share_lines_are_clean(tile: Any) -> None:
    assert check(V1, [LinearShape(1, 200, 200, 136, "none", "full", False, True)], schedules=["random"]).clean


def test_the_products_of_a_transformer_are_full_rounds() -> None:
    for name in ("patches", "qkv", "out", "up", "down"):
        problem = LINEAR.course[name]
        tile = RULES["choose"](problem)
        assert (tile.rows, tile.columns, tile.share) == (192, 192, 2)
        assert tile.clusters(problem) % 66 == 0
    assert RULES["choose"](LINEAR.course["head"]).rows == 64


def test_what_a_problem_may_not_be() -> None:
    for changes, words in (
        ({"n": 0}, "n = 0"),
        ({"act": "relu"}, "act is 'relu'; expected one of none, gelu"),
        ({"ldx": 7}, "ldx is 7, and a line has 8 elements"),
    ):
        with pytest.raises(ShapeError, match=words):
            LinearShape(**{"N": 1, "T": 2, "n": 8, "k": 8, **changes})
    with pytest.raises(ShapeError, match="x is \\(2, 3\\) float64; expected \\(1, 2, 3\\) float16"):
        LINEAR.of(np.zeros((2, 3)), np.zeros((4, 3)), np.zeros(4))
    with pytest.raises(ShapeError, match="expected x \\(N,T,k\\), x_moments with norm=True"):
        LINEAR.of(np.zeros((2, 3)), np.zeros((4, 3)), np.zeros(4), norm=True)
    problem = LINEAR.check[3]
    arrays = LINEAR.inputs(problem, 0)
    fields = {name: problem.fields[name] for name in ("act", "residual", "norm", "moments")}
    assert LINEAR.of(*arrays.values(), **fields)[0] == problem


@pytest.mark.parametrize("problem", SHAPES[:2], ids=str)
def test_mistakes_are_told_from_the_answer(problem: LinearShape) -> None:
    arrays = LINEAR.inputs(problem, seed=2)
    sentences = []
    for sentence, wrong in LINEAR.mistakes(problem, arrays):
        assert not verify(LINEAR, problem, arrays, wrong, "fp16").ok, sentence
        sentences.append(sentence)
    assert len(sentences) >= 3
