"""A problem on several GPUs gives the same bits as on one. Shared arrays are sent only to the first GPU."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from clocked import Clocked

from mini_dnn import ops
from mini_dnn.cli import main
from mini_dnn.device import Device, open_device, peers
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.errors import DeviceError, LaunchError, SharedMemoryError, UsageError
from mini_dnn.ops.problem import spans
from mini_dnn.running.runner import run
from mini_dnn.running.several import run_on_several
from mini_dnn.running.timing import Timing
from mini_dnn.variant import Launch, find

GEMM = "gemm/v3_registers"
CASES = [
    (GEMM, "70,150,33"),
    (GEMM, "1,129,40,fp16,fp16,nt"),
    (GEMM, "37,145,50,fp16,fp16,nn,1,1.0,2.0,53,148,147"),
    (GEMM, "40,164,73,fp32,fp32,tt,1,1.0,0.0,44,75,168"),
    (GEMM, "33,18,47,bf16,fp32,nt,3"),
    ("m1/direct", "5,3,9,11,5,3,3"),
    ("layers/fused", "3,2,20,20,4,5,5,2"),
]


def several(count: int = 2) -> list[tuple[str, Device]]:
    return [(f"emulator {at}", EmulatorDevice(quick=True)) for at in range(count)]


@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_parts_give_the_bits_of_the_whole(name: str, sizes: str) -> None:
    variant = find(name)
    problem = variant.operation.parse(sizes)
    arrays = variant.operation.inputs(problem, 1)
    whole = run(variant, problem, arrays, EmulatorDevice(quick=True))
    found = run_on_several(variant, problem, arrays, several())
    for output, values in whole.outputs.items():
        assert values.tobytes() == found.outputs[output].tobytes()
    assert len(found.shares) == 2


def test_what_all_need_crosses_the_bus_once(monkeypatch: pytest.MonkeyPatch) -> None:
    came: Counter[str] = Counter()
    copy_in = EmulatorDevice.copy_in

    def counted(self: EmulatorDevice, buffer: Any, array: np.ndarray, stream: int = 0) -> None:
        came[buffer.name] += array.nbytes
        copy_in(self, buffer, array, stream)

    monkeypatch.setattr(EmulatorDevice, "copy_in", counted)
    variant = find(GEMM)
    problem = variant.operation.parse("70,200,33")
    arrays = variant.operation.inputs(problem, 1)
    found = run_on_several(variant, problem, arrays, several(3))
    assert came == {name: arrays[name].nbytes for name in "ab"}
    assert [one.nbytes for one in found.exchanges] == [0, arrays["a"].nbytes, arrays["a"].nbytes]


def test_columns_stay_together() -> None:
    assert spans(200, 3, 64) == [(0, 64), (64, 128), (128, 200)]
    assert spans(64, 2, 64) == [(0, 64)]
    assert spans(5, 2) == [(0, 2), (2, 5)]
    shares = ops.find("gemm").parse("8,129,8").shares(2)
    assert [share.problem.n for share in shares] == [64, 65]


def test_a_problem_that_is_too_small(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--impl", GEMM, "--shapes", "9,64,9", "--gpus", "2", "--device", "emulator"]) == 2
    assert "cannot be divided among 2 GPUs, only 1" in capsys.readouterr().err


def test_numpy_runs_on_no_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--impl", "m1/cpu", "--gpus", "2"]) == 2
    assert "remove --gpus 2" in capsys.readouterr().err


def test_images_that_a_plan_copies_itself() -> None:
    variant = find("m3/streams")
    problem = variant.operation.parse("4,1,9,9,4,3,3")
    with pytest.raises(UsageError, match="runs on one GPU"):
        run_on_several(variant, problem, variant.operation.inputs(problem, 1), several())


def test_a_part_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = several()
    variant = find("m1/direct")
    problem = variant.operation.parse("5,3,9,11,5,3,3")
    needed = variant.planned(problem.with_batch(3), 1 << 16).nbytes
    monkeypatch.setattr(gpus[1][1], "free_bytes", lambda: needed)
    arrays = variant.operation.inputs(problem, 1)
    run_on_several(variant, problem, arrays, gpus)
    monkeypatch.setattr(gpus[1][1], "free_bytes", lambda: needed - 1)
    before = gpus[0][1].free_bytes()
    with pytest.raises(DeviceError, match=r"emulator 1: m1/direct needs .* for \(3, 3, .*remove --gpus"):
        run_on_several(variant, problem, arrays, gpus)
    assert gpus[0][1].free_bytes() == before, "the other part is freed"


def test_many_launches_are_timed_as_graphs() -> None:
    """As on one GPU: otherwise each GPU would wait for Python."""
    variant = find("networks/resnet18/v2_layers")
    problem = variant.operation.parse("2,8,1,small,4-4-4-4,1-1-1-1,3,fp32")
    arrays = variant.operation.inputs(problem, 0)
    gpus = [(str(at), Clocked(quick=True)) for at in range(2)]
    found = run_on_several(variant, problem, arrays, gpus, Timing(warm_up=0, repeats=1, max_repeats=1))
    assert [device.graphs for _, device in gpus] == [1, 1]
    launches = sum(isinstance(step, Launch) for step in variant.planned(found.shares[0], 227 * 1024).steps)
    assert found.each_ms == (launches, launches), "each launch takes a millisecond on this clock"


def test_the_gpu_that_fails_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = several()

    def failing(*words: Any) -> None:
        raise LaunchError("an ECC error")

    monkeypatch.setattr(gpus[1][1], "launch", failing)
    variant = find(GEMM)
    problem = variant.operation.parse("8,129,8")
    with pytest.raises(LaunchError, match="emulator 1: an ECC error"):
        run_on_several(variant, problem, variant.operation.inputs(problem, 1), gpus)


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("empty", DeviceError("out of memory")),
        ("compile", SharedMemoryError("kernel.cu does not compile", "gemm")),
    ],
)
def test_the_gpu_that_cannot_prepare_its_part_is_named(
    method: str, error: DeviceError, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus, variant = several(), find(GEMM)
    problem = variant.operation.parse("8,129,8")

    def fail(*args: Any, **options: Any) -> Any:
        raise error

    monkeypatch.setattr(gpus[1][1], method, fail)
    with pytest.raises(type(error), match=f"emulator 1: {error}"):
        run_on_several(variant, problem, variant.operation.inputs(problem, 1), gpus)


def test_the_command_compares_with_float64(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "--impl", "m1/direct", "--shapes", "3,1,9,9,4,3,3"]
    assert main([*words, "--gpus", "2", "--device", "emulator", "--check"]) == 0
    told = capsys.readouterr().out
    assert "part 1: (2, 1, 9, 9)" in told
    assert "agrees with float64" in told


class Driver(SimpleNamespace):
    """The calls of NVIDIA's driver for copies from one GPU to another."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED=704)

    def __init__(self, linked: bool = True, enabled: int = 0, copied: int = 0) -> None:
        super().__init__(calls=[], linked=linked, enabled=enabled, copied=copied)

    def cuDeviceCanAccessPeer(self, receiver: int, sender: int) -> tuple[int, int]:
        return 0, int(self.linked)

    def cuCtxEnablePeerAccess(self, *words: int) -> tuple[int]:
        self.calls.append(words)
        return (self.enabled,)

    def cuMemcpyPeerAsync(self, *words: int) -> tuple[int]:
        self.calls.append(words)
        return (self.copied,)

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return 0, b"no such luck"


def test_gpus_that_are_linked_are_connected() -> None:
    linked, apart = Driver(), Driver(linked=False)
    peers.connect(linked, 1, 0, 77)
    peers.connect(apart, 1, 0, 77)
    peers.connect(Driver(enabled=704), 1, 0, 77)
    assert (linked.calls, apart.calls) == ([(77, 0)], [])
    with pytest.raises(
        LaunchError, match="GPU 1 cannot be given access to the memory of GPU 0: no such luck"
    ):
        peers.connect(Driver(enabled=1), 1, 0, 77)


def test_copies_name_both_contexts() -> None:
    driver = Driver()
    peers.copy(driver, (10, 11), (20, 21), 8, 5)
    assert driver.calls == [(10, 11, 20, 21, 8, 5)]
    with pytest.raises(LaunchError, match="no such luck"):
        peers.copy(Driver(copied=1), (10, 11), (20, 21), 8, 5)


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "sizes"), CASES)
def test_two_parts_on_one_gpu(name: str, sizes: str) -> None:
    variant = find(name)
    problem = variant.operation.parse(sizes)
    arrays = variant.operation.inputs(problem, 1)
    first = open_device("cuda")
    second = open_device("cuda")
    try:
        whole = run(variant, problem, arrays, first)
        found = run_on_several(variant, problem, arrays, [("a", first), ("b", second)], Timing())
    finally:
        second.close()
        first.close()
    for output, values in whole.outputs.items():
        assert values.tobytes() == found.outputs[output].tobytes()
    assert len(found.each_ms) == 2
