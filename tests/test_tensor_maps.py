"""Copies of boxes compared with NumPy, on the emulator and on a GPU."""

import numpy as np
import pytest
from emulator_kernels import FOLDER
from tensors import run

from mini_dnn.device import Device
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.variant import TensorMap

INT = np.int32
SOURCE = "tensor.cu"
EXTRA = 1024  # bytes of shared memory, so that it can be aligned


@pytest.fixture
def on_hopper(device: Device) -> Device:
    if device.arch < 90:
        pytest.skip(f"tensor copies need sm_90, the device is sm_{device.arch}")
    return device


def placed(box: tuple[int, ...], itemsize: int, swizzle: int, offset: int) -> np.ndarray:
    """The address of each byte of a box, whose start is ``offset`` bytes past a multiple of 1024."""
    address = np.arange(np.prod(box) * itemsize) + offset
    mask = {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}[swizzle]
    return (address ^ (address >> 3 & mask)) - offset


def window(x: np.ndarray, at: tuple[int, ...], box: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Indices of a box's elements, clipped to x, and which are inside; ``at`` is innermost first."""
    grids = np.meshgrid(
        *(np.arange(n) + first for n, first in zip(box, at[::-1], strict=True)), indexing="ij"
    )
    inside = np.logical_and.reduce([(g >= 0) & (g < n) for g, n in zip(grids, x.shape, strict=True)])
    return np.stack([g.clip(0, n - 1) for g, n in zip(grids, x.shape, strict=True)]), inside


BOXES = [
    ("float16", (40, 136), (16, 64), 128, (64, 8)),
    ("float16", (40, 136), (16, 64), 128, (128, 30)),
    ("float16", (40, 136), (16, 64), 128, (136, 0)),  # all of it is outside
    ("float16", (40, 136), (5, 64), 128, (16, 1)),
    ("float16", (40, 136), (16, 32), 64, (8, 3)),
    ("float16", (40, 136), (16, 16), 32, (128, 1)),
    ("float16", (40, 136), (16, 128), 0, (8, 39)),
    ("float32", (33, 20), (8, 32), 128, (4, 29)),
    ("float32", (33, 20), (8, 4), 0, (16, 30)),
    ("float16", (3, 10, 72), (2, 4, 64), 128, (40, 8, 1)),
    ("float32", (4, 5, 8), (3, 5, 8), 32, (4, 1, 2)),
]
NEGATIVE = [  # for loads only
    ("float16", (40, 136), (16, 64), 128, (-8, -5)),
    ("float16", (40, 136), (16, 64), 0, (-72, 30)),
    ("float32", (4, 5, 8), (3, 5, 8), 32, (-4, -1, -1)),
]


@pytest.mark.parametrize(("dtype", "shape", "box", "swizzle", "at"), BOXES + NEGATIVE)
@pytest.mark.parametrize("offset", [0, 384])
def test_load(
    on_hopper: Device,
    rng: np.random.Generator,
    dtype: str,
    shape: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
    at: tuple[int, ...],
    offset: int,
) -> None:
    x = rng.integers(1, 2**15, shape).astype(dtype)
    indices, inside = window(x, at, box)
    rows = np.where(inside, x[tuple(indices)], 0).astype(dtype).tobytes()
    where = placed(box, x.itemsize, swizzle, offset)
    expected = np.full(max(len(rows), where.max() + 1), 0xFF, np.uint8)
    expected[where] = np.frombuffer(rows, np.uint8)
    image = np.zeros(len(rows) // 4, np.uint32)
    numbers = (len(box), *at, *(0,) * (3 - len(at)), image.nbytes, offset)
    tensor_map = TensorMap("x", box, swizzle=swizzle)
    run(
        on_hopper,
        SOURCE,
        "load",
        (1,),
        64,
        (x, tensor_map),
        image,
        *map(INT, numbers),
        shared=image.nbytes + 2 * EXTRA,
    )
    np.testing.assert_array_equal(image.view(np.uint8), expected[: image.nbytes])


@pytest.mark.parametrize(("dtype", "shape", "box", "swizzle", "at"), BOXES)
def test_store(
    on_hopper: Device,
    rng: np.random.Generator,
    dtype: str,
    shape: tuple[int, ...],
    box: tuple[int, ...],
    swizzle: int,
    at: tuple[int, ...],
) -> None:
    x = np.full(shape, -1, dtype)
    new = rng.integers(1, 2**15, box).astype(dtype)
    indices, inside = window(x, at, box)
    expected = x.copy()
    expected[tuple(i[inside] for i in indices)] = new[inside]
    where = placed(box, x.itemsize, swizzle, 0)
    image = np.zeros(max(new.nbytes, -(-(where.max() + 1) // 4) * 4), np.uint8)
    image[where] = np.frombuffer(new.tobytes(), np.uint8)
    numbers = (len(box), *at, *(0,) * (3 - len(at)), image.nbytes, 0)
    tensor_map = TensorMap("x", box, swizzle=swizzle)
    image = image.view(np.uint32)
    run(
        on_hopper,
        SOURCE,
        "store",
        (1,),
        64,
        (x, tensor_map),
        image,
        *map(INT, numbers),
        shared=image.nbytes + EXTRA,
    )
    np.testing.assert_array_equal(x, expected)


def test_a_part_of_a_buffer_with_other_strides(on_hopper: Device, rng: np.random.Generator) -> None:
    """Every second row, with columns that end before the rows do."""
    x = rng.integers(1, 2**15, (12, 64)).astype(np.uint16)
    image = np.zeros((8, 8), np.uint16)
    tensor_map = TensorMap("x", (8, 8), (6, 61), (128,), swizzle=0, dtype="bfloat16")
    numbers = (2, 56, 0, 0, image.nbytes, 0)
    run(
        on_hopper,
        SOURCE,
        "load",
        (1,),
        32,
        (x, tensor_map),
        image.view(np.uint32),
        *map(INT, numbers),
        shared=2 * EXTRA,
    )
    expected = np.zeros_like(image)
    expected[:6, :5] = x[::2, 56:61]
    np.testing.assert_array_equal(image, expected)


def test_a_map_between_other_arguments(on_hopper: Device) -> None:
    x, out = np.arange(256, dtype=np.float32).reshape(8, 32), np.zeros(32, np.float32)
    run(
        on_hopper,
        SOURCE,
        "values",
        (1,),
        32,
        INT(8),
        (x, TensorMap("x", (1, 32), swizzle=0)),
        np.float64(3),
        out,
    )
    np.testing.assert_array_equal(out, [*x[3, 8:], *[0] * 8])


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
def test_tensor_maps_exist_since_hopper(arch: str) -> None:
    assert (b"early" in build_cubin(FOLDER / SOURCE, {}, arch)) == (arch != "sm_80")
