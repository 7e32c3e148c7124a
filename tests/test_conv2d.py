"""Inputs of a convolution beyond the problems of its operation, and ways to call it."""

import numpy as np
import pytest
from convolutions import compare_conv2d, runnable, solved

from mini_dnn import conv2d
from mini_dnn.device import Device
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.running.runner import run
from mini_dnn.variant import names

SHAPES = {
    "wide image": ConvShape(1, 2, 4, 131, 8, 3, 3),
    "many channels": ConvShape(1, 70, 7, 9, 33, 3, 3),
    "long filter row": ConvShape(1, 1, 3, 90, 2, 2, 71),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", names("conv2d"))
@pytest.mark.parametrize("sizes", SHAPES)
def test_unusual_sizes(name: str, sizes: str, device: Device) -> None:
    result = solved(runnable(name, device), SHAPES[sizes], device)
    assert result.ok, str(result)


@pytest.mark.parametrize("name", names("conv2d"))
def test_batch_split_into_parts(name: str, device: Device) -> None:
    """Parts of unequal size give the same bits as one part, and the inputs are not changed."""
    variant, shape = runnable(name, device), ConvShape(7, 2, 9, 8, 3, 3, 2)
    arrays = variant.operation.inputs(shape, seed=0)
    before = {key: array.copy() for key, array in arrays.items()}
    whole = run(variant, shape, arrays, device)
    parts = run(variant, shape, arrays, device, most=3)
    assert (whole.steps, parts.steps) == (1, 3)
    assert np.array_equal(whole.y, parts.y)
    assert all(np.array_equal(array, before[key]) for key, array in arrays.items())


def test_open_device_by_name(rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, 1, 6, 5), np.float32), rng.standard_normal((2, 1, 3, 2), np.float32)
    y = conv2d(x, w, impl="m1", device="emulator")
    assert y.shape == (2, 2, 4, 4)
    assert compare_conv2d(x, w, y).ok
