"""Compiled kernels on a GPU, and their launches.

PyCUDA has no words for clusters, nor for launches that may begin early, and keeps the handle of a kernel to
itself. So modules are loaded, and kernels launched, through NVIDIA's own bindings, in PyCUDA's context.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mini_dnn.device.base import Buffer, MappedBuffer, Module, Scalar, Work
from mini_dnn.device.bindings import reason
from mini_dnn.device.clusters import ALONE, CLUSTER_ARCH, Sizes, cluster_fault
from mini_dnn.device.cuda_buffer import CudaBuffer, LentCudaBuffer, address_of
from mini_dnn.device.cuda_map import encoded
from mini_dnn.errors import CompileError, DeviceError, LaunchError

DEFAULT_SHARED_BYTES = 48 * 1024  # more has to be asked for, kernel by kernel
MAP_BYTES = 128  # of a tensor map
MAPS = 256  # that are kept of a launch, each for another place of its buffer


class LaunchSettings(NamedTuple):
    """A launch without its arguments; see `mini_dnn.device.base.Device.launch`."""

    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int
    stream: int  # its handle
    cluster: Sizes
    early: bool


class CudaModule:
    """A loaded cubin.

    Parameters
    ----------
    driver
        ``cuda.bindings.driver``.
    source
        The file that it was compiled from.
    cubin
        Machine code for this GPU.
    arch
        Of the GPU: its compute capability times ten.

    Raises
    ------
    CompileError
        The driver does not load it.
    """

    def __init__(self, driver: Any, source: Path, cubin: bytes, arch: int) -> None:
        self.source, self.arch = source, arch
        self.compile_ms = 0.0
        self._driver = driver
        status, self._handle = driver.cuModuleLoadData(cubin)
        if failed := reason(driver, status):
            raise CompileError(f"{source} cannot be loaded: {failed}")
        # not at exit: the context may be gone by then, and the system takes it all back
        weakref.finalize(self, driver.cuModuleUnload, self._handle).atexit = False
        self._kernels: dict[str, CudaKernel] = {}

    def variable(self, name: str) -> CudaBuffer:
        """The variable of that name, as a buffer of bytes."""
        status, address, nbytes = self._driver.cuModuleGetGlobal(self._handle, name.encode())
        if failed := reason(self._driver, status):
            raise DeviceError(f"no variable '{name}' in {self.source}: {failed}")
        return CudaBuffer(name, (nbytes,), np.dtype(np.uint8), int(address), nbytes)

    def kernel(self, name: str) -> CudaKernel:
        """The kernel of that name; looked up once."""
        if name not in self._kernels:
            status, function = self._driver.cuModuleGetFunction(self._handle, name.encode())
            if failed := reason(self._driver, status):
                raise LaunchError(
                    f"no kernel '{name}' in {self.source}: is it declared extern \"C\" __global__, "
                    f"and spelled as in variant.py? {failed}"
                )
            self._kernels[name] = CudaKernel(self._driver, function, f"{name} of {self.source}", self.arch)
        return self._kernels[name]


class CudaKernel:
    """A kernel of a loaded module, with room for the arguments of a launch."""

    def __init__(self, driver: Any, function: Any, what: str, arch: int) -> None:
        self._driver, self._function = driver, function
        self._what, self._arch = what, arch
        self._spans = self._parameters()
        self._memory = ctypes.create_string_buffer(max((span.stop for span in self._spans), default=1))
        start = ctypes.addressof(self._memory)
        self._pointers = (ctypes.c_void_p * max(1, len(self._spans)))(*(start + s.start for s in self._spans))
        self._address = ctypes.addressof(self._pointers)
        self._bytes = memoryview(self._memory).cast("B")
        self._configs: dict[LaunchSettings, Any] = {}  # a launch of the same settings finds its own
        self._allowed_bytes = DEFAULT_SHARED_BYTES

    @property
    def static_shared_bytes(self) -> int:
        """Of the shared arrays that the kernel declares."""
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        status, nbytes = self._driver.cuFuncGetAttribute(attribute, self._function)
        if failed := reason(self._driver, status):
            raise LaunchError(
                f"the driver does not report how much shared memory {self._what} uses: {failed}"
            )
        return int(nbytes)

    def launch(self, settings: LaunchSettings, args: Sequence[Buffer | Scalar | MappedBuffer]) -> None:
        """Launch it; what goes wrong while it runs is for later calls to tell."""
        config = self._configs.get(settings)
        if config is None:
            config = self._configs[settings] = self._configured(settings)
        self._fill(args)
        (status,) = self._driver.cuLaunchKernelEx(config, self._function, self._address, 0)
        if failed := reason(self._driver, status):
            raise LaunchError(f"{self._described(settings)}: {failed}")

    def ready(self, settings: LaunchSettings, args: Sequence[Buffer | Scalar | MappedBuffer]) -> Work:
        """The launch, made ready: where lent buffers lie counts when it is given."""
        self._check_count(args)
        config = self._configured(settings)
        held: list[Any] = []  # what the driver reads, an object an argument
        maps: list[LentMap] = []
        for number, arg in enumerate(args):
            if isinstance(arg, MappedBuffer) and isinstance(arg.buffer, LentCudaBuffer):
                maps.append(LentMap(arg))
                held.append(maps[-1].memory)
                continue
            value = self._value(number, arg)
            fixed = (ctypes.c_char * len(value)).from_buffer_copy(value)
            held.append(arg.place if isinstance(arg, LentCudaBuffer) else fixed)
        pointers = (ctypes.c_void_p * max(1, len(held)))(*map(ctypes.addressof, held))
        give, function, address = self._driver.cuLaunchKernelEx, self._function, ctypes.addressof(pointers)
        success = self._driver.CUresult.CUDA_SUCCESS

        def launch(_alive: Any = (pointers, held)) -> None:
            for lent in maps:
                lent.follow()
            (status,) = give(config, function, address, 0)
            if status != success:
                raise LaunchError(f"{self._described(settings)}: {reason(self._driver, status)}")

        return launch

    def _parameters(self) -> tuple[slice, ...]:
        """Which bytes of the arguments each parameter is."""
        driver, spans = self._driver, list[slice]()
        while True:
            try:
                status, start, nbytes = driver.cuFuncGetParamInfo(self._function, len(spans))
            except RuntimeError as error:  # how the bindings say that the driver lacks a function
                raise DeviceError(
                    f"the GPU's driver is too old ({error}); install one for CUDA 12.4 or newer"
                ) from error
            if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:  # one behind the last
                return tuple(spans)
            if failed := reason(driver, status):
                raise LaunchError(f"the driver does not report the parameters of {self._what}: {failed}")
            spans.append(slice(start, start + nbytes))

    def _fill(self, args: Sequence[Buffer | Scalar | MappedBuffer]) -> None:
        """Put the arguments where the driver finds them; a launch copies them."""
        self._check_count(args)
        for number, arg in enumerate(args):
            self._bytes[self._spans[number]] = self._value(number, arg)

    def _check_count(self, args: Sequence[Any]) -> None:
        if len(args) != len(self._spans):
            raise LaunchError(f"{self._what} takes {len(self._spans)} arguments; {len(args)} were passed")

    def _value(self, number: int, arg: Buffer | Scalar | MappedBuffer) -> bytes:
        """The bytes of an argument, if there are as many as the kernel takes."""
        value = _passed(arg)
        span = self._spans[number]
        if len(value) != span.stop - span.start:
            raise LaunchError(
                f"argument {number + 1} of {self._what} has {span.stop - span.start} bytes; "
                f"{arg!r} was passed, which has {len(value)}"
            )
        return value

    def _configured(self, settings: LaunchSettings) -> Any:
        """What the driver wants to know of a launch."""
        driver, config = self._driver, self._driver.CUlaunchConfig()
        if settings.cluster != ALONE:
            self._check_cluster(settings)
        config.gridDimX, config.gridDimY, config.gridDimZ = (*settings.grid, 1, 1)[:3]
        config.blockDimX, config.blockDimY, config.blockDimZ = (*settings.block, 1, 1)[:3]
        config.sharedMemBytes, config.hStream = settings.shared_bytes, driver.CUstream(settings.stream)
        attributes = self._attributes(settings)
        config.attrs, config.numAttrs = attributes, len(attributes)
        if settings.shared_bytes > self._allowed_bytes:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (status,) = driver.cuFuncSetAttribute(self._function, attribute, settings.shared_bytes)
            if failed := reason(driver, status):
                raise LaunchError(f"{self._described(settings)}: {failed}")
            self._allowed_bytes = settings.shared_bytes
        return config

    def _attributes(self, settings: LaunchSettings) -> list[Any]:
        driver, attributes = self._driver, []
        if settings.cluster != ALONE:
            cluster = driver.CUlaunchAttribute()
            cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = cluster.value.clusterDim
            size.x, size.y, size.z = settings.cluster
            attributes.append(cluster)
        if settings.early and self._arch >= CLUSTER_ARCH:  # leave to begin early; older GPUs never do
            early = driver.CUlaunchAttribute()
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            attributes.append(early)
        return attributes

    def _check_cluster(self, settings: LaunchSettings) -> None:
        fault = cluster_fault(settings.grid, settings.cluster)
        if not fault and self._arch < CLUSTER_ARCH:
            fault = f"clusters need sm_{CLUSTER_ARCH} or newer, and this GPU is sm_{self._arch}"
        if fault:
            raise LaunchError(f"{self._described(settings)}: {fault}")

    def _described(self, s: LaunchSettings) -> str:
        cluster = f", cluster {s.cluster}" if s.cluster != ALONE else ""
        where = f"grid {s.grid}{cluster}, block {s.block}"
        return f"launching {self._what} on {where}, {s.shared_bytes} B shared"


class LentMap:
    """A tensor map of a buffer that may lie elsewhere with each launch."""

    def __init__(self, mapped: MappedBuffer) -> None:
        self._mapped, self._at = mapped, 0
        self._known: dict[int, bytes] = {}  # by address
        self.memory = ctypes.create_string_buffer(MAP_BYTES)

    def follow(self) -> None:
        """Make it that of where the buffer lies now."""
        address = address_of(self._mapped.buffer)
        if address != self._at:
            if address not in self._known:
                if len(self._known) == MAPS:
                    self._known.clear()
                self._known[address] = encoded(*self._mapped.at(address)).tobytes()
            self.memory.raw = self._known[address]
            self._at = address


def _passed(arg: Buffer | Scalar | MappedBuffer) -> bytes:
    """What the kernel gets: a scalar as it is, an address, or a tensor map."""
    if isinstance(arg, MappedBuffer):
        return encoded(*arg.at(address_of(arg.buffer))).tobytes()
    return arg.tobytes() if isinstance(arg, np.generic) else address_of(arg).to_bytes(8, "little")


def loaded(module: Module) -> CudaModule:
    """The module, which a GPU must have compiled."""
    if not isinstance(module, CudaModule):
        raise DeviceError(f"{module!r} was not compiled for this GPU")
    return module
