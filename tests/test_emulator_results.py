"""Results for NaN, zeros and numbers out of range, as PTX defines them. A GPU runs the same kernels."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import Kernels

from mini_dnn.device import Device
from mini_dnn.device.base import Scalar

NAN, INFINITY = np.float32(np.nan), np.float32(np.inf)
MINUS_ZERO, PLUS_ZERO = 0x80000000, 0
LOWEST = 1 << 63  # the bits of the lowest integer


@pytest.fixture
def kernels(device: Device) -> Kernels:
    return Kernels(device, "results.cu")  # type: ignore[arg-type]


def results(
    kernels: Kernels, kernel: str, count: int, *args: Scalar, kind: type = np.uint32
) -> list[int | float]:
    out = np.zeros(count, kind)
    kernels(kernel, (1,), (1,), out, *args)
    return list(out.tolist())


def test_comparisons_of_nan_are_false_except_the_operator(kernels: Kernels) -> None:
    assert results(kernels, "comparisons", 6, NAN) == [0, 1, 0, 0, 0, 1]


def test_halves_have_one_nan(kernels: Kernels) -> None:
    one, two = 0x3C00, 0x4000
    arithmetic = [0x7FFF] * 6 + [one, 0x7FFF]
    relu = [0x7FFF, 0, two, 0x7FFF, 0]
    assert results(kernels, "halves", 13, NAN, INFINITY) == arithmetic + relu


@pytest.mark.parametrize(
    ("bits", "half", "bfloat"),  # as an H100 converts them
    [
        (0x7FF8000000000000, 0x7E00, 0x7FC0),
        (0xFFF8000000000000, 0xFE00, 0xFFC0),
        (0x7FFFFFFFFFFFFFFF, 0x7FFF, 0x7FFF),
        (0x7FF0000000000001, 0x7E00, 0x7FC0),
        (0x7FF4000000000000, 0x7F00, 0x7FE0),
        (0xFFFC123456789ABC, 0xFF04, 0xFFE0),
    ],
)
def test_a_nan_of_a_double_keeps_its_highest_digits(
    kernels: Kernels, bits: int, half: int, bfloat: int
) -> None:
    assert results(kernels, "nan_of_doubles", 3, np.uint64(bits)) == [half, half, bfloat]


def test_conversions_of_nan(kernels: Kernels) -> None:
    found = results(kernels, "conversions", 6, NAN, np.float64(np.nan), kind=np.uint64)
    lowest_int = (1 << 64) - (1 << 31)
    assert found == [0, 0, LOWEST, LOWEST, lowest_int, LOWEST]


def test_plus_zero_is_larger_than_minus_zero(kernels: Kernels) -> None:
    largest = [PLUS_ZERO] * 5 + [MINUS_ZERO] + [PLUS_ZERO] * 5
    smallest = [MINUS_ZERO] * 6
    assert results(kernels, "zeros", 19, np.float32(0), np.float32(-0.0), NAN) == [
        *(largest + smallest),
        *(0, 0x8000),
    ]


def test_fast_quotients_by_large_divisors_and_functions_of_large_numbers(kernels: Kernels) -> None:
    found = results(kernels, "quotients", 8, np.float32(2.0**127), kind=np.float32)
    assert found[:7] == [2.0**-125, 0, 0, 2, 0, 0, 2.0**127]
    assert found[7] == pytest.approx(math.erfc(12 / math.sqrt(2)) * 2.0**108, rel=5 * 2.0**-23)


def test_bytes_of_words_and_what_printf_returns(kernels: Kernels) -> None:
    found = results(kernels, "words", 4, np.uint32(0xFF))
    assert found == [255 + 5, 4, 2, 0]


@pytest.mark.parametrize(
    ("values", "same"), [((NAN, NAN), True), ((np.float32(0), np.float32(-0.0)), False), ((1, 1), True)]
)
def test_matches_compare_bits(kernels: Kernels, values: tuple[float, float], same: bool) -> None:
    out = np.zeros(32, np.uint32)
    kernels("matches", (1,), (32,), out, *(np.float32(value) for value in values))
    assert out.tolist() == [0xFFFFFFFF if same else 0x55555555 << lane % 2 for lane in range(32)]


def test_rounding_in_a_direction(kernels: Kernels) -> None:
    rng = np.random.default_rng(0)
    x = (rng.standard_normal(64) * 10.0 ** rng.integers(-4, 5, 64)).astype(np.float32)
    x[:4] = 1, -1, 1e-30, -70000
    found = np.zeros((64, 6, 3), np.float32)
    kernels("directed", (1,), (64,), x, found, np.int32(64))
    kinds = [np.float32] * 4 + [np.float16, ml_dtypes.bfloat16]
    for a, b, row in zip(x, np.roll(x, -1), found, strict=True):
        p, q = Fraction(float(a)), Fraction(float(b))
        for exact, kind, ends in zip([p + q, p * q, p / q, p * q - p, p, p], kinds, row, strict=True):
            down, up, toward_zero = ends.tolist()
            assert down <= exact <= up
            assert up in (down, np.nextafter(kind(down), kind(np.inf)))
            assert toward_zero == (down if exact > 0 else up)
    assert np.signbit(found[0, 0]).tolist() == [True, False, False]  # 1 - 1


def test_bfloats_are_rounded_once(kernels: Kernels) -> None:
    found = results(kernels, "fused", 6, np.float32(2.0**-100), np.int64(1), kind=np.float32)
    assert found == [262, 258, 260, 1, 1, 1]
