"""Compiled kernels on a GPU, and their launches.

PyCUDA supports neither clusters nor programmatic dependent launches, and it does not reveal the handle of a
kernel. Therefore, modules are loaded and kernels are launched through NVIDIA's own bindings, in PyCUDA's
context.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.base import (
    DEFAULT_SHARED_BYTES,
    KernelArg,
    KernelArgs,
    LaunchConfig,
    MappedBuffer,
    Module,
    Work,
)
from mini_dnn.device.bindings import reason
from mini_dnn.device.clusters import ALONE, CLUSTER_ARCH, cluster_fault
from mini_dnn.device.cuda_buffer import CudaBuffer, LentCudaBuffer, address_of
from mini_dnn.device.cuda_map import encoded
from mini_dnn.errors import CompileError, DeviceError, LaunchError

MAP_BYTES = 128  # size of a tensor map
MAPS = 256  # tensor maps that are kept for a launch, each for another address of its buffer


class CudaModule:
    """A loaded cubin.

    Parameters
    ----------
    driver
        ``cuda.bindings.driver``.
    source
        The file that was compiled.
    cubin
        Machine code for this GPU.
    arch
        The GPU's compute capability times ten.

    Raises
    ------
    CompileError
        The driver cannot load it.
    """

    def __init__(self, driver: Any, source: Path, cubin: bytes, arch: int) -> None:
        self.source, self.arch = source, arch
        self.compile_ms = 0.0
        self._driver = driver
        status, self._handle = driver.cuModuleLoadData(cubin)
        if failed := reason(driver, status):
            raise CompileError(f"{source} cannot be loaded: {failed}")
        # not at exit: the context may no longer exist then, and the system frees everything
        weakref.finalize(self, driver.cuModuleUnload, self._handle).atexit = False
        self._kernels: dict[str, CudaKernel] = {}

    def variable(self, name: str) -> CudaBuffer:
        """Return the variable of this name as a buffer of bytes."""
        status, address, nbytes = self._driver.cuModuleGetGlobal(self._handle, name.encode())
        if failed := reason(self._driver, status):
            raise DeviceError(f"no variable '{name}' in {self.source}: {failed}")
        return CudaBuffer(name, (nbytes,), np.dtype(np.uint8), int(address), nbytes)

    def kernel(self, name: str) -> CudaKernel:
        """Return the kernel of this name. It is looked up only once."""
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
    """A kernel of a loaded module, with memory for the arguments of a launch."""

    def __init__(self, driver: Any, function: Any, what: str, arch: int) -> None:
        self._driver, self._function = driver, function
        self._what, self._arch = what, arch
        self._spans = self._parameters()
        self._memory = ctypes.create_string_buffer(max((span.stop for span in self._spans), default=1))
        start = ctypes.addressof(self._memory)
        self._pointers = (ctypes.c_void_p * max(1, len(self._spans)))(*(start + s.start for s in self._spans))
        self._address = ctypes.addressof(self._pointers)
        self._bytes = memoryview(self._memory).cast("B")
        self._configs: dict[tuple[LaunchConfig, int], Any] = {}  # the driver's, which later launches reuse
        self._allowed_bytes = DEFAULT_SHARED_BYTES

    @property
    def static_shared_bytes(self) -> int:
        """The bytes of the shared arrays that the kernel declares."""
        attribute = self._driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
        status, nbytes = self._driver.cuFuncGetAttribute(attribute, self._function)
        if failed := reason(self._driver, status):
            raise LaunchError(
                f"the driver does not report how much shared memory {self._what} uses: {failed}"
            )
        return int(nbytes)

    def launch(self, config: LaunchConfig, args: KernelArgs, stream: int) -> None:
        """Launch the kernel on the stream with this handle. Later calls report errors while it runs."""
        configured = self._configs.get((config, stream))
        if configured is None:
            configured = self._configs[config, stream] = self._configured(config, stream)
        self._fill(args)
        (status,) = self._driver.cuLaunchKernelEx(configured, self._function, self._address, 0)
        if failed := reason(self._driver, status):
            raise LaunchError(f"{self._described(config)}: {failed}")

    def ready(self, config: LaunchConfig, args: KernelArgs, stream: int) -> Work:
        """Prepare a launch. The addresses of lent buffers are read when it is issued."""
        self._check_count(args)
        configured = self._configured(config, stream)
        held: list[Any] = []  # memory that the driver reads, one object per argument
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
            (status,) = give(configured, function, address, 0)
            if status != success:
                raise LaunchError(f"{self._described(config)}: {reason(self._driver, status)}")

        return launch

    def _parameters(self) -> tuple[slice, ...]:
        """The byte range of each parameter within the arguments."""
        driver, spans = self._driver, list[slice]()
        while True:
            try:
                status, start, nbytes = driver.cuFuncGetParamInfo(self._function, len(spans))
            except RuntimeError as error:  # the bindings raise it if the driver lacks a function
                raise DeviceError(
                    f"the GPU's driver is too old ({error}); install one for CUDA 12.4 or newer"
                ) from error
            if status == driver.CUresult.CUDA_ERROR_INVALID_VALUE:  # there are no more parameters
                return tuple(spans)
            if failed := reason(driver, status):
                raise LaunchError(f"the driver does not report the parameters of {self._what}: {failed}")
            spans.append(slice(start, start + nbytes))

    def _fill(self, args: KernelArgs) -> None:
        """Store the arguments where the driver reads them. A launch copies them."""
        self._check_count(args)
        for number, arg in enumerate(args):
            self._bytes[self._spans[number]] = self._value(number, arg)

    def _check_count(self, args: Sequence[Any]) -> None:
        if len(args) != len(self._spans):
            raise LaunchError(f"{self._what} takes {len(self._spans)} arguments; {len(args)} were passed")

    def _value(self, number: int, arg: KernelArg) -> bytes:
        """Return the bytes of an argument, after checking their number."""
        value = _passed(arg)
        span = self._spans[number]
        if len(value) != span.stop - span.start:
            raise LaunchError(
                f"argument {number + 1} of {self._what} has {span.stop - span.start} bytes; "
                f"{arg!r} was passed, which has {len(value)}"
            )
        return value

    def _configured(self, config: LaunchConfig, stream: int) -> Any:
        """Return the driver's structure that describes a launch."""
        driver, made = self._driver, self._driver.CUlaunchConfig()
        if config.cluster != ALONE:
            self._check_cluster(config)
        made.gridDimX, made.gridDimY, made.gridDimZ = (*config.grid, 1, 1)[:3]
        made.blockDimX, made.blockDimY, made.blockDimZ = (*config.block, 1, 1)[:3]
        made.sharedMemBytes, made.hStream = config.shared_bytes, driver.CUstream(stream)
        attributes = self._attributes(config)
        made.attrs, made.numAttrs = attributes, len(attributes)
        if config.shared_bytes > self._allowed_bytes:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            (status,) = driver.cuFuncSetAttribute(self._function, attribute, config.shared_bytes)
            if failed := reason(driver, status):
                raise LaunchError(f"{self._described(config)}: {failed}")
            self._allowed_bytes = config.shared_bytes
        return made

    def _attributes(self, config: LaunchConfig) -> list[Any]:
        driver, attributes = self._driver, []
        if config.cluster != ALONE:
            cluster = driver.CUlaunchAttribute()
            cluster.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            size = cluster.value.clusterDim
            size.x, size.y, size.z = config.cluster
            attributes.append(cluster)
        # Programmatic dependent launch, which older GPUs do not have
        if config.early and self._arch >= CLUSTER_ARCH:
            early = driver.CUlaunchAttribute()
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            attributes.append(early)
        return attributes

    def _check_cluster(self, config: LaunchConfig) -> None:
        fault = cluster_fault(config.grid, config.cluster)
        if not fault and self._arch < CLUSTER_ARCH:
            fault = f"clusters need sm_{CLUSTER_ARCH} or newer, and this GPU is sm_{self._arch}"
        if fault:
            raise LaunchError(f"{self._described(config)}: {fault}")

    def _described(self, config: LaunchConfig) -> str:
        grid, block, shared_bytes, cluster, _ = config
        clusters = f", cluster {cluster}" if cluster != ALONE else ""
        return f"launching {self._what} on grid {grid}{clusters}, block {block}, {shared_bytes} B shared"


class LentMap:
    """A tensor map of a buffer whose address may change from launch to launch."""

    def __init__(self, mapped: MappedBuffer) -> None:
        self._mapped, self._at = mapped, 0
        self._known: dict[int, bytes] = {}  # by address
        self.memory = ctypes.create_string_buffer(MAP_BYTES)

    def follow(self) -> None:
        """Update the map for the current address of the buffer."""
        address = address_of(self._mapped.buffer)
        if address != self._at:
            if address not in self._known:
                if len(self._known) == MAPS:
                    self._known.clear()
                self._known[address] = encoded(*self._mapped.at(address)).tobytes()
            self.memory.raw = self._known[address]
            self._at = address


def _passed(arg: KernelArg) -> bytes:
    """Return what the kernel receives: a scalar, an address, or a tensor map."""
    if isinstance(arg, MappedBuffer):
        return encoded(*arg.at(address_of(arg.buffer))).tobytes()
    return arg.tobytes() if isinstance(arg, np.generic) else address_of(arg).to_bytes(8, "little")


def loaded(module: Module) -> CudaModule:
    """Return the module, after checking that a GPU compiled it."""
    if not isinstance(module, CudaModule):
        raise DeviceError(f"{module!r} was not compiled for this GPU")
    return module
