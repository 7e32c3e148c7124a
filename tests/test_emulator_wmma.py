"""WMMA compared with NumPy: all shapes, layouts and accumulators, and the rounding to tf32."""

from itertools import product

import numpy as np
import pytest
from emulator_kernels import Kernels
from sampling import some_of

from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.errors import LaunchError

INT = np.int32
SHAPES = [(16, 16, 16), (8, 32, 16), (32, 8, 16)]
LAYOUTS = list(product(("row_major", "col_major"), repeat=3))
SIDE = 40  # of the arrays that contain the tiles


# every layout with every shape, by turns with either accumulator
CASES = some_of(SHAPES, LAYOUTS, ["float", "half"], one_of=2)


def tile(memory: np.ndarray, rows: int, columns: int, layout: str) -> np.ndarray:
    """The part of a square array that a fragment covers, in mathematical order."""
    return memory[:rows, :columns] if layout == "row_major" else memory[:columns, :rows].T


@pytest.mark.parametrize(("shape", "layouts", "accumulator"), CASES)
@pytest.mark.parametrize("shared", [0, 1])
def test_product(
    quick_emulator: EmulatorDevice,
    shape: tuple[int, int, int],
    layouts: tuple[str, str, str],
    accumulator: str,
    shared: int,
) -> None:
    m, n, k = shape
    a_layout, b_layout, d_layout = layouts
    kernels = Kernels(
        quick_emulator,
        "wmma.cu",
        **dict(zip(("SHAPE_M", "SHAPE_N", "SHAPE_K"), shape, strict=True)),
        LAYOUT_A=a_layout,
        LAYOUT_B=b_layout,
        LAYOUT_D=f"mem_{d_layout}",
        SUM=accumulator,
        **dict.fromkeys(("PITCH_A", "PITCH_B", "PITCH_D"), SIDE),
    )
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (SIDE, SIDE)).astype(np.float16) for _ in range(2))  # products are exact
    dtype = np.float32 if accumulator == "float" else np.float16
    c = rng.integers(-100, 100, (SIDE, SIDE)).astype(dtype)
    d = np.full((SIDE, SIDE), np.nan, dtype)
    kernels("product", (1,), (32,), a, b, c, d, INT(shared), shared=2 * 40 * 40 * 2 + 40 * 40 * 4)
    ab = tile(a, m, k, a_layout).astype(float) @ tile(b, k, n, b_layout).astype(float)
    np.testing.assert_array_equal(tile(d, m, n, d_layout), 2 * (ab + tile(c, m, n, d_layout)))
    assert np.isnan(d).sum() == SIDE * SIDE - m * n  # nothing outside the tile was written


@pytest.fixture(scope="module")
def kernels(emulator: EmulatorDevice) -> Kernels:
    shape = {"SHAPE_M": 16, "SHAPE_N": 16, "SHAPE_K": 16, "SUM": "float"}
    layouts = {"LAYOUT_A": "row_major", "LAYOUT_B": "row_major", "LAYOUT_D": "mem_row_major"}
    return Kernels(emulator, "wmma.cu", **shape, **layouts, PITCH_A=40, PITCH_B=40, PITCH_D=40)


def test_many_warps_and_a_long_sum(kernels: Kernels) -> None:
    rng = np.random.default_rng(1)
    a, b = np.float16(rng.standard_normal((64, 512))), np.float16(rng.standard_normal((512, 16)))
    d = np.zeros((64, 16), np.float32)
    kernels("many_warps", (1,), (128,), a, b, d, INT(512))
    np.testing.assert_allclose(d, a.astype(float) @ b.astype(float), rtol=0, atol=1e-3)


def test_a_partial_warp_is_refused(kernels: Kernels) -> None:
    with pytest.raises(LaunchError, match=r"wmma::mma_sync \(wmma.cu:\d+\) needs all 32 lanes"):
        kernels(
            "many_warps", (1,), (24,), *np.zeros((2, 256), np.float16), np.zeros(256, np.float32), INT(16)
        )


def to_tf32(x: np.ndarray, add: int) -> np.ndarray:
    return ((x.view(np.uint32) + np.uint32(add)) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("convert", [0, 1])
def test_tf32(kernels: Kernels, convert: int) -> None:
    """Converted operands are rounded to nearest, ties away from zero. Others lose their low bits."""
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((16, 8)).astype(np.float32), rng.standard_normal((16, 8)).astype(np.float32)
    a[0, 0] = np.array([0x3F801000], np.uint32).view(np.float32)[0]  # a tie
    d = np.zeros((16, 16), np.float32)
    kernels("tf32", (1,), (32,), a, b, d, INT(convert))
    ra, rb = (to_tf32(x, 0x1000 if convert else 0) for x in (a, b))
    assert not np.array_equal(ra, a)
    np.testing.assert_allclose(d, ra.astype(float) @ rb.T.astype(float), rtol=0, atol=2e-6)
    assert np.abs(d - a.astype(float) @ b.T.astype(float)).max() > 1e-4
