"""Variants on devices whose blocks have less shared memory than they ask for."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from mini_dnn.checking.check import check
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.symbols import static_shared_bytes
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.errors import LaunchError, VariantError
from mini_dnn.grading import decoding, plans
from mini_dnn.nn.layers import MaxPool2d
from mini_dnn.ops.compare import check_conv2d, compare, conv2d_bound, conv2d_float64
from mini_dnn.ops.course import LAYERS, layer_shape
from mini_dnn.ops.conv2d_relu_pool import ConvPoolShape
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.quads import BUFFER_BYTES
from mini_dnn.running.runner import conv2d, fitting
from mini_dnn.variant import Variant, find
from mini_dnn.variant.plan import Launch

SMALL, LARGE = 64 * 1024, 227 * 1024  # bytes of a block on sm_75 and on sm_90
CONVOLUTIONS = ("layers/custom", "m3/fp32_split")
NAMES = (*CONVOLUTIONS, "layers/fused")
POOLS = {"conv1": 2, "conv2": 4}


@pytest.fixture(scope="module")
def small() -> Iterator[EmulatorDevice]:
    """A device of which a block gets 64 KB, as on sm_75."""
    with closing(EmulatorDevice()) as device:
        device.max_shared_bytes = SMALL
        yield device


def shape_of(layer: str, name: str, batch: int) -> ConvShape:
    shape = layer_shape(layer, batch)
    return ConvPoolShape(**vars(shape), pool=POOLS[layer]) if name == "layers/fused" else shape


def shared_bytes(variant: Variant, shape: ConvShape) -> int:
    return max(step.shared_bytes for step in variant.steps(shape) if isinstance(step, Launch))


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, layer: str, small: EmulatorDevice, rng: np.random.Generator) -> None:
    shape = layer_shape(layer, 2)
    x, w = rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)
    result = check_conv2d(x, w, conv2d(x, w, name, small), find(name).precision)
    assert result.ok, str(result)


@pytest.mark.parametrize("layer", LAYERS)
def test_fused(layer: str, small: EmulatorDevice, rng: np.random.Generator) -> None:
    shape, pool = layer_shape(layer, 2), MaxPool2d(POOLS[layer], ceil_mode=True)
    x, w = rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)
    y = conv2d_relu_pool(x, w, POOLS[layer], find("layers/fused"), small)
    bound = pool.forward(conv2d_bound(x, w, "fp16"))
    result = compare(y, pool.forward(np.maximum(conv2d_float64(x, w), 0)), bound)
    assert result.ok, str(result)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", NAMES)
def test_the_tensor_cores_are_taken_and_fixed_arrays_find_room(
    name: str, layer: str, emulator: EmulatorDevice
) -> None:
    variant, shape = find(name), shape_of(layer, name, 10_000)
    for limit in (SMALL, LARGE):
        taken = fitting(variant, shape, limit)
        assert [step.kernel for step in taken.steps(shape)] == ["reset", "conv"]  # type: ignore[union-attr]
        defines = taken.defines_for(shape)
        fixed = static_shared_bytes(emulator.compile(taken.source, defines).path, "conv")
        assert 0 < fixed <= BUFFER_BYTES * max(defines["INPUTS"], 1)
        assert shared_bytes(taken, shape) + fixed <= limit


def test_only_where_it_is_needed() -> None:
    variant, compact = find("layers/custom"), find("layers/custom").compact
    assert compact is not None
    first, second = layer_shape("conv1"), layer_shape("conv2")
    assert fitting(variant, second, LARGE) is variant
    assert fitting(variant, first, SMALL) is variant  # needs no more in layer 1
    taken = fitting(variant, second, SMALL)
    assert taken.steps(second) == compact.steps(second) != variant.steps(second)
    assert (taken.name, taken.source) == (variant.name, variant.source)
    alone = replace(variant, compact=None)
    assert fitting(alone, second, SMALL) is alone


def test_without_a_compact_one_the_launch_says_so(small: EmulatorDevice, rng: np.random.Generator) -> None:
    shape = layer_shape("conv2", 1)
    x, w = rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)
    alone = replace(find("layers/custom"), compact=None)
    with pytest.raises(LaunchError, match=r"bytes of dynamic shared .* allows 0 to 65536 \(64 KB\)"):
        conv2d(x, w, alone, small)


@pytest.mark.parametrize("compact", [64, Variant("conv2d", "no plan")])
def test_what_is_no_variant(compact: object) -> None:
    wrong = replace(find("layers/custom"), compact=compact)  # type: ignore[arg-type]
    with pytest.raises(VariantError, match=r"layers/custom: compact is .*; expected a Variant with a plan"):
        fitting(wrong, layer_shape("conv2"), LARGE)


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_check_takes_what_the_named_gpu_would(name: str) -> None:
    """In checked mode, at a shape that needs more than the 64 KB of sm_75."""
    shape = ConvShape(1, 4, 36, 44, 16, 3, 3)
    assert shared_bytes(find(name), shape) > SMALL
    report = check(find(name), (shape,), arch=75, schedules=("forward",))
    assert report.arch == 75
    assert not report.findings
    assert not report.results[0].refused


def test_plans_of_a_grade_are_for_the_device() -> None:
    variant, shape = find("layers/custom"), layer_shape("conv2")
    for limit in (SMALL, LARGE):
        planned = decoding.decode(plans.encode(variant, shape, limit).encode(), shape)
        assert list(planned.steps) == fitting(variant, shape, limit).steps(shape)
        assert planned.defines == fitting(variant, shape, limit).defines_for(shape)


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
@pytest.mark.parametrize(("arch", "limit"), [("sm_75", SMALL), ("sm_80", SMALL), ("sm_90a", LARGE)])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", NAMES)
def test_compiles(name: str, layer: str, arch: str, limit: int) -> None:
    shape = shape_of(layer, name, 10_000)
    taken = fitting(find(name), shape, limit)
    assert build_cubin(taken.source, taken.defines_for(shape), arch)[:4] == b"\x7fELF"
