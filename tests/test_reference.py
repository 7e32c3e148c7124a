"""The comparison that every check uses accepts right results and rejects wrong ones."""

import numpy as np
import pytest
from convolutions import compare_conv2d

from mini_dnn.ops.conv2d import conv2d_float64

SHAPES = [((3, 2, 9, 7), (5, 2, 3, 2)), ((2, 1, 30, 30), (4, 1, 7, 7)), ((1, 40, 6, 6), (3, 40, 5, 5))]


@pytest.fixture(params=SHAPES, ids=str)
def case(request: pytest.FixtureRequest, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    x_shape, w_shape = request.param
    return rng.standard_normal(x_shape, np.float32), rng.standard_normal(w_shape, np.float32)


def naive(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """The convolution by its definition, in float64."""
    N, _, H, W = x.shape
    M, _, R, S = w.shape
    y = np.zeros((N, M, H - R + 1, W - S + 1))
    for n, m, p, q in np.ndindex(*y.shape):
        y[n, m, p, q] = np.sum(x[n, :, p : p + R, q : q + S].astype(np.float64) * w[m])
    return y


def test_reference_is_the_definition(case: tuple[np.ndarray, np.ndarray]) -> None:
    assert np.allclose(conv2d_float64(*case), naive(*case), rtol=1e-12, atol=1e-12)


def test_fp32_passes(case: tuple[np.ndarray, np.ndarray]) -> None:
    x, w = case
    assert compare_conv2d(x, w, naive(x, w).astype(np.float32)).ok


def test_fp16_operands_fail_as_fp32_and_pass_as_fp16(case: tuple[np.ndarray, np.ndarray]) -> None:
    x, w = case
    y = naive(x.astype(np.float16), w.astype(np.float16)).astype(np.float32)
    assert not compare_conv2d(x, w, y, "fp32").ok
    assert compare_conv2d(x, w, y, "fp16").ok


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_fails(case: tuple[np.ndarray, np.ndarray], bad: float) -> None:
    x, w = case
    y = naive(x, w).astype(np.float32)
    y[-1, 2, 1, 0] = bad
    result = compare_conv2d(x, w, y, "fp16")
    assert not result.ok
    assert (result.differing, result.first) == (1, (len(x) - 1, 2, 1, 0))


def test_report_counts_and_names_the_first(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((300, 1, 4, 4), np.float32), rng.standard_normal((2, 1, 2, 2), np.float32)
    y = naive(x, w).astype(np.float32)
    y[270, 1, 2, 0] += 0.5  # beyond the first part that is compared
    y[299, 0, 0, 1] -= 0.5
    result = compare_conv2d(x, w, y)
    assert (result.differing, result.first) == (2, (270, 1, 2, 0))
    assert str(result).startswith(
        "2 of 5400 elements differ from float64; the first at (270, 1, 2, 0): found"
    )


@pytest.mark.parametrize("wrong", ["transposed filter", "next row", "missing tap"])
def test_small_index_errors_fail(rng: np.random.Generator, wrong: str) -> None:
    x, w = rng.standard_normal((2, 2, 12, 12), np.float32), rng.standard_normal((3, 2, 5, 5), np.float32)
    if wrong == "transposed filter":
        y = naive(x, w.transpose(0, 1, 3, 2))
    elif wrong == "next row":
        y = naive(np.roll(x, 1, axis=2), w)
    else:
        without = w.copy()
        without[0, 0, 4, 4] = 0
        y = naive(x, without)
    assert not compare_conv2d(x, w, y.astype(np.float32), "fp16").ok


def test_zeros_are_right_for_zeros() -> None:
    x, w = np.zeros((1, 1, 3, 3), np.float32), np.zeros((1, 1, 2, 2), np.float32)
    assert compare_conv2d(x, w, np.zeros((1, 1, 2, 2), np.float32)).ok
    assert not compare_conv2d(x, w, np.full((1, 1, 2, 2), 1e-3, np.float32)).ok
