"""The PTX wrappers for attention compared with NumPy, on the emulator and on a GPU."""

import numpy as np
import pytest
from emulator_kernels import Kernels

from mini_dnn.device import Device

THREADS = np.arange(128)
WARP, GROUP, THREAD = THREADS // 32, THREADS % 32 // 4, THREADS % 4
SIZES = {"q": (64, 16), "k": (112, 16), "v": (16, 64)}


@pytest.fixture
def kernels(device: Device) -> Kernels:
    return Kernels(device, "ptx_attention.cu")  # type: ignore[arg-type]


def test_powers_of_two(kernels: Kernels) -> None:
    x = np.array([0, 1, -3, 12.5, -20.25, 127.5, 128, -125.5, -127, -200, -np.inf, np.inf], np.float32)
    y = np.zeros_like(x)
    kernels("powers", (1,), (len(x),), x, y)
    exact = np.exp2(x.astype(np.float64))
    exact[x < -126] = 0  # subnormal numbers
    exact[x >= 128] = np.inf
    np.testing.assert_allclose(y, exact, rtol=2.0**-22)


def test_a_matrix_is_transposed(kernels: Kernels, rng: np.random.Generator) -> None:
    matrix = rng.standard_normal((8, 8)).astype(np.float16)
    out = np.zeros(32, np.uint32)
    kernels("turn", (1,), (32,), matrix.view(np.uint32).ravel(), out)
    np.testing.assert_array_equal(out.view(np.float16).reshape(8, 8), matrix.T)


def fragments(matrix: np.ndarray) -> np.ndarray:
    """The part of the sums (64, n) that each thread of a warpgroup holds: ``(128, n / 2)``."""
    of = [
        matrix[16 * WARP + GROUP + 8 * (j // 2), 8 * i + 2 * THREAD + j % 2]
        for i in range(matrix.shape[1] // 8)
        for j in range(4)
    ]
    return np.stack(of, axis=1)


def test_products_of_a_warpgroup(kernels: Kernels, rng: np.random.Generator) -> None:
    q, k, v = (rng.integers(-8, 9, size).astype(np.float16) for size in SIZES.values())  # all sums are exact
    p = rng.integers(-8, 9, (64, 16)).astype(np.float16)
    rows = [np.pad(x, ((0, 0), (0, 64 - x.shape[1]))) for x in (q, k, v)]  # of 128 bytes
    left = np.ascontiguousarray(
        np.stack(
            [
                np.stack(
                    [p[16 * WARP + GROUP + 8 * (i % 2), 2 * THREAD + j + 8 * (i // 2)] for j in range(2)],
                    axis=1,
                )
                for i in range(4)
            ],
            axis=1,
        )
    ).view(np.uint32)
    scores, o = np.zeros((128, 56), np.float32), np.zeros((128, 32), np.float32)
    kernels("products", (1,), (128,), rows[0], rows[1], left, rows[2], scores, o)
    q, k, v, p = (x.astype(np.float32) for x in (q, k, v, p))
    np.testing.assert_array_equal(scores, fragments(q @ k.T))
    np.testing.assert_array_equal(o, fragments(p @ v))


def test_values_times_the_powers_of_a_few_queries(kernels: Kernels, rng: np.random.Generator) -> None:
    v, p = (rng.integers(-8, 9, size).astype(np.float16) for size in ((16, 64), (16, 8)))
    columns = np.ascontiguousarray(p.reshape(2, 8, 8).transpose(0, 2, 1))
    out = np.zeros((128, 4), np.float32)
    kernels("few_values", (1,), (128,), v, columns, out)
    np.testing.assert_array_equal(out, fragments(2 * (v.T.astype(np.float32) @ p.astype(np.float32))))
