"""Convolution, ReLU and max-pooling in one kernel: its forms, and values that the maximum must not hide."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from convolutions import kernels, solved
from sampling import some_of

from mini_dnn import conv2d, conv2d_relu_pool
from mini_dnn.device import Device
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.errors import ShapeError, VariantError
from mini_dnn.ops.conv2d_relu_pool import OPERATION, ConvPoolShape
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find


@pytest.fixture
def variant() -> Variant:
    return find("layers/fused")


@pytest.mark.parametrize("shape", [*OPERATION.check, *OPERATION.spare], ids=lambda shape: shape.text)
def test_without_bulk_copies(shape: ConvPoolShape, variant: Variant, device: Device) -> None:
    old = replace(variant, defines=lambda s: {**variant.defines_for(s), "PTX_NO_BULK": 1})
    result = solved(old, shape, device)
    assert result.ok, str(result)


@pytest.mark.parametrize("shape", OPERATION.spare, ids=lambda shape: shape.text)
def test_a_batch_in_parts(
    shape: ConvPoolShape, variant: Variant, device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device with memory for only three images gives the same bits as one that needs no parts."""
    shape = shape.with_batch(7)
    arrays = OPERATION.inputs(shape, seed=0)
    whole = run(variant, shape, arrays, device)
    room = variant.planned(shape.with_batch(4), device.max_shared_bytes).nbytes - 1
    monkeypatch.setattr(device, "free_bytes", lambda: room)
    parts = run(variant, shape, arrays, device)
    assert (whole.steps, parts.steps) == (1, 3)
    np.testing.assert_array_equal(parts.y, whole.y)


def test_nan_is_not_hidden_by_the_maximum(variant: Variant, device: Device) -> None:
    x, w = np.ones((3, 1, 12, 12), np.float32), np.ones((4, 1, 3, 3), np.float32)
    x[1] = np.nan
    y = conv2d_relu_pool(x, w, variant, device, pool=np.int64(2))  # NumPy's integers are integers, too
    assert np.isnan(y[1]).all()
    assert (y[::2] == 9).all()


def test_the_courses_layers_take_the_tensor_cores(variant: Variant) -> None:
    for layer, side in (("conv1", 40), ("conv2", 9)):
        shape = OPERATION.course[layer]
        assert shape.y[2:] == (side, side)
        assert kernels(variant, shape) == ["reset", "conv"]


@pytest.mark.parametrize(("C", "pool"), [(1, 2), (4, 4)])
def test_nothing_in_checked_mode(C: int, pool: int, variant: Variant, rng: np.random.Generator) -> None:
    x, w = rng.standard_normal((2, C, 26, 32), np.float32), rng.standard_normal((4, C, 3, 3), np.float32)
    with closing(CheckedEmulator()) as device:
        y = conv2d_relu_pool(x, w, variant, device, pool=pool)
    assert np.isfinite(y).all()


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
@pytest.mark.parametrize(("layer", "arch"), some_of(OPERATION.course, ["sm_75", "sm_80", "sm_90a"], one_of=2))
def test_compiles(layer: str, arch: str, variant: Variant) -> None:
    defines = variant.defines_for(OPERATION.course[layer])
    assert build_cubin(variant.source, defines, arch)[:4] == b"\x7fELF"


def test_wrong_use(variant: Variant, device: Device) -> None:
    x, w = np.ones((1, 1, 9, 9), np.float32), np.ones((1, 1, 2, 2), np.float32)
    with pytest.raises(VariantError, match=r"pools by \(1, 2, 4\), not by 3"):
        conv2d_relu_pool(x, w, variant, device, pool=3)
    with pytest.raises(ShapeError, match="pool = 0"):
        conv2d_relu_pool(x, w, variant, device, pool=0)
    with pytest.raises(VariantError, match=r"computes conv2d, .*found .*pool 2"):
        conv2d_relu_pool(x, w, find("m3"), device, pool=2)
    with pytest.raises(VariantError, match="computes conv2d_relu_pool"):
        conv2d(x, w, variant, device)
