"""Convolution, ReLU and max-pool in one kernel, against float64."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.errors import ShapeError, VariantError
from mini_dnn.nn.layers import MaxPool2d
from mini_dnn.ops.compare import compare, conv2d_bound, conv2d_float64
from mini_dnn.ops.course import layer_shape
from mini_dnn.ops.conv2d_relu_pool import ConvPoolShape
from mini_dnn.running.runner import conv2d
from mini_dnn.variant import Variant, find

# (N, C, H, W), (M, R, S), pool
SHAPES = {
    "course layer 1": ((2, 1, 86, 86), (4, 7, 7), 2),
    "course layer 2": ((2, 4, 40, 40), (16, 7, 7), 4),
    "windows cut short": ((3, 1, 17, 23), (5, 3, 4), 4),
    "odd sides by two": ((3, 4, 16, 17), (17, 4, 3), 2),
    "two channels by four": ((2, 2, 31, 30), (9, 3, 5), 4),
    "no pool": ((2, 3, 12, 20), (6, 3, 3), 1),
    "one output": ((2, 1, 3, 3), (2, 3, 3), 2),
    "many channels": ((1, 9, 8, 9), (3, 3, 2), 2),
}


@pytest.fixture
def variant() -> Variant:
    return find("layers/fused")


def pooled(y: np.ndarray, pool: int) -> np.ndarray:
    return MaxPool2d(pool, ceil_mode=True).forward(np.maximum(y, 0))


@pytest.mark.parametrize("old", [False, True], ids=["bulk", "no bulk"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_against_float64(
    shape: tuple, old: bool, variant: Variant, device: Device, rng: np.random.Generator
) -> None:
    x_shape, (M, R, S), pool = shape
    x = rng.standard_normal(x_shape, np.float32)
    w = rng.standard_normal((M, x_shape[1], R, S), np.float32)
    if old:
        variant = replace(
            variant, defines=lambda s: {**find("layers/fused").defines_for(s), "PTX_NO_BULK": 1}
        )
    y = conv2d_relu_pool(x, w, pool, variant, device)
    # a maximum is not farther off than the farthest of its values
    bound = MaxPool2d(pool, ceil_mode=True).forward(conv2d_bound(x, w, "fp16"))
    result = compare(y, pooled(conv2d_float64(x, w), pool), bound)
    assert result.ok, str(result)


def test_nan_is_not_hidden_by_the_maximum(variant: Variant, device: Device) -> None:
    x, w = np.ones((3, 1, 12, 12), np.float32), np.ones((4, 1, 3, 3), np.float32)
    x[1] = np.nan
    y = conv2d_relu_pool(x, w, 2, variant, device)
    assert np.isnan(y[1]).all()
    assert (y[::2] == 9).all()


def test_the_courses_layers_take_the_tensor_cores(variant: Variant) -> None:
    for layer, pool, side in (("conv1", 2, 40), ("conv2", 4, 9)):
        shape = ConvPoolShape(**vars(layer_shape(layer)), pool=pool)
        assert shape.y[2:] == (side, side)
        assert [step.kernel for step in variant.steps(shape)] == ["reset", "conv"]  # type: ignore[union-attr]


@pytest.mark.parametrize(("C", "pool"), [(1, 2), (4, 4)])
def test_nothing_in_checked_mode(C: int, pool: int, variant: Variant, rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, C, 26, 32), np.float32), rng.standard_normal((4, C, 3, 3), np.float32)
    with closing(CheckedEmulator()) as device:
        y = conv2d_relu_pool(x, w, pool, variant, device)
    assert np.isfinite(y).all()


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a"])
@pytest.mark.parametrize(("layer", "pool"), [("conv1", 2), ("conv2", 4)])
def test_compiles(layer: str, pool: int, arch: str, variant: Variant) -> None:
    shape = ConvPoolShape(**vars(layer_shape(layer)), pool=pool)
    assert build_cubin(variant.source, variant.defines_for(shape), arch)[:4] == b"\x7fELF"


def test_wrong_use(variant: Variant, device: Device) -> None:
    x, w = np.ones((1, 1, 9, 9), np.float32), np.ones((1, 1, 2, 2), np.float32)
    with pytest.raises(VariantError, match=r"pools by \(1, 2, 4\), not by 3"):
        conv2d_relu_pool(x, w, 3, variant, device)
    with pytest.raises(ShapeError, match="pool = 0"):
        conv2d_relu_pool(x, w, 0, variant, device)
    with pytest.raises(VariantError, match="computes conv2d, not conv2d_relu_pool"):
        conv2d_relu_pool(x, w, 2, find("m3"), device)
    with pytest.raises(VariantError, match="computes conv2d_relu_pool"):
        conv2d(x, w, variant, device)
