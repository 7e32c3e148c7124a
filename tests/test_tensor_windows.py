"""Copies of pixels for windows compared with NumPy, on the emulator and on a GPU; odd maps."""

from itertools import product

import numpy as np
import pytest
from tensors import run

from mini_dnn.device import Device
from mini_dnn.errors import LaunchError, VariantError
from mini_dnn.variant import TensorMap

INT = np.int32
SOURCE = "windows.cu"

# (N, H, W, C), (R, stride, padding), windows and channels of a copy, first channel
CASES = [
    ((2, 5, 7, 64), (3, 1, 1), (16, 64), 0),
    ((3, 8, 8, 128), (3, 2, 1), (64, 64), 64),
    ((2, 7, 7, 64), (3, 2, 1), (40, 64), 0),
    ((1, 9, 6, 72), (1, 2, 0), (24, 64), 64),  # the last channels do not exist
    ((1, 7, 7, 64), (3, 1, 1), (64, 64), 0),  # the last windows do not exist, either
    ((2, 6, 5, 32), (5, 3, 2), (8, 32), 0),
    ((2, 4, 4, 16), (3, 1, 0), (6, 16), 0),
    ((1, 3, 2, 8), (2, 1, 1), (300, 8), 0),
]


def seen(
    x: np.ndarray, windows: tuple[int, int, int], box: tuple[int, int], c: int, at: tuple[int, int, int, int]
) -> np.ndarray:
    """The result of a copy from window at[0] on, at the place (r, s) = at[1:] of each window."""
    n, h, w, _ = x.shape
    size, stride, padding = windows
    rows, columns = ((side + 2 * padding - size) // stride + 1 for side in (h, w))
    found = np.zeros(box, x.dtype)
    for i in range(box[0]):
        image, rest = divmod(at[0] + i, rows * columns)
        p, q = divmod(rest, columns)
        down, right = p * stride - padding + at[1], q * stride - padding + at[2]
        if image < n and 0 <= down < h and 0 <= right < w:
            channels = x[image, down, right, c : c + box[1]]
            found[i, : len(channels)] = channels
    return found


@pytest.mark.parametrize(("shape", "windows", "box", "c"), CASES)
def test_pixels_of_windows(
    device: Device,
    rng: np.random.Generator,
    shape: tuple[int, int, int, int],
    windows: tuple[int, int, int],
    box: tuple[int, int],
    c: int,
) -> None:
    if device.arch < 90:
        pytest.skip(f"tensor copies need sm_90, the device is sm_{device.arch}")
    x = rng.integers(1, 2048, shape).astype(np.float16)
    size, stride, padding = windows
    rows, columns = ((side + 2 * padding - size) // stride + 1 for side in shape[1:3])
    count = shape[0] * rows * columns
    firsts = sorted({0, 1, columns - 1, rows * columns - 1, count // 2, count - 1})
    places, expected = [], []
    for first, r, s in product(firsts, sorted({0, size - 1}), range(size)):
        image, rest = divmod(first, rows * columns)
        p, q = divmod(rest, columns)
        places.append((image, p * stride - padding, q * stride - padding, r, s))
        expected.append(seen(x, windows, box, c, (first, r, s)))
    swizzle = box[1] * 2 if box[1] * 2 in (32, 64, 128) else 0
    found = np.zeros((len(places), box[0] * box[1] // 2), np.uint32)
    tensor_map = TensorMap("x", box, swizzle=swizzle, windows=windows)
    numbers = (INT(c), INT(found[0].nbytes))
    args = ((x, tensor_map), np.array(places, INT), found, *numbers)
    run(device, SOURCE, "load", (len(places),), 64, *args, shared=found[0].nbytes)
    address = np.arange(found[0].nbytes)
    lies = address ^ (address >> 3 & {0: 0, 32: 0x10, 64: 0x30, 128: 0x70}[swizzle])
    for one, right, place in zip(found, expected, places, strict=True):
        np.testing.assert_array_equal(
            one.view(np.uint8)[lies], right.view(np.uint8).reshape(-1), err_msg=f"n, h, w, r, s = {place}"
        )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"windows": (3, 1)}, "expected R, stride and padding"),
        ({"windows": (3, 9, 1)}, "the stride in 1 to 8"),
        ({"windows": (3, 1, 3)}, "the padding in 0 to R - 1"),
        ({"windows": (9, 1, 0)}, "does not fit its images"),
        ({"box": (2000, 64)}, "1,024"),
        ({"box": (4, 4, 64)}, "not those of windows"),
        ({"shape": (5, 7, 64)}, "not those of windows"),
        ({"shape": (3, 5, 7, 64)}, "reaches over"),
    ],
)
def test_maps_that_no_gpu_takes(fields: dict[str, tuple[int, ...]], words: str) -> None:
    found = TensorMap("x", **({"box": (16, 64), "windows": (3, 1, 1)} | fields))
    with pytest.raises(VariantError, match=words):
        found.geometry((2, 5, 7, 64), "float16", 2 * 5 * 7 * 64 * 2)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((0, 0, 1, 0, 0), "no window of 3 x 3 begins at column 1 and row 0"),
        ((0, -1, 7, 0, 0), "no window of 3 x 3 begins at column 7"),
        ((0, -1, -1, 3, 0), "has no pixel 0 columns and 3 rows further"),
    ],
)
def test_the_emulator_names_windows_that_are_not_there(
    emulator: Device, place: tuple[int, ...], words: str
) -> None:
    x = np.ones((1, 8, 8, 64), np.float16)
    tensor_map = TensorMap("x", (8, 64), windows=(3, 2, 1))
    args = ((x, tensor_map), np.array([place], INT), np.zeros(256, np.uint32), INT(0), INT(1024))
    with pytest.raises(LaunchError, match=words):
        run(emulator, SOURCE, "load", (1,), 64, *args, shared=1024)
