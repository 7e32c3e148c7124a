"""Graphs: recorded and replayed work on each device, and the driver calls for it."""

import sys
from collections.abc import Callable
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from convolutions import planned

from mini_dnn.device.base import Device
from mini_dnn.device.graph import CudaGraph
from mini_dnn.errors import DeviceError, LaunchError
from mini_dnn.nn.models import lenet
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.running.execute import Execution
from mini_dnn.variant import find

STREAM, GRAPH, EXECUTABLE = 77, 88, 99
FAILURE = 901


@pytest.mark.parametrize("variant", ["m1/direct", "m3/constant_memory", "m3/streams"])
@pytest.mark.parametrize("stream", [0, 2])
def test_a_replay_works_on_what_the_arrays_hold_by_then(variant: str, stream: int, device: Device) -> None:
    """This includes copies, kernels, copies to constant memory, and work on several streams."""
    shape, chosen = ConvShape(4, 1, 20, 21, 4, 7, 7), find(variant)
    module = device.compile(chosen.source, chosen.defines_for(shape))
    execution = Execution(planned(chosen, shape), module, device, stream)
    x, w, y = device.pinned(shape.x), device.pinned(shape.w), device.pinned(shape.y)
    rng = np.random.default_rng(1)

    def work() -> None:
        device.copy_in(execution.buffers["x"], x, stream)
        device.copy_in(execution.buffers["w"], w, stream)
        execution.kernels()
        device.copy_out(execution.buffers["y"], y, stream, wait=False)

    x[:], w[:] = 0, 0
    graph = device.capture(work, stream)
    for _ in range(3):
        x[:], w[:] = rng.standard_normal(shape.x), rng.standard_normal(shape.w)
        y[:] = np.nan
        graph.replay()
        device.synchronize(stream)
        replayed = y.copy()
        work()
        device.synchronize(stream)
        np.testing.assert_array_equal(replayed, y)
        assert np.abs(y).max() > 1
    graph.free()
    graph.free()
    with pytest.raises(DeviceError, match="was freed"):
        graph.replay()
    execution.free()


def test_a_graph_is_not_run_when_it_is_captured(emulator: Device) -> None:
    runs: list[int] = []
    graph = emulator.capture(lambda: runs.append(len(runs)))
    assert runs == []
    graph.replay()
    graph.replay()
    assert runs == [0, 1]
    with pytest.raises(DeviceError, match="no stream -1"):
        emulator.capture(lambda: None, -1)


def test_work_that_fails_leaves_the_device_as_it_was(device: Device) -> None:
    """A stream that continues to record would refuse to be waited for."""

    def work() -> None:
        device.copy_in(buffer, host, 1)
        if next(runs) == 1:
            raise ValueError("in the middle")

    buffer, host, runs = device.empty("x", (4,)), device.pinned((4,)), count()
    host[:] = 3

    def capture_and_replay() -> None:
        graph = device.capture(work, 1)  # on a GPU the work runs once, and then its recording fails
        graph.replay()  # the emulator runs the work here
        graph.replay()

    with pytest.raises(ValueError, match="in the middle"):
        capture_and_replay()
    out = device.pinned((4,))
    device.copy_out(buffer, out, 1)
    assert (out == 3).all()
    buffer.free()


def test_weights_are_set_up_once(emulator: Device) -> None:
    """Weights in constant memory stay there, but a convolution's filters are copied in each op."""
    network = lenet.build(np.random.default_rng(5))
    whole, shape = find("networks/lenet/whole"), LenetBatch(1)
    module = emulator.compile(whole.source, whole.defines_for(shape))
    execution = Execution(planned(whole, shape), module, emulator)
    for name, parameter in network.parameters().items():
        emulator.copy_in(execution.buffers[name], np.ascontiguousarray(parameter.value, np.float32))
    emulator.copy_in(execution.buffers["images"], np.ones((1, 1, 86, 86), np.float32))
    probabilities = np.empty((2, 1, 10), np.float32)
    w1 = emulator.symbol(module, "w1")
    before = np.empty(w1.nbytes, np.uint8)
    emulator.copy_out(w1, before)
    execution.kernels()
    emulator.copy_out(w1, after := np.empty_like(before))
    np.testing.assert_array_equal(before, after)
    execution.set_up()
    emulator.copy_out(w1, after)
    np.testing.assert_array_equal(after.view(np.float32), network.parameters()["conv1.weight"].value.ravel())
    for out in probabilities:
        execution.kernels()
        emulator.copy_out(execution.buffers["probabilities"], out)
    np.testing.assert_array_equal(*probabilities)
    execution.free()


class Driver(ModuleType):
    """A stand-in for ``cuda.bindings.driver`` that records the calls and fails in one of them."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=0)
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED=2)
    CUstream = int

    def __init__(self, fails: str = "") -> None:
        super().__init__("cuda.bindings.driver")
        self.fails, self.calls = fails, list[str]()
        results = {"cuStreamEndCapture": [GRAPH], "cuGraphInstantiate": [EXECUTABLE]}
        for name, found in ({name: [] for name in SIGNATURES} | results).items():
            setattr(self, name, self._function(name, found))

    def _function(self, name: str, found: list[Any]) -> Callable[..., tuple[Any, ...]]:
        def function(*args: Any) -> tuple[Any, ...]:
            assert args == SIGNATURES[name]
            self.calls.append(name)
            if name == self.fails:
                return FAILURE, *[None] * len(found)
            return 0, *found

        return function

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        assert status == FAILURE
        return 0, b"operation failed due to a previous error during capture"


SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuStreamBeginCapture": (STREAM, 2),
    "cuStreamEndCapture": (STREAM,),
    "cuGraphInstantiate": (GRAPH, 0),
    "cuGraphLaunch": (EXECUTABLE, STREAM),
    "cuGraphDestroy": (GRAPH,),
    "cuGraphExecDestroy": (EXECUTABLE,),
}


def install(monkeypatch: pytest.MonkeyPatch, driver: ModuleType | None) -> None:
    """Make that module importable; with None, importing it fails."""
    bindings = SimpleNamespace(driver=driver) if driver else None
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)


def test_what_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    install(monkeypatch, driver)
    graph = CudaGraph(lambda: driver.calls.append("work"), STREAM)
    graph.replay()
    graph.replay()
    graph.free()
    graph.free()
    recorded = ["cuStreamBeginCapture", "work", "cuStreamEndCapture", "cuGraphInstantiate", "cuGraphDestroy"]
    assert driver.calls == [*recorded, "cuGraphLaunch", "cuGraphLaunch", "cuGraphExecDestroy"]


@pytest.mark.parametrize(
    ("fails", "what"),
    [
        ("cuStreamBeginCapture", "begun"),
        ("cuStreamEndCapture", "recorded"),
        ("cuGraphInstantiate", "made executable"),
        ("cuGraphLaunch", "launched"),
    ],
)
def test_failures_of_the_driver(fails: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(fails)
    install(monkeypatch, driver)
    message = rf"a CUDA graph cannot be {what}: operation failed due to .* \(CUDA error 901\)"
    with pytest.raises(LaunchError, match=message):
        CudaGraph(lambda: None, STREAM).replay()
    has_graph = fails in ("cuGraphInstantiate", "cuGraphLaunch")
    assert driver.calls.count("cuGraphDestroy") == has_graph


def test_recording_ends_when_the_work_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver()
    install(monkeypatch, driver)
    with pytest.raises(ZeroDivisionError):
        CudaGraph(lambda: print(1 / 0), STREAM)
    assert driver.calls == ["cuStreamBeginCapture", "cuStreamEndCapture", "cuGraphDestroy"]


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, None)
    with pytest.raises(DeviceError, match=r"cuda-bindings cannot be imported .* pip install -e '\.\[gpu\]'"):
        CudaGraph(lambda: None, STREAM)
