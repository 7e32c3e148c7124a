"""Every variant against float64 on irregular shapes, on the emulator and on a GPU."""

import numpy as np
import pytest

from mini_dnn.device import Device
from mini_dnn.ops.compare import check_conv2d
from mini_dnn.running.runner import conv2d, run
from mini_dnn.variant import Variant, find, names

# (N, C, H, W), (M, R, S): swapped indices and missing barriers hide in square, aligned shapes
SHAPES = {
    "course layer 1": ((3, 1, 86, 86), (4, 7, 7)),
    "course layer 2": ((3, 4, 40, 40), (16, 7, 7)),
    "one of everything": ((1, 1, 1, 1), (1, 1, 1)),
    "one output pixel": ((2, 3, 5, 4), (2, 5, 4)),
    "wide filter": ((2, 2, 9, 21), (3, 2, 9)),
    "tall filter": ((2, 2, 21, 9), (9, 11, 2)),
    "ragged tiles": ((5, 3, 19, 37), (17, 3, 5)),
    "1x1 filter": ((2, 35, 6, 7), (20, 1, 1)),
    "wide image": ((1, 2, 4, 131), (8, 3, 3)),
    "many channels": ((1, 70, 7, 9), (33, 3, 3)),
    "long filter row": ((1, 1, 3, 90), (2, 2, 71)),
}


def runnable(name: str, device: Device) -> Variant:
    """The variant, unless this device cannot run it: then the test is skipped, and says why."""
    variant = find(name)
    if variant.needs_gpu and not device.has_clock:
        pytest.skip(f"{name} needs a GPU: {variant.needs_gpu}")
    if device.arch < variant.min_arch:
        pytest.skip(f"{name} needs sm_{variant.min_arch}, the device is sm_{device.arch}")
    return variant


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("name", names())
def test_against_float64(name: str, shape: tuple, device: Device, rng: np.random.Generator) -> None:
    x_shape, (M, R, S) = shape
    x = rng.standard_normal(x_shape, np.float32)
    w = rng.standard_normal((M, x_shape[1], R, S), np.float32)
    x_before, w_before = x.copy(), w.copy()
    variant = runnable(name, device)
    y = conv2d(x, w, variant, device)
    result = check_conv2d(x, w, y, variant.precision)
    assert result.ok, str(result)
    assert np.array_equal(x, x_before)
    assert np.array_equal(w, w_before)


@pytest.mark.parametrize("name", names())
def test_batch_split_into_parts(name: str, device: Device, rng: np.random.Generator) -> None:
    """Parts of unequal size give what one part gives."""
    x, w = rng.standard_normal((7, 2, 9, 8), np.float32), rng.standard_normal((3, 2, 3, 2), np.float32)
    variant = runnable(name, device)
    whole = run(x, w, variant, device)
    parts = run(x, w, variant, device, max_images=3)
    assert (whole.steps, parts.steps) == (1, 3)
    assert np.array_equal(whole.y, parts.y)


def test_open_device_by_name(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 1, 6, 5), np.float32), rng.standard_normal((2, 1, 3, 2), np.float32)
    y = conv2d(x, w, impl="m1", device="emulator")
    assert y.shape == (2, 2, 4, 4)
    assert check_conv2d(x, w, y).ok
