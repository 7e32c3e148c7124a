"""Checks before a launch, and messages about failed launches."""

from __future__ import annotations

import ctypes
import struct

import numpy as np

from mini_dnn.device.base import GRID_LIMIT, Buffer, KernelArg, KernelArgs, LaunchConfig, MappedBuffer, Scalar
from mini_dnn.device.clusters import Sizes, cluster_fault, three_sizes
from mini_dnn.device.emulator.memory import EmulatorBuffer, Memory
from mini_dnn.device.emulator.runtime import CFailure, CKernel, CParameter, FailureKind, Kind
from mini_dnn.errors import LaunchError, meant

# CUDA C++ Programming Guide, technical specifications per compute capability
MAX_BLOCK = (1024, 1024, 64)
MAX_THREADS = 1024
SLOT = 128  # bytes for each argument; the largest one is a tensor map
MAP_FIELDS = "<QQ2Q3I3I3IIQ3I"  # of include/emulator/tensor_map.h
MAP_MARK = 0x70616D2D7264646E
UNKNOWN = 0xFFFFFFFF  # as a block of Failure in runtime/worker.h

KINDS = {"b": Kind.BOOLEAN, "i": Kind.INTEGER, "u": Kind.INTEGER, "f": Kind.FLOATING}  # NumPy's letters
C_NAMES = {
    (Kind.INTEGER, 1): "char",
    (Kind.INTEGER, 2): "short",
    (Kind.INTEGER, 4): "int",
    (Kind.INTEGER, 8): "long long",
    (Kind.FLOATING, 2): "half",
    (Kind.FLOATING, 4): "float",
    (Kind.FLOATING, 8): "double",
    (Kind.BOOLEAN, 1): "bool",
}
NUMPY_NAMES = {
    "char": "np.int8",
    "short": "np.int16",
    "int": "np.int32",
    "long long": "np.int64",
    "half": "np.float16",
    "float": "np.float32",
    "double": "np.float64",
    "bool": "np.bool_",
}


def find_kernel(kernels: dict[str, CKernel], name: str, where: str) -> CKernel:
    """Return the kernel of this name if it can be launched."""
    launchable = [known for known, kernel in kernels.items() if kernel.run]
    if name in launchable:
        return kernels[name]
    if name in kernels:
        raise LaunchError(
            f"kernel '{name}' of {where} has a C++ name, which the host cannot look up: "
            f'declare it extern "C" __global__ void {name}(...); a template needs such a kernel that calls it'
        )
    have = (
        f"it has {', '.join(sorted(launchable))}" if launchable else 'it has no extern "C" __global__ kernel'
    )
    raise LaunchError(f"no kernel '{name}' in {where}: {have}{meant(name, launchable)}")


def check_geometry(what: str, config: LaunchConfig, max_shared_bytes: int) -> tuple[Sizes, Sizes, Sizes]:
    """Return grid, block and cluster with three entries each, after checking CUDA's limits."""
    grid, block, shared_bytes, cluster, _ = config
    for word, sizes, limits in (("grid", grid, GRID_LIMIT), ("block", block, MAX_BLOCK)):
        if not 1 <= len(sizes) <= 3:
            raise LaunchError(f"{what}: {word} {sizes} must have one to three entries")
        for axis, size, limit in zip("xyz", sizes, limits, strict=False):
            if not 1 <= size <= limit:
                raise LaunchError(f"{what}: {word}.{axis} is {size}; CUDA allows 1 to {limit}")
    if fault := cluster_fault(grid, cluster):
        raise LaunchError(f"{what}: {fault}")
    threads = int(np.prod(block, dtype=np.int64))
    if threads > MAX_THREADS:
        raise LaunchError(f"{what}: block {block} has {threads} threads; CUDA allows {MAX_THREADS}")
    if not 0 <= shared_bytes <= max_shared_bytes:
        raise LaunchError(
            f"{what}: {shared_bytes} bytes of dynamic shared memory; this device allows 0 to "
            f"{max_shared_bytes} ({max_shared_bytes // 1024} KB)"
        )
    return three_sizes(grid), three_sizes(block), three_sizes(cluster)


class Arguments:
    """Kernel arguments in memory in the form that the kernel's stub reads: an array of pointers to values."""

    def __init__(self, what: str, kernel: CKernel, args: KernelArgs) -> None:
        count = kernel.parameter_count
        if len(args) != count:
            takes = ", ".join(_c_name(kernel.parameters[i]) for i in range(count))
            raise LaunchError(
                f"{what}: the kernel takes {count} arguments ({takes}); {len(args)} were passed"
            )
        self._values = ctypes.create_string_buffer(SLOT * (count + 1))
        start = -(-ctypes.addressof(self._values) // SLOT) * SLOT
        self._pointers = (ctypes.c_void_p * max(1, count))(*(start + SLOT * i for i in range(count)))
        for i, arg in enumerate(args):
            value = _argument(f"{what}: argument {i + 1} of {count}", kernel.parameters[i], arg)
            ctypes.memmove(start + SLOT * i, value, len(value))

    @property
    def address(self) -> int:
        """The address of the array of pointers, valid during the lifetime of this object."""
        return ctypes.addressof(self._pointers)


def _c_name(parameter: CParameter) -> str:
    if parameter.kind == Kind.POINTER:
        return "a pointer"
    if parameter.kind == Kind.TENSOR_MAP:
        return "a ptx::TensorMap"
    return C_NAMES.get((Kind(parameter.kind), parameter.size), f"a struct of {parameter.size} bytes")


def _argument(what: str, parameter: CParameter, arg: KernelArg) -> bytes:
    """Return the bytes of one argument, after checking that it matches the kernel's parameter."""
    takes = _c_name(parameter)
    if (parameter.kind == Kind.TENSOR_MAP) != isinstance(arg, MappedBuffer):
        passed = f"a TensorMap of '{arg.buffer.name}'" if isinstance(arg, MappedBuffer) else _passed(arg)
        wants = (
            "a TensorMap(...)" if parameter.kind == Kind.TENSOR_MAP else NUMPY_NAMES.get(takes, "a buffer")
        )
        raise LaunchError(f"{what} is {takes} and takes {wants}; {passed} was passed")
    if isinstance(arg, MappedBuffer):
        return _tensor_map(what, arg)
    if isinstance(arg, EmulatorBuffer):
        if parameter.kind != Kind.POINTER:
            raise LaunchError(f"{what} is {takes} ({NUMPY_NAMES.get(takes)}); buffer '{arg.name}' was passed")
        if arg.address is None:
            raise LaunchError(f"{what}: buffer '{arg.name}' {arg.shape} was freed")
        return arg.address.to_bytes(8, "little")
    passed = _passed(arg)
    if parameter.kind == Kind.POINTER:
        raise LaunchError(f"{what} is a pointer and takes a buffer of this device; {passed} was passed")
    if takes not in NUMPY_NAMES:
        raise LaunchError(f"{what} is {takes}, which cannot be passed; pass its members one by one")
    if (
        not isinstance(arg, np.generic)
        or KINDS.get(arg.dtype.kind) != parameter.kind
        or arg.dtype.itemsize != parameter.size
    ):
        raise LaunchError(f"{what} is {takes} and takes {NUMPY_NAMES[takes]}; {passed} was passed")
    return arg.tobytes()


def _passed(arg: Buffer | Scalar) -> str:
    if isinstance(arg, EmulatorBuffer):
        return f"buffer '{arg.name}'"
    return f"{type(arg).__module__}.{type(arg).__name__} {arg!r}"


def _tensor_map(what: str, arg: MappedBuffer) -> bytes:
    """Encode a tensor map for the emulated tensor copies."""
    buffer = arg.buffer
    if not isinstance(buffer, EmulatorBuffer) or buffer.address is None:
        raise LaunchError(f"{what}: buffer '{buffer.name}' belongs to another device, or was freed")
    address, geometry = arg.at(buffer.address)
    axes = len(geometry.shape)
    box = (*geometry.box[::-1], 1)[:3]
    shape, pitches = (*geometry.shape[::-1], 1, 1)[:4], (*geometry.pitches[::-1], 0, 0)[:3]
    windows = geometry.windows or (0, 0, 0)
    kind = (axes, geometry.itemsize, geometry.swizzle)
    numbers = (*pitches[:2], *shape[:3], *box, *kind, shape[3], pitches[2], *windows)
    return struct.pack(MAP_FIELDS, MAP_MARK, address, *numbers)


def describe_failure(what: str, failure: CFailure, memory: Memory) -> str:
    """Describe what went wrong in a launch, and where."""
    thread, block = tuple(failure.thread), tuple(failure.block)
    where = "a thread" if block[0] == UNKNOWN else f"thread {thread} of block {block}"
    text = failure.text.decode(errors="replace")
    match FailureKind(failure.kind):
        case FailureKind.DEADLOCK:
            return (
                f"{what}: block {block} is stuck: its threads wait at different places.{text}\n"
                "Every thread of a block (of the mask, for a warp function) must come to the same call, "
                "unless it has returned."
            )
        case FailureKind.FAULT:
            return f"{what}: {where} used memory that is not its own: {memory.locate(failure.address)}"
        case FailureKind.STACK_OVERFLOW:
            return f"{what}: {where} overflowed its stack of 64 KB: large local arrays, or endless recursion"
        case FailureKind.DIVISION:
            return f"{what}: {where} divided an integer by zero, or the most negative one by -1"
        case FailureKind.CANCELLED:
            return f"{what}: cancelled"
        case _:
            return f"{what}: {where}: {text}"
