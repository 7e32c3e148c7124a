"""Large outputs are compared in part and audited as a whole."""

from dataclasses import replace

import numpy as np
import pytest

from mini_dnn import ops
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.gemm import GemmShape, answer, bound, sample
from mini_dnn.running.verify import verify

OPERATION = ops.find("gemm")
PROBLEMS = [
    GemmShape(300, 200, 100),
    GemmShape(200, 90, 150, "fp16", "fp16", "tt", 3, 2.0, -0.5, 208, 160, 99),
    GemmShape(200, 70, 150, "bf16", "bf16", "nt", 2),
]
each = pytest.mark.parametrize("problem", PROBLEMS, ids=str)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits, so that these problems are large: a sixteenth of the rows is compared."""
    monkeypatch.setattr("mini_dnn.running.verify.MOST_FLOPS", 1e6)


def solved(problem: GemmShape) -> tuple[ops.Arrays, dict[str, np.ndarray]]:
    arrays = OPERATION.inputs(problem, seed=0)
    return arrays, {"c": answer(problem, arrays)["c"].astype(problem.arrays["c"].dtype)}


@each
def test_what_is_right_is_right(problem: GemmShape) -> None:
    arrays, outputs = solved(problem)
    result = verify(OPERATION, problem, arrays, outputs, "fp16")
    assert result.ok
    assert 0 < result.elements < outputs["c"].size / 4
    assert "rows of c compared, all of it audited" in str(result)


@each
def test_a_sample_is_a_problem_by_itself(problem: GemmShape, rng: np.random.Generator) -> None:
    arrays, outputs = solved(problem)
    some = sample(problem, arrays, outputs, 0.1, rng)
    assert len(some.rows) == problem.m // 10
    assert (some.rows[0], some.rows[-1]) == (0, problem.m - 1)
    assert {n: a.shape for n, a in some.problem.arrays.items()} == {
        n: a.shape for n, a in {**some.arrays, **some.outputs}.items()
    }
    expected = answer(some.problem, some.arrays)
    np.testing.assert_array_equal(some.outputs["c"], outputs["c"][:, some.rows])
    assert compare_all(some.outputs, expected, bound(some.problem, some.arrays, "fp32")).ok


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_rows_are_all_compared(m: int, rng: np.random.Generator) -> None:
    problem = replace(PROBLEMS[0], m=m)
    assert list(sample(problem, *solved(problem), 0.0, rng).rows) == sorted({0, m - 1})


@each
def test_one_wrong_element_is_found_wherever_it_is(problem: GemmShape) -> None:
    arrays, outputs = solved(problem)
    off = outputs["c"].dtype.type(np.nanstd(outputs["c"].astype(float)))
    for row in (0, problem.m // 2, problem.m // 3, problem.m - 1):
        wrong = {"c": outputs["c"].copy()}
        wrong["c"][-1, row, 60] += off
        result = verify(OPERATION, problem, arrays, wrong, "fp16")
        assert not result.ok
        if result.first is None:
            assert str(result).startswith("1 sums over a few columns of c differ")
        else:
            assert result.first == (problem.batch - 1, row, 60)
        assert row not in (0, problem.m - 1) or result.first is not None


def test_a_part_of_the_batch_and_a_part_of_its_rows() -> None:
    problem = GemmShape(80, 90, 100, batch=40)
    arrays, outputs = solved(problem)
    outputs["c"][3] = 0  # not one of the compared rows
    assert verify(OPERATION, problem, arrays, outputs, "fp32", entries=4).ok
    outputs["c"][38, 79, 5] += 1
    result = verify(OPERATION, problem, arrays, outputs, "fp32", entries=4)
    assert result.first == (38, 79, 5)
    assert "3 of 80 rows" in result.how


def test_infinities_are_compared_one_by_one() -> None:
    problem = PROBLEMS[0]
    arrays, _ = solved(problem)
    arrays["a"][0, 7, 9] = np.inf  # type: ignore[index]
    outputs = {"c": answer(problem, arrays)["c"].astype(np.float32)}
    result = verify(OPERATION, problem, arrays, outputs, "fp32")
    assert (result.ok, result.elements, result.how) == (True, outputs["c"].size, "")
    outputs["c"][0, 7, 5] = 0
    assert verify(OPERATION, problem, arrays, outputs, "fp32").first == (0, 7, 5)


def test_small_outputs_are_compared_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.running.verify.MOST_FLOPS", 1e9)
    problem = PROBLEMS[0]
    result = verify(OPERATION, problem, *solved(problem))
    assert (result.ok, result.elements, result.how) == (True, problem.m * problem.n, "")


def test_progress_is_reported() -> None:
    seen: list[int] = []
    verify(OPERATION, PROBLEMS[1], *solved(PROBLEMS[1]), "fp16", progress=seen.append)
    assert seen == [3]
