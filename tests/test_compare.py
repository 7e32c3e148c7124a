"""The comparison with float64: what counts as right where there is no finite number to be near."""

import ml_dtypes
import numpy as np
import pytest

from mini_dnn.ops.compare import compare, wrong_elements

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
    """Neither a number for an infinity nor the reverse; and NaN bounds nothing at all."""
    allowed = np.full(3, bound)
    found = np.array([1.0, INF, NAN])
    assert wrong_elements(found, np.array([INF, NAN, 1.0]), allowed).all()
    assert wrong_elements(found[:1], np.array([1.0]), allowed[:1]).all() == np.isnan(bound)
