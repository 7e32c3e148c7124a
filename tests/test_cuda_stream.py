"""The driver calls for streams that other libraries created."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import test_cuda_module as plain

from mini_dnn.device import bindings, cuda_module
from mini_dnn.device.base import LaunchConfig, MappedBuffer
from mini_dnn.device.cuda_buffer import CudaBuffer, LentCudaBuffer
from mini_dnn.device.cuda_module import CudaModule
from mini_dnn.device.cuda_stream import CudaStream
from mini_dnn.device.tensor_map import MapGeometry
from mini_dnn.errors import DeviceError, LaunchError

CONTEXT, HANDLE, EVENT, NOT_READY = 5, 77, 900, 600


class Driver(plain.Driver):
    """A stand-in with streams and events."""

    CUresult = SimpleNamespace(**vars(plain.Driver.CUresult), CUDA_ERROR_NOT_READY=NOT_READY)
    CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
    CUstreamCaptureStatus = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_NONE=0)
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL=9)

    def __init__(self) -> None:
        super().__init__()
        self.context, self.capturing, self.pending = CONTEXT, 0, True
        self.calls: list[tuple[Any, ...]] = []

    def cuCtxGetCurrent(self) -> tuple[int, int]:
        return 0, self.context

    def cuStreamGetId(self, stream: int) -> tuple[int, int]:
        assert not self.capturing, "the real one says no, and the capture is over"
        return 0, 1000 + stream

    def cuStreamIsCapturing(self, stream: int) -> tuple[int, int]:
        return self.fails.get("capturing", 0), self.capturing

    def cuMemcpyDtoDAsync(self, *args: int) -> tuple[int]:
        self.calls.append(("copy", *args))
        return (self.fails.get("copy", 0),)

    def cuEventCreate(self, flags: int) -> tuple[int, int]:
        return 0, EVENT

    def cuEventRecord(self, event: int, stream: int) -> tuple[int]:
        self.calls.append(("record", event, stream))
        return (self.fails.get("record", 0),)

    def cuStreamWaitEvent(self, stream: int, event: int, flags: int) -> tuple[int]:
        self.calls.append(("wait", stream, event))
        return (0,)

    def cuEventDestroy(self, event: int) -> tuple[int]:
        self.calls.append(("destroy", event))
        return (0,)

    def cuEventQuery(self, event: int) -> tuple[int]:
        return (NOT_READY if self.pending else 0,)

    def cuPointerGetAttribute(self, attribute: int, address: int) -> tuple[int, int]:
        assert attribute == 9
        return (0, 1) if address == 4096 else (plain.INVALID_VALUE, 0)


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def stream(driver: Driver) -> CudaStream:
    return CudaStream(driver, CONTEXT, HANDLE, lambda nbytes: lent(1 << 20))


def lent(address: int = 0) -> LentCudaBuffer:
    buffer = LentCudaBuffer("x", (4,), np.dtype("f4"))
    buffer.lie_at(address)
    return buffer


def test_a_launch_reads_where_arrays_lie_when_it_is_given(driver: Driver, stream: CudaStream) -> None:
    module, x = CudaModule(driver, Path("kernel.cu"), b"cubin", 90), lent()
    arguments = (x, *plain.ARGUMENTS[1:])
    give = stream.launch(module, "k", LaunchConfig((6, 2), (128,), 1024), arguments)
    assert not driver.launches
    for address in (4096, 1 << 40):
        x.lie_at(address)
        give()
    expected = [value.tobytes() for value in plain.ARGUMENTS[1:]]  # type: ignore[union-attr]
    assert [values for _, values in driver.launches] == [
        [np.uint64(address).tobytes(), *expected] for address in (4096, 1 << 40)
    ]
    config = driver.launches[0][0]
    assert (config.gridDimX, config.gridDimY, config.blockDimX) == (6, 2, 128)
    assert (config.sharedMemBytes, config.hStream) == (1024, HANDLE)


def test_two_launches_of_one_kernel_have_arguments_of_their_own(driver: Driver, stream: CudaStream) -> None:
    module = CudaModule(driver, Path("kernel.cu"), b"cubin", 90)
    given = [
        stream.launch(module, "k", plain.PLAIN, (lent(64), plain.STRUCT, np.int32(n), np.float32(0)))
        for n in range(2)
    ]
    for give in (*given, *given):
        give()
    assert [values[2] for _, values in driver.launches] == [np.int32(n).tobytes() for n in (0, 1, 0, 1)]


def test_tensor_maps_follow_their_buffers(
    driver: Driver, stream: CudaStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each address is encoded once, but old ones are dropped, because there may be many."""
    asked: list[int] = []

    def encoded(address: int, geometry: MapGeometry) -> np.void:
        asked.append(address)
        return np.frombuffer(np.full(16, address, np.uint64).tobytes(), "V128")[0]

    monkeypatch.setattr(cuda_module, "encoded", encoded)
    monkeypatch.setattr(cuda_module, "MAPS", 2)
    matrix = LentCudaBuffer("a", (8, 64), np.dtype("f2"))
    geometry = MapGeometry("float16", (8, 64), (64,), (8, 64), 128)
    module = CudaModule(driver, Path("kernel.cu"), b"cubin", 90)
    arguments = (lent(64), MappedBuffer(matrix, geometry), np.int32(0), np.float32(0))
    give = stream.launch(module, "k", LaunchConfig((1,), (32,)), arguments)
    places = [4096, 4096, 8192, 4096, 8192, 1 << 20, 4096]
    for address in places:
        matrix.lie_at(address)
        give()
    found = [np.frombuffer(values[1], np.uint64) for _, values in driver.launches]
    assert [value.tolist() for value in found] == [[address] * 16 for address in places]
    assert asked == [4096, 8192, 1 << 20, 4096]
    matrix.lie_at(4100)
    with pytest.raises(LaunchError, match="4 bytes past a multiple of 16 bytes"):
        give()


def test_a_launch_that_does_not_fit_is_refused_when_it_is_made_ready(
    driver: Driver, stream: CudaStream
) -> None:
    module = CudaModule(driver, Path("kernel.cu"), b"cubin", 90)
    with pytest.raises(LaunchError, match="takes 4 arguments; 1 were passed"):
        stream.launch(module, "k", LaunchConfig((1,), (32,)), (lent(),))
    wrong = (np.int32(1), *plain.ARGUMENTS[1:])
    with pytest.raises(LaunchError, match=r"argument 1 of k of kernel\.cu has 8 bytes"):
        stream.launch(module, "k", LaunchConfig((1,), (32,)), wrong)
    give = stream.launch(module, "k", LaunchConfig((1,), (32,)), plain.ARGUMENTS)
    driver.fails["launch"] = plain.INVALID_VALUE
    with pytest.raises(LaunchError, match=r"launching k of kernel.cu on grid \(1,\).*: invalid argument"):
        give()
    with pytest.raises(DeviceError, match="was not compiled for this GPU"):
        stream.launch(object(), "k", LaunchConfig((1,), (32,)), ())  # type: ignore[arg-type]


def test_a_copy(driver: Driver, stream: CudaStream) -> None:
    target, source = CudaBuffer("w_const", (64,), np.dtype("u1"), 0x7000, 64), lent()
    give = stream.copy(target, source)
    source.lie_at(0x9000)
    give()
    assert driver.calls == [("copy", 0x7000, 0x9000, 16, HANDLE)]
    driver.fails["copy"] = plain.INVALID_VALUE
    with pytest.raises(LaunchError, match="cuMemcpyDtoDAsync says: invalid argument"):
        give()
    with pytest.raises(DeviceError, match="'w_const' has 64 bytes and 'x' holds 16"):
        stream.copy(source, target)


def test_what_a_stream_says_of_itself(driver: Driver, stream: CudaStream) -> None:
    assert stream.number() == 1000 + HANDLE
    assert stream.is_current()
    driver.context = CONTEXT + 1
    assert not stream.is_current()
    assert not stream.is_captured()
    driver.capturing = 1
    assert stream.is_captured()
    assert stream.number() is None
    driver.capturing = 0
    driver.fails["capturing"] = plain.INVALID_VALUE
    with pytest.raises(LaunchError, match="stream of another library cannot be used: invalid argument"):
        stream.number()
    default = CudaStream(driver, CONTEXT, 0, lambda nbytes: lent(1 << 20))
    assert default.number() == default.number() == 0  # without a call of the driver, which is slow


def test_following_another_stream(driver: Driver, stream: CudaStream) -> None:
    stream.follow(1)
    assert driver.calls == [("record", EVENT, 1), ("wait", HANDLE, EVENT), ("destroy", EVENT)]


def test_marks(driver: Driver, stream: CudaStream) -> None:
    is_over = stream.mark()
    assert driver.calls == [("record", EVENT, HANDLE)]
    assert not is_over()
    driver.pending = False
    assert is_over()
    assert is_over(), "asking twice is harmless"
    del is_over
    assert driver.calls == [("record", EVENT, HANDLE), ("destroy", EVENT)]


def test_events_of_marks_that_nobody_asks_are_destroyed(driver: Driver, stream: CudaStream) -> None:
    stream.mark()
    assert driver.calls == [("record", EVENT, HANDLE), ("destroy", EVENT)]


def test_an_event_that_cannot_be_recorded_is_destroyed(driver: Driver, stream: CudaStream) -> None:
    driver.fails["record"] = plain.INVALID_VALUE
    with pytest.raises(LaunchError, match="cuEventRecord says"):
        stream.mark()
    assert driver.calls == [("record", EVENT, HANDLE), ("destroy", EVENT)]


def test_which_gpu_memory_lies_on(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bindings, "load_driver", lambda: driver)
    assert bindings.gpu_of(4096) == 1
    with pytest.raises(DeviceError, match=r"the address 0x10 belongs to no GPU: invalid argument"):
        bindings.gpu_of(16)
