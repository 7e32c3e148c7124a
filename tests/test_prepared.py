"""Calls that are prepared once for arrays on the device, here the emulator."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mini_dnn.device import Device
from mini_dnn.device.base import LaunchConfig
from mini_dnn.errors import DeviceError, LimitError, VariantError
from mini_dnn.ops import Arrays
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.ops.linear import LinearShape
from mini_dnn.running import prepared as running_prepared
from mini_dnn.running.parts import empty_outputs, largest_part
from mini_dnn.running.prepared import ALIGNMENT, Prepared
from mini_dnn.running.runner import run
from mini_dnn.variant import Array, CopyToSymbol, Launch, Variant, find, names

# Outputs of 3 x 7 x 7 floats, so that not every image begins at a multiple of 16 bytes
SHAPE = ConvShape(7, 2, 9, 8, 3, 3, 2)


def call(prepared: Prepared, arrays: Arrays, device: Device) -> dict[str, np.ndarray]:
    """Call, and return the outputs, which are filled with NaN before."""
    outputs = empty_outputs(prepared.problem)
    for array in outputs.values():
        array[...] = np.nan
    held = {**arrays, **outputs}
    prepared([held[name].ctypes.data for name in prepared.names])
    device.synchronize()
    return outputs


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether all bits are equal, with NaN in gaps, which nobody writes."""
    return (
        found.dtype == expected.dtype
        and found.tobytes() == np.where(np.isnan(expected), found, expected).astype(found.dtype).tobytes()
        and np.array_equal(np.isnan(found), np.isnan(expected))
    )


def ready(variant: Variant, problem: Any, device: Device) -> Prepared:
    return Prepared(variant, problem, device, device.foreign_stream(0))


@pytest.fixture
def memory(quick_emulator: Device, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that sets the number of free bytes."""

    def set_free(nbytes: int) -> None:
        monkeypatch.setattr(quick_emulator, "free_bytes", lambda: nbytes)

    return set_free


@pytest.mark.parametrize("name", names()[1::3])
def test_every_variant_gives_what_it_gives_with_copies(name: str, quick_emulator: Device) -> None:
    """The bits are equal, with different arrays in each call."""
    variant = find(name)
    if variant.host is not None or variant.needs_gpu:
        pytest.skip(f"{name} does not run on the emulator: {variant.needs_gpu or 'it runs on the host'}")
    operation = variant.operation
    problems = [p for p in (*operation.check, *operation.spare) if not variant.limit_for(p)]
    problem = min(problems[-3:], key=lambda p: p.min_bytes)
    prepared = ready(variant, problem, quick_emulator)
    for seed in range(2):
        arrays = operation.inputs(problem, seed)
        expected = run(variant, problem, arrays, quick_emulator).outputs
        found = call(prepared, arrays, quick_emulator)
        assert found.keys() == expected.keys()
        assert all(same(found[key], expected[key]) for key in expected)
    prepared.free()


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("m2", SHAPE),
        ("m3/constant_memory", SHAPE),
        ("networks/lenet/whole", LenetBatch(9)),
        ("gemm/v3", GemmShape(5, 6, 7, "fp16", "fp32", "nn", 9, 1.0, 1.0)),
    ],
)
def test_parts_of_a_batch_that_does_not_fit(
    name: str, problem: Any, quick_emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One-time work comes before the parts of each size. The parts are views of the same arrays."""
    variant = find(name)
    monkeypatch.setattr(running_prepared, "largest_part", lambda *args, **more: problem.batch - 1)
    fits = "mini_dnn.variant.planned.Planned.fits"
    monkeypatch.setattr(fits, lambda self, free, scratch_alone=False: self.problem.batch < problem.batch)
    prepared = ready(variant, problem, quick_emulator)
    places = {offset for _, _, offset in prepared._places}
    assert len(places) > 1
    assert all(offset % ALIGNMENT == 0 for offset in places)
    arrays = variant.operation.inputs(problem, 0)
    expected = run(variant, problem, arrays, quick_emulator, most=5).outputs
    found = call(prepared, arrays, quick_emulator)
    assert all(np.array_equal(found[key], expected[key]) for key in expected)


def test_parts_of_a_batch_that_the_variant_refuses(quick_emulator: Device) -> None:
    variant = replace(find("m1"), refuses=lambda s: "at most 4 images" if s.N > 4 else "")
    arrays = variant.operation.inputs(SHAPE, 0)
    found = call(ready(variant, SHAPE, quick_emulator), arrays, quick_emulator)
    assert np.array_equal(found["y"], run(find("m1"), SHAPE, arrays, quick_emulator).y)
    with pytest.raises(LimitError, match=r"does not support \(7, 2, 9, 8\).*: never"):
        ready(replace(variant, refuses=lambda s: "never"), SHAPE, quick_emulator)


def test_only_scratch_memory_counts(quick_emulator: Device, memory: Any) -> None:
    """The arrays exist already.

    Half of the free memory is for parts of one size, half for those of the other.
    """
    variant = find("m2")
    scratch = variant.planned(SHAPE.with_batch(1), 1 << 16).scratch_bytes
    memory(7 * scratch)
    assert ready(variant, SHAPE, quick_emulator)._sizes() == [7]
    memory(7 * scratch - 1)  # memory for 3 images would fit, but views of 4 begin at multiples of 16 bytes
    with pytest.raises(DeviceError, match=r"for 4 entries of the batch of .* multiples of 16 bytes"):
        ready(variant, SHAPE, quick_emulator)
    memory(8 * scratch)
    assert ready(variant, SHAPE.with_batch(11), quick_emulator)._sizes() == [4, 4, 3]
    memory(scratch)
    with pytest.raises(DeviceError, match="for one entry of the batch"):
        ready(variant, SHAPE, quick_emulator)


def test_the_largest_part_is_searched_once(
    quick_emulator: Device, memory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[int] = []

    def search(plan: Any, problem: Any, free: int, **more: Any) -> int:
        searched.append(free)
        return largest_part(plan, problem, free, **more)

    monkeypatch.setattr(running_prepared, "largest_part", search)
    variant = find("m2")
    free = 8 * variant.planned(SHAPE.with_batch(1), 1 << 16).scratch_bytes
    memory(free)
    assert ready(variant, SHAPE.with_batch(11), quick_emulator)._sizes() == [4, 4, 3]
    assert set(searched) == {free // 2}
    searched.clear()
    assert ready(variant, SHAPE, quick_emulator)._sizes() == [7]
    assert not searched


def test_what_runs_on_the_host_is_refused(quick_emulator: Device) -> None:
    with pytest.raises(VariantError, match="m1/cpu runs on the host, but the arrays are on a GPU"):
        ready(find("cpu"), SHAPE, quick_emulator)


def test_what_needs_a_gpu_is_refused(quick_emulator: Device) -> None:
    with pytest.raises(DeviceError, match="needs a GPU"):
        ready(find("m3/cublas"), SHAPE, quick_emulator)


def test_two_calls_have_scratch_memory_and_variables_of_their_own(quick_emulator: Device) -> None:
    first, second = (ready(find("m2"), SHAPE, quick_emulator) for _ in range(2))
    one, other = (next(iter(p._scratch.values())) for p in (first, second))
    assert one.address != other.address  # type: ignore[attr-defined]
    constant = [ready(find("m3/constant_memory"), SHAPE, quick_emulator)._modules[0] for _ in range(2)]
    addresses = {quick_emulator.symbol(module, "w_const").address for module in constant}  # type: ignore[attr-defined]
    assert len(addresses) == 2


def test_scratch_memory_is_given_back(quick_emulator: Device) -> None:
    before = quick_emulator.free_bytes()
    prepared = ready(find("m2"), SHAPE, quick_emulator)
    assert quick_emulator.free_bytes() < before
    prepared.free()
    assert quick_emulator.free_bytes() == before


def test_memory_is_given_back_where_a_plan_is_broken(quick_emulator: Device, tmp_path: Any) -> None:
    before = quick_emulator.free_bytes()
    source = find("m1").source.read_text()
    (tmp_path / "kernel.cu").write_text(source)
    variant = Variant(
        op="conv2d",
        idea="",
        plan=lambda s: [Launch("conv_direct", (1,), (1,), ("nobody",))],
        setup=lambda s: [CopyToSymbol("w", "nobody")],
        scratch=lambda s: {"col": Array((s.N, 3))},
        name="broken",
        folder=tmp_path,
    )
    with pytest.raises(VariantError, match="names a buffer 'nobody'; expected one of x, w, y, col"):
        ready(variant, SHAPE, quick_emulator)
    assert quick_emulator.free_bytes() == before


class Renumbered:
    """A stream whose handle is used again by another stream, and a device that records its waits."""

    def __init__(self, device: Device) -> None:
        self._stream, self.device, self.current = device.foreign_stream(0), device, True
        self.now: int | None = 1
        self.said: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def number(self) -> int | None:
        return self.now

    def is_current(self) -> bool:
        return self.current


def test_another_stream_with_the_same_handle_waits_once(
    quick_emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Work of the first stream may still use the scratch memory."""
    stream: Any = Renumbered(quick_emulator)
    variant, arrays = find("m2"), find("m2").operation.inputs(SHAPE, 0)
    prepared = Prepared(variant, SHAPE, quick_emulator, stream)
    waits: list[None] = []
    monkeypatch.setattr(quick_emulator, "synchronize", lambda stream=None: waits.append(None))
    # None: the stream is being captured
    for number, expected in ((1, 0), (1, 0), (2, 1), (None, 0), (2, 0), (3, 1)):
        stream.now = number
        waits.clear()
        call(prepared, arrays, quick_emulator)
        assert len(waits) == 1 + expected  # `call` waits, too


def test_a_thread_that_works_elsewhere_enters_the_device(
    quick_emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream: Any = Renumbered(quick_emulator)
    prepared = Prepared(find("m1"), SHAPE, quick_emulator, stream)
    entered, real = [], quick_emulator.entered
    monkeypatch.setattr(quick_emulator, "entered", lambda: entered.append(None) or real())
    arrays = find("m1").operation.inputs(SHAPE, 0)
    call(prepared, arrays, quick_emulator)
    assert not entered
    stream.current = False
    call(prepared, arrays, quick_emulator)
    assert len(entered) == 1


class Noting:
    """A stream that records which launches are early."""

    def __init__(self, device: Device) -> None:
        self.stream, self.early = device.foreign_stream(0), []

    def launch(self, module: Any, kernel: str, config: LaunchConfig, args: Any) -> Any:
        self.early.append(config.early)
        return self.stream.launch(module, kernel, config, args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@pytest.mark.parametrize(
    ("name", "problem", "early"),
    [
        ("gemm/v10", GemmShape(32, 32, 32, "fp16", "fp16"), [True]),
        ("linear/v1", LinearShape(1, 3, 8, 8), [False]),
    ],
)
def test_the_first_launch_waits_for_whoever_wrote_the_weights(
    name: str, problem: Any, early: list[bool], quick_emulator: Device
) -> None:
    stream: Any = Noting(quick_emulator)
    Prepared(find(name), problem, quick_emulator, stream)
    assert stream.early == early
