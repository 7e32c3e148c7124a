"""bfloat16: every operation rounds once, to nearest even, like ml_dtypes's bfloat16."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from emulator_kernels import Kernels, assert_same_bits, over

from mini_dnn.device.emulator import EmulatorDevice

INT = np.int32
BFLOAT = ml_dtypes.bfloat16
EVERY = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(BFLOAT)
with np.errstate(invalid="ignore"):  # some are signalling NaNs
    WIDE = EVERY.astype(np.float32)
FINITE = WIDE[np.isfinite(WIDE)].astype(np.float64)


@pytest.fixture(scope="module")
def kernels(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, "bfloats.cu")


@pytest.fixture(scope="module")
def operands() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    wild = rng.integers(0, 1 << 16, (2, 20_000)).astype(np.uint16).view(BFLOAT)
    tame = rng.standard_normal((2, 20_000), np.float32).astype(BFLOAT)
    a, b = np.concatenate([wild, tame], axis=1)
    return a.copy(), b.copy()


def test_every_bfloat_to_float_and_back(kernels: Kernels) -> None:
    f, b = np.zeros(EVERY.size, np.float32), np.zeros_like(EVERY)
    kernels("to_float", *over(EVERY.size), EVERY, f, INT(EVERY.size))
    np.testing.assert_array_equal(f, WIDE)
    kernels("from_float", *over(EVERY.size), f, b, INT(EVERY.size))
    assert_same_bits(b, EVERY)


def middles() -> np.ndarray:
    """Midpoints between two neighbours, which float64 represents exactly."""
    return (FINITE[:-1] + FINITE[1:])[np.diff(FINITE) != 0] / 2


def test_rounding_of_floats(kernels: Kernels) -> None:
    x = middles().astype(np.float32)
    ends = np.array([3.4e38, -3.4e38, 1e-45, np.inf, np.nan], np.float32)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(-np.inf)), ends])
    found = np.zeros(x.size, BFLOAT)
    kernels("from_float", *over(x.size), x, found, INT(x.size))
    with np.errstate(over="ignore"):
        assert_same_bits(found, x.astype(BFLOAT))


def test_doubles_are_rounded_once(kernels: Kernels) -> None:
    """Values close to a midpoint, which a conversion to float would round to the midpoint."""
    middle = middles()
    middle = middle[np.abs(middle) < 3e38]
    x = np.concatenate([np.nextafter(middle, np.inf), np.nextafter(middle, -np.inf)])
    found = np.zeros(x.size, BFLOAT)
    kernels("from_double", *over(x.size), x, found, INT(x.size))
    finite = np.unique(FINITE)
    at = np.searchsorted(finite, x)
    low, high = finite[at - 1], finite[np.minimum(at, finite.size - 1)]
    for value, got, below, above in zip(x[::97], found[::97], low[::97], high[::97], strict=True):
        nearest = min((below, above), key=lambda end: abs(Fraction(end) - Fraction(value)))
        assert float(got) == nearest


def test_operators(kernels: Kernels, operands: tuple[np.ndarray, ...]) -> None:
    a, b = operands
    found = np.zeros((a.size, 8), BFLOAT)
    kernels("operators", *over(a.size), a, b, found, INT(a.size))
    with np.errstate(all="ignore"):
        x, y = a.astype(np.float32), b.astype(np.float32)
        expected = [x + y, x - y, x * y, x / y, -x, np.abs(x), np.fmax(x, y), y]
        for at, value in enumerate(expected):
            assert_same_bits(found[:, at].copy(), value.astype(BFLOAT))


def test_pairs(kernels: Kernels, operands: tuple[np.ndarray, ...]) -> None:
    a, b = (x.reshape(-1, 2) for x in operands)
    found = np.zeros((len(a), 3, 2), BFLOAT)
    kernels("pairs", *over(len(a)), a, b, found, INT(len(a)))
    with np.errstate(all="ignore"):
        total = (a.astype(np.float32) + b.astype(np.float32)).astype(BFLOAT)
    assert_same_bits(found[:, 0].copy(), total)
    assert_same_bits(found[:, 1].copy(), a[:, ::-1])
    assert_same_bits(found[:, 2].copy(), np.stack([b[:, 0], a[:, 1]], axis=1))


def test_comparisons(kernels: Kernels, operands: tuple[np.ndarray, ...]) -> None:
    a, b = operands
    found = np.zeros(a.size, np.int32)
    kernels("compare", *over(a.size), a, b, found, INT(a.size))
    with np.errstate(invalid="ignore"):
        x, y = a.astype(np.float32), b.astype(np.float32)
    expected = (x < y) | (x == y) << 1 | (x >= y) << 2 | np.isnan(x) << 3 | np.isinf(x) << 4
    np.testing.assert_array_equal(found, expected)
