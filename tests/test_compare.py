"""The comparison with float64: which results are right if the expected number is not finite."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mini_dnn import ops
from mini_dnn.checking.judge import Example
from mini_dnn.errors import VariantError
from mini_dnn.ops.compare import PRECISIONS, compare, compare_all, wrong_elements
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.conv2d_relu_pool import ConvPoolShape
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.ops.problem import Array
from mini_dnn.ops.softmax import Rows
from mini_dnn.running.verify import verify

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
@pytest.mark.parametrize(
    ("found", "expected", "right"),
    [
        (1.0, 1.0, True),
        (1.0, 2.0, False),
        (INF, INF, True),
        (-INF, -INF, True),
        (INF, -INF, False),
        (NAN, NAN, True),
        (-NAN, NAN, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (INF, 1.0, False),
        (1.0, INF, False),
        (INF, NAN, False),
        (NAN, INF, False),
    ],
)
def test_infinities_and_nan(dtype: type, found: float, expected: float, right: bool) -> None:
    y = np.array([[0.0, found]], dtype)
    result = compare(y, np.array([[0.0, expected]]), np.full((1, 2), 1e-3))
    assert (result.ok, result.differing) == (right, int(not right))
    assert result.first == (None if right else (0, 1))
    assert np.isfinite(result.max_error)
    assert np.isfinite(result.worst_ratio)
    are_finite = bool(np.isfinite([found, expected]).all())
    assert ("max error" in str(result)) == (right or are_finite), (
        "an error of 0 would look like a right result"
    )


@pytest.mark.parametrize(
    ("dtype", "expected", "right"),
    [
        (np.float16, 70_000.0, True),
        (np.float16, -70_000.0, False),
        (np.float16, 65_000.0, False),
        (ml_dtypes.bfloat16, 70_000.0, False),
        (ml_dtypes.bfloat16, 3.4e38, True),
        (np.float32, 1e39, True),
        (np.float32, 3e38, False),
    ],
)
def test_a_number_that_the_type_cannot_hold_is_infinite(dtype: type, expected: float, right: bool) -> None:
    found = np.array([INF], dtype)
    allowed = np.array([abs(expected) * 2.0**-11])
    assert compare(found, np.array([expected]), allowed).ok is right


def test_the_largest_number_in_its_place_is_wrong() -> None:
    assert wrong_elements(np.float16([65_504]), np.array([70_000.0]), np.array([40.0])).all()


@pytest.mark.parametrize("bound", [NAN, INF])
def test_a_bound_that_is_no_number_lets_nothing_special_pass(bound: float) -> None:
    """It accepts neither a number for an infinity nor the reverse, and NaN is never a bound."""
    allowed = np.full(3, bound)
    found = np.array([1.0, INF, NAN])
    assert wrong_elements(found, np.array([INF, NAN, 1.0]), allowed).all()
    assert wrong_elements(found[:1], np.array([1.0]), allowed[:1]).all() == np.isnan(bound)


PROBLEMS = {
    "conv2d": ConvShape(2, 3, 9, 8, 4, 3, 3),
    "conv2d_relu_pool": ConvPoolShape(2, 3, 9, 8, 4, 3, 3, pool=2),
    "gemm": GemmShape(9, 7, 20),
    "softmax": Rows(4, 9),
}


class Places(Rows):
    """Two outputs, one of them with whole numbers."""

    @property
    def arrays(self) -> Mapping[str, Array]:
        of_row = {"y": Array((self.N,), axes="n", role="out"), "at": Array((self.N,), "int32", "out", "n")}
        return {**super().arrays, **of_row}


def test_whole_numbers_are_compared_and_explained() -> None:
    """Results of int32, such as positions and counts, which are exact."""
    places, right = np.array([0, 3, 2], np.int32), np.array([0.0, 5.0, 2.0])
    assert compare(places, right, np.full(3, 0.5)).differing == 1
    assert compare(places, np.array([0.0, NAN, 2.0]), np.full(3, 0.5)).differing == 1

    def mistakes(problem: Rows, arrays: Any) -> Any:
        yield "all places are one too large", {"y": right, "at": right + 1}
        yield "the search ends after four values", {"y": right, "at": np.array([0.0, 3.0, 2.0])}

    operation = replace(
        ops.find("softmax"),
        answer=lambda problem, arrays: {"y": right, "at": right},
        bound=lambda problem, arrays, precision: {"y": np.full(3, 0.5), "at": np.full(3, 0.5)},
        mistakes=mistakes,
        cure="",
    )
    example = Example(operation, Places(3, 1), {}, "fp32")
    found = example.judge({"y": right.astype(np.float32), "at": places})
    assert found is not None
    assert found.what.startswith(
        "1 of 3 elements of at (3,) differ from float64; the first is at[n=1]: found 3"
    )
    assert found.notes == ("the result is the same as when the search ends after four values",)
    assert found.cure == "compare the kernel with the definition, answer() in mini_dnn/ops/softmax.py"


def test_an_output_without_an_answer_is_no_right_one() -> None:
    outputs, allowed = {"y": np.zeros(3), "at": np.zeros(3)}, {"y": np.ones(3), "at": np.ones(3)}
    with pytest.raises(VariantError, match="the answer of the operation has y; expected all outputs: y, at"):
        compare_all(outputs, {"y": np.zeros(3)}, allowed)
    with pytest.raises(VariantError, match="the bound of the operation has y; expected all outputs: y, at"):
        compare_all(outputs, outputs, {"y": np.ones(3)})


def of_problem(op: str) -> tuple[Any, Any, dict[str, np.ndarray]]:
    operation, problem = ops.find(op), PROBLEMS[op]
    return operation, problem, dict(operation.inputs(problem, seed=1))


def rounded(outputs: Any) -> dict[str, np.ndarray]:
    with np.errstate(over="ignore"):
        return {name: values.astype(np.float32) for name, values in outputs.items()}


@pytest.mark.parametrize("size", [1e-38, 1e-12, 1e-7, 1e-3, 1.0, 1e7])
@pytest.mark.parametrize("precision", ["fp32", "tf32"])
@pytest.mark.parametrize("op", ["conv2d", "conv2d_relu_pool", "gemm"])
def test_zeros_are_wrong_for_small_inputs(op: str, precision: str, size: float) -> None:
    """TF32 has the range of fp32, so small operands lose only their last bits."""
    operation, problem, arrays = of_problem(op)
    first = next(iter(arrays))
    arrays[first] = np.abs(arrays[first]) * np.float32(size)
    expected, bound = operation.answer(problem, arrays), operation.bound(problem, arrays, precision)
    right, zeros = rounded(expected), {name: np.zeros_like(y) for name, y in rounded(expected).items()}
    assert compare_all(right, expected, bound).ok
    assert not compare_all(zeros, expected, bound).ok
    if operation.audit:
        rng = np.random.default_rng(0)
        assert not operation.audit(problem, arrays, right, precision, rng)
        assert operation.audit(problem, arrays, zeros, precision, rng) or size < 1e-30


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("bad", [INF, -INF, NAN])
@pytest.mark.parametrize("op", PROBLEMS)
def test_one_odd_input_excuses_nothing(op: str, bad: float, precision: str) -> None:
    """What depends on the odd input must be as odd as in float64, and all other results keep their bound."""
    operation, problem, arrays = of_problem(op)
    first = next(iter(arrays))
    arrays[first].flat[arrays[first].size // 2] = bad
    with np.errstate(invalid="ignore"):
        expected = operation.answer(problem, arrays)
        right = rounded(expected)
        assert verify(operation, problem, arrays, right, precision).ok
        (name, y), (want,) = next(iter(right.items())), expected.values()
        odd = ~np.isfinite(want)
        assert odd.any() or (bad == -INF and op in ("softmax", "conv2d_relu_pool"))
        for at in np.argwhere(odd)[:3]:
            wrong = y.copy()
            wrong[tuple(at)] = 1.0
            found = verify(operation, problem, arrays, {name: wrong}, precision)
            assert (found.differing, found.first) == (1, tuple(at))
        wrong = np.where(odd, y, y + np.float32(1.0))
        assert verify(operation, problem, arrays, {name: wrong}, precision).differing == (~odd).sum()
