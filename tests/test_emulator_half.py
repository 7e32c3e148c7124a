"""half and half2: every operation rounds once, to nearest even, as NumPy's float16 does."""

import ctypes
import platform
import subprocess
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from emulator_kernels import Kernels, assert_same_bits, over

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import INCLUDE

INT = np.int32
EVERY = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16).view(np.float16)


@pytest.fixture(scope="module")
def kernels(emulator: EmulatorDevice) -> Kernels:
    return Kernels(emulator, "halves.cu")


def test_every_half_to_float_and_back(kernels: Kernels) -> None:
    f, h = np.zeros(EVERY.size, np.float32), np.zeros_like(EVERY)
    kernels("to_float", *over(EVERY.size), EVERY, f, INT(EVERY.size))
    np.testing.assert_array_equal(f, EVERY.astype(np.float32))
    kernels("from_float", *over(EVERY.size), f, h, INT(EVERY.size))
    assert_same_bits(h, EVERY)


def rounding_cases(kind: type) -> np.ndarray:
    """Midpoints between two halves, their neighbours on both sides, and the ends of the range."""
    finite = EVERY[np.isfinite(EVERY)].astype(kind)
    middles = (finite[:-1] + finite[1:])[np.diff(finite) != 0] / kind(2)
    ends = np.array([65519.99, 65520, 1e9, -1e30, 2.0**-25, 2.0**-26, np.inf, np.nan], kind)
    return np.concatenate(
        [middles, np.nextafter(middles, kind(np.inf)), np.nextafter(middles, kind(-np.inf)), ends]
    )


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_rounding_between_halves(kernels: Kernels, kind: type) -> None:
    x = rounding_cases(kind)
    h = np.zeros(x.size, np.float16)
    kernels("from_float" if kind is np.float32 else "from_double", *over(x.size), x, h, INT(x.size))
    with np.errstate(over="ignore"):
        assert_same_bits(h, x.astype(np.float16))


@pytest.fixture(scope="module")
def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 1 << 16, 40_000).astype(np.uint16).view(np.float16) for _ in range(3))
    near = np.float16(rng.standard_normal((3, 40_000)))  # magnitudes at which sums are rounded
    return tuple(np.concatenate([wild, tame]) for wild, tame in zip((a, b, c), near, strict=True))


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a * b + c with one rounding, by exact fractions for finite values."""
    exact = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        total = float("nan")
        if np.isfinite([x, y, z]).all():
            q = Fraction(x) * Fraction(y) + Fraction(z)
            total = float(q)
            if Fraction(total) != q:  # remember on which side of the double it lies, for the second rounding
                total = float(np.nextafter(total, np.inf if q > Fraction(total) else -np.inf))
        else:
            with np.errstate(invalid="ignore"):
                total = float(np.float64(x) * np.float64(y) + np.float64(z))
        exact.append(total)
    return np.array(exact).astype(np.float16)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_operators(kernels: Kernels, operands: tuple[np.ndarray, ...]) -> None:
    a, b, c = operands
    out = np.zeros((a.size, 8), np.float16)
    kernels("operators", *over(a.size), a, b, c, out, INT(a.size))
    fmax = np.fmax(a, b)
    expected = [a + b, a - b, a * b, a / b, fma(a, b, c), -a, np.sqrt(np.abs(a)), fmax]
    for column, right in enumerate(expected):
        assert_same_bits(out[:, column], right)


@pytest.mark.filterwarnings("ignore:.*encountered:RuntimeWarning")
def test_pairs(kernels: Kernels, operands: tuple[np.ndarray, ...]) -> None:
    a, b, c = operands
    n = a.size // 2
    out = np.zeros((n, 5, 2), np.float16)
    kernels("pairs", *over(n), a, b, c, out, INT(n))
    assert_same_bits(out[:, 0].ravel(), a + b)
    assert_same_bits(out[:, 1].ravel(), a * b)
    assert_same_bits(out[:, 2].ravel(), fma(a, b, c))
    assert_same_bits(out[:, 3].ravel(), a.reshape(-1, 2)[:, ::-1].ravel())
    mixed = np.stack([b[::2], c[1::2]], 1).ravel()
    assert_same_bits(out[:, 4].ravel(), mixed)


def test_comparisons(kernels: Kernels) -> None:
    some = np.array([-np.inf, -1, -0.0, 0.0, 6e-8, 1, 65504, np.inf, np.nan], np.float16)
    a, b = (x.ravel().copy() for x in np.meshgrid(some, some))
    out = np.zeros(a.size, INT)
    kernels("compare", *over(a.size), a, b, out, INT(a.size))
    np.testing.assert_array_equal(out, (a < b) + 2 * (a == b) + 4 * (a >= b) + 8 * np.isnan(a))


SOFTWARE = """
#include <emulator/half_bits.h>
#ifdef __F16C__
#error the instructions were not turned off
#endif
extern "C" void widen(const uint16_t* h, float* f, int n) {
  for (int i = 0; i < n; i += 4) emulator::halves_to_floats<4>(h + i, f + i);
}
extern "C" void narrow(const float* f, uint16_t* h, int n) {
  for (int i = 0; i < n; i++) h[i] = emulator::float_to_half(f[i]);
}
"""


def test_conversions_without_the_processors_instructions(tmp_path: Path) -> None:
    source, library = tmp_path / "half.cpp", tmp_path / "half.so"
    source.write_text(SOFTWARE)
    off = ["-mno-f16c"] if platform.machine() == "x86_64" else []
    command = [find_compiler().path, "-std=c++20", "-O2", "-fPIC", "-shared", *off, f"-I{INCLUDE}"]
    subprocess.run([*command, str(source), "-o", str(library)], check=True)
    lib = ctypes.CDLL(str(library))
    f, h = np.zeros(EVERY.size, np.float32), np.zeros_like(EVERY)
    lib.widen(ctypes.c_void_p(EVERY.ctypes.data), ctypes.c_void_p(f.ctypes.data), EVERY.size)
    np.testing.assert_array_equal(f, EVERY.astype(np.float32))
    x = rounding_cases(np.float32)
    h = np.zeros(x.size, np.float16)
    lib.narrow(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(h.ctypes.data), x.size)
    with np.errstate(over="ignore"):
        assert_same_bits(h, x.astype(np.float16))
