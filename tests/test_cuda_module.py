"""The driver calls of a launch, and the messages if the driver refuses one."""

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.clusters import Sizes
from mini_dnn.device.cuda_buffer import CudaBuffer
from mini_dnn.device.cuda_module import CudaModule
from mini_dnn.errors import CompileError, DeviceError, LaunchError

SUCCESS, INVALID_VALUE, NOT_FOUND = 0, 1, 500
SHARED_SIZE, MOST_SHARED = 1, 8  # attributes of a function
CLUSTER, EARLY = 4, 6  # attributes of a launch
MODULE, FUNCTION, STREAM = 16, 32, 77
PARAMETERS = ((0, 8), (64, 128), (192, 4), (196, 4))  # offset and size of each parameter, in bytes
BUFFER = CudaBuffer("x", (4,), np.dtype("f4"), 0x123400, 16)
STRUCT = np.frombuffer(bytes(range(128)), "V128")[0]
ARGUMENTS = (BUFFER, STRUCT, np.int32(-5), np.float32(2.5))
PLAIN = LaunchConfig((6, 2), (128,))


class Driver:
    """A stand-in for ``cuda.bindings.driver``: one module with a kernel ``k`` and a variable ``c``."""

    CUresult = SimpleNamespace(CUDA_SUCCESS=SUCCESS, CUDA_ERROR_INVALID_VALUE=INVALID_VALUE)
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES=SHARED_SIZE,
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES=MOST_SHARED,
    )
    CUlaunchAttributeID = SimpleNamespace(
        CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION=CLUSTER,
        CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION=EARLY,
    )
    CUlaunchConfig = SimpleNamespace
    CUstream = int

    def __init__(self) -> None:
        self.fails: dict[str, int] = {}
        self.asked: list[str] = []
        self.launches: list[tuple[Any, list[bytes]]] = []
        self.unloaded: list[int] = []
        self.shared_bytes = 0

    def CUlaunchAttribute(self) -> SimpleNamespace:
        return SimpleNamespace(value=SimpleNamespace(clusterDim=SimpleNamespace()))

    def cuModuleLoadData(self, cubin: bytes) -> tuple[int, int | None]:
        return (SUCCESS, MODULE) if cubin == b"cubin" else (INVALID_VALUE, None)

    def cuModuleUnload(self, module: int) -> tuple[int]:
        self.unloaded.append(module)
        return (SUCCESS,)

    def cuModuleGetFunction(self, module: int, name: bytes) -> tuple[int, int | None]:
        assert module == MODULE
        self.asked.append(name.decode())
        return (SUCCESS, FUNCTION) if name == b"k" else (NOT_FOUND, None)

    def cuModuleGetGlobal(self, module: int, name: bytes) -> tuple[int, int | None, int | None]:
        assert module == MODULE
        return (SUCCESS, 0x7000, 64) if name == b"c" else (NOT_FOUND, None, None)

    def cuFuncGetParamInfo(self, function: int, i: int) -> tuple[int, int | None, int | None]:
        assert function == FUNCTION
        return (SUCCESS, *PARAMETERS[i]) if i < len(PARAMETERS) else (INVALID_VALUE, None, None)

    def cuFuncGetAttribute(self, attribute: int, function: int) -> tuple[int, int]:
        assert (attribute, function) == (SHARED_SIZE, FUNCTION)
        return SUCCESS, 4096

    def cuFuncSetAttribute(self, function: int, attribute: int, value: int) -> tuple[int]:
        assert (function, attribute) == (FUNCTION, MOST_SHARED)
        self.shared_bytes = value
        return (self.fails.get("attribute", SUCCESS),)

    def cuLaunchKernelEx(self, config: Any, function: int, arguments: int, extra: int) -> tuple[int]:
        assert (function, extra) == (FUNCTION, 0)
        assert config.sharedMemBytes <= max(48 * 1024, self.shared_bytes)
        pointers = (ctypes.c_void_p * len(PARAMETERS)).from_address(arguments)
        values = [ctypes.string_at(p, n) for p, (_, n) in zip(pointers, PARAMETERS, strict=True)]  # type: ignore[arg-type]
        self.launches.append((config, values))
        return (self.fails.get("launch", SUCCESS),)

    def cuGetErrorString(self, status: int) -> tuple[int, bytes]:
        return SUCCESS, {INVALID_VALUE: b"invalid argument", NOT_FOUND: b"named symbol not found"}[status]


@pytest.fixture
def driver() -> Driver:
    return Driver()


def module(driver: Driver, arch: int = 90) -> CudaModule:
    return CudaModule(driver, Path("kernel.cu"), b"cubin", arch)


def attributes(config: Any) -> dict[int, Any]:
    assert config.numAttrs == len(config.attrs)
    return {attribute.id: attribute.value for attribute in config.attrs}


def test_a_plain_launch(driver: Driver) -> None:
    module(driver).kernel("k").launch(PLAIN, ARGUMENTS, STREAM)
    ((config, values),) = driver.launches
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (6, 2, 1)
    assert (config.blockDimX, config.blockDimY, config.blockDimZ) == (128, 1, 1)
    assert (config.sharedMemBytes, config.hStream) == (0, STREAM)
    assert attributes(config) == {}
    assert values == [
        np.uint64(0x123400).tobytes(),
        bytes(range(128)),
        np.int32(-5).tobytes(),
        np.float32(2.5).tobytes(),
    ]


@pytest.mark.parametrize("cluster", [(2, 1, 1), (3, 2, 1)])
@pytest.mark.parametrize("early", [False, True])
def test_what_a_launch_asks_for(driver: Driver, cluster: Sizes, early: bool) -> None:
    module(driver).kernel("k").launch(PLAIN._replace(cluster=cluster, early=early), ARGUMENTS, STREAM)
    found = attributes(driver.launches[0][0])
    assert set(found) == {CLUSTER} | ({EARLY} if early else set())
    size = found[CLUSTER].clusterDim
    assert (size.x, size.y, size.z) == cluster
    if early:
        assert found[EARLY].programmaticStreamSerializationAllowed == 1


def test_older_gpus_begin_nothing_early(driver: Driver) -> None:
    module(driver, arch=80).kernel("k").launch(PLAIN._replace(early=True), ARGUMENTS, STREAM)
    assert attributes(driver.launches[0][0]) == {}


def test_what_is_done_once(driver: Driver) -> None:
    """Later launches reuse the kernel and the settings, and pass their arguments."""
    loaded = module(driver)
    for value in range(3):
        arguments = (BUFFER, STRUCT, np.int32(value), np.float32(0))
        loaded.kernel("k").launch(PLAIN, arguments, STREAM)
    assert driver.asked == ["k"]
    assert len({id(config) for config, _ in driver.launches}) == 1
    assert [values[2] for _, values in driver.launches] == [np.int32(i).tobytes() for i in range(3)]


def test_shared_memory_is_asked_for_once_and_never_less(driver: Driver) -> None:
    """The setting applies to the kernel, not to a launch, so a smaller launch must not reduce it."""
    kernel = module(driver).kernel("k")
    for nbytes in (100_000, 60_000, 100_000, 0, 120_000):
        kernel.launch(PLAIN._replace(shared_bytes=nbytes), ARGUMENTS, STREAM)
    assert driver.shared_bytes == 120_000
    assert kernel.static_shared_bytes == 4096


@pytest.mark.parametrize(
    ("changed", "arch", "message"),
    [
        ({"cluster": (4, 1, 1)}, 90, "(4, 1, 1), block (128,), 0 B shared: grid.x is 6 in grid (6, 2)"),
        ({"cluster": (16, 1, 1)}, 90, "cluster (16, 1, 1) has 16 blocks; CUDA allows 8 in a cluster"),
        ({"cluster": (2, 1, 1)}, 89, "clusters need sm_90 or newer, and this GPU is sm_89"),
    ],
)
def test_clusters_that_cannot_be(driver: Driver, changed: Any, arch: int, message: str) -> None:
    with pytest.raises(LaunchError) as caught:
        module(driver, arch).kernel("k").launch(PLAIN._replace(**changed), ARGUMENTS, STREAM)
    assert str(caught.value).startswith("launching k of kernel.cu on grid (6, 2), cluster (")
    assert message in str(caught.value)
    assert not driver.launches


@pytest.mark.parametrize("what", ["launch", "attribute"])
def test_a_launch_that_the_driver_refuses(driver: Driver, what: str) -> None:
    driver.fails[what] = INVALID_VALUE
    with pytest.raises(LaunchError) as caught:
        module(driver).kernel("k").launch(PLAIN._replace(shared_bytes=50_000), ARGUMENTS, STREAM)
    where = "grid (6, 2), block (128,), 50000 B shared"
    assert str(caught.value) == f"launching k of kernel.cu on {where}: invalid argument (CUDA error 1)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (ARGUMENTS[:3], "k of kernel.cu takes 4 arguments; 3 were passed"),
        ((*ARGUMENTS[:2], np.int64(5), np.float32(0)), r"argument 3 .* has 4 bytes; np.int64\(5\) .* has 8"),
        ((*ARGUMENTS[:3], BUFFER), r"argument 4 .* has 4 bytes; CudaBuffer\(name='x'.* has 8"),
    ],
)
def test_arguments_that_do_not_fit(driver: Driver, arguments: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        module(driver).kernel("k").launch(PLAIN, arguments, STREAM)
    assert not driver.launches


def test_a_buffer_that_was_freed(driver: Driver) -> None:
    freed = CudaBuffer("x", (4,), np.dtype("f4"), None, 16)
    with pytest.raises(DeviceError, match="was freed"):
        module(driver).kernel("k").launch(PLAIN, (freed, *ARGUMENTS[1:]), STREAM)


def test_what_a_module_has(driver: Driver) -> None:
    loaded = module(driver)
    assert loaded.variable("c") == CudaBuffer("c", (64,), np.dtype(np.uint8), 0x7000, 64)
    with pytest.raises(DeviceError, match=r"no variable 'd' in kernel.cu: named symbol not found"):
        loaded.variable("d")
    with pytest.raises(LaunchError, match=r"no kernel 'kk' in kernel.cu: .* as in variant.py\? named"):
        loaded.kernel("kk")
    with pytest.raises(CompileError, match=r"kernel\.cu cannot be loaded: invalid argument"):
        CudaModule(driver, Path("kernel.cu"), b"text", 90)
    assert driver.unloaded == []
    del loaded
    assert driver.unloaded == [MODULE]


def test_a_driver_that_is_too_old(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(function: int, i: int) -> None:
        raise RuntimeError('Function "cuFuncGetParamInfo" not found')

    monkeypatch.setattr(driver, "cuFuncGetParamInfo", missing)
    with pytest.raises(DeviceError, match=r"too old \(.*\); install one for CUDA 12.4 or newer"):
        module(driver).kernel("k")
