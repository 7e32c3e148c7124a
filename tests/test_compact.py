"""Variants on devices with less shared memory per block than they request."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from convolutions import planned, solved
from sampling import some_of

from mini_dnn import ops
from mini_dnn.checking.check import check
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.device.emulator.symbols import static_shared_bytes
from mini_dnn.device.nvcc import build_cubin, find_nvcc
from mini_dnn.errors import LaunchError, VariantError
from mini_dnn.ops.conv2d import LAYERS, ConvShape
from mini_dnn.quads import BUFFER_BYTES
from mini_dnn.variant import Planned, Variant, find

SMALL, LARGE = 64 * 1024, 227 * 1024  # bytes of a block on sm_75 and on sm_90
CONVOLUTIONS = ("layers/custom", "m3/fp32_split")
NAMES = (*CONVOLUTIONS, "layers/fused")


@pytest.fixture(scope="module")
def small() -> Iterator[EmulatorDevice]:
    """A device whose blocks may have 64 KB, as on sm_75."""
    with closing(EmulatorDevice(quick=True)) as device:
        device.max_shared_bytes = SMALL
        yield device


def shape_of(layer: str, name: str) -> ConvShape:
    return ops.find(find(name).op).course[layer]


def shared_bytes(planned: Planned) -> int:
    return max(launch.shared_bytes for launch in planned.launches)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("name", NAMES)
def test_against_float64(name: str, layer: str, small: EmulatorDevice) -> None:
    result = solved(find(name), shape_of(layer, name).with_batch(2), small)
    assert result.ok, str(result)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("layer", ["conv2", "conv1"])
def test_the_tensor_cores_are_taken_and_fixed_arrays_find_room(
    name: str, layer: str, quick_emulator: EmulatorDevice
) -> None:
    variant, shape = find(name), shape_of(layer, name)
    for limit in (SMALL, LARGE):
        taken = planned(variant, shape, limit)
        assert [launch.kernel for launch in taken.launches] in (["reset", "conv"], ["prepare", "conv"])
        fixed = static_shared_bytes(quick_emulator.compile(taken.source, taken.defines).path, "conv")
        ranges = 16 * (name == "m3/fp32_split")  # for the ranges of values that its threads exchange
        assert 0 < fixed <= BUFFER_BYTES * max(taken.defines["INPUTS"], 1) + ranges
        assert shared_bytes(taken) + fixed <= limit


def test_only_where_it_is_needed() -> None:
    variant, compact = find("layers/custom"), find("layers/custom").compact
    assert compact is not None
    assert compact.plan is not None
    alone = replace(variant, compact=None)
    first, second = LAYERS.values()
    for shape, limit in ((second, LARGE), (first, SMALL)):  # the first never needs more
        assert planned(variant, shape, limit) == planned(alone, shape, limit)
    taken, whole = planned(variant, second, SMALL), planned(alone, second, SMALL)
    assert taken.steps == tuple(compact.plan(second)) != whole.steps
    assert taken.defines == compact.defines_for(second) != whole.defines
    assert (taken.name, taken.source) == (variant.name, variant.source)


def test_without_a_compact_one_the_launch_says_so(small: EmulatorDevice) -> None:
    alone = replace(find("layers/custom"), compact=None)
    with pytest.raises(LaunchError, match=r"bytes of dynamic shared .* allows 0 to 65536 \(64 KB\)"):
        solved(alone, LAYERS["conv2"].with_batch(1), small)


@pytest.mark.parametrize("compact", [64, Variant("conv2d", "no plan")])
def test_what_is_no_variant(compact: object) -> None:
    wrong = replace(find("layers/custom"), compact=compact)  # type: ignore[arg-type]
    with pytest.raises(VariantError, match=r"layers/custom: compact is .*; expected a Variant with a plan"):
        planned(wrong, LAYERS["conv2"], LARGE)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_check_takes_what_the_named_gpu_would(name: str) -> None:
    """Checked mode, at a shape that needs more than the 64 KB of sm_75."""
    shape = ConvShape(1, 4, 36, 44, 16, 3, 3)
    assert shared_bytes(planned(find(name), shape, LARGE)) > SMALL
    report = check(find(name), (shape,), arch=75, schedules=("forward",))
    assert report.arch == 75
    assert not report.findings
    assert not report.results[0].refused


def test_plans_of_a_grade_are_for_the_device() -> None:
    from mini_dnn.grading import decoding, plans

    variant, shape = find("layers/custom"), LAYERS["conv2"]
    for limit in (SMALL, LARGE):
        taken = planned(variant, shape, limit)
        found = decoding.decode(plans.encode(taken), shape, plans.Head.of(variant), variant.source)
        assert (found.steps, found.defines) == (taken.steps, taken.defines)


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")
@pytest.mark.parametrize(
    ("name", "layer", "arch"), some_of(NAMES, ("conv2", "conv1"), ("sm_75", "sm_80", "sm_90a"), one_of=3)
)
def test_compiles(name: str, layer: str, arch: str) -> None:
    taken = planned(find(name), shape_of(layer, name), LARGE if arch == "sm_90a" else SMALL)
    assert build_cubin(taken.source, taken.defines, arch)[:4] == b"\x7fELF"
