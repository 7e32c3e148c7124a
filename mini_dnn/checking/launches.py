"""Checks launches before they run, against the declarations of kernels and the limits of a GPU."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

from mini_dnn.device.base import GRID_LIMIT
from mini_dnn.device.clusters import ALONE, CLUSTER_ARCH, cluster_fault
from mini_dnn.device.emulator.launch import MAX_BLOCK, MAX_THREADS
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.device.sources import read_source
from mini_dnn.errors import SharedMemoryError, meant, nearest
from mini_dnn.variant.plan import Argument, Images, Launch
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.signatures import NUMPY, Kernels, Parameter
from mini_dnn.variant.tensor_map import TensorMap

KB = 1024
# Shared memory of a block, static and dynamic, by compute capability times ten: CUDA C++ Programming Guide,
# technical specifications per compute capability. All allow 48 KB of static arrays.
SHARED_LIMIT = {75: 64 * KB, 80: 163 * KB, 86: 99 * KB, 89: 99 * KB, 90: 227 * KB}
FIELDS = ("kernel", "grid", "block", "args", "shared_bytes", "stream", "cluster", "early")

CURES = {
    "threads": "use smaller blocks and more of them, or let a thread compute several outputs",
    "zero": "round up: ceil_div(size, tile) is never 0, but size // tile can be",
    "block": "use x for the longest axis of the block",
    "grid": "use grid.x for the longest axis, which allows 2,147,483,647 blocks",
    "cluster": "use a cluster of at most 8 blocks, and round the grid up to a multiple of it: "
    "blocks without work must also reach every cluster_sync",
    "arch": "use such a GPU, or launch without a cluster",
    "shared": "use smaller tiles, or keep fewer of them at a time",
    "static": "use smaller tiles, or declare one extern __shared__ array and launch with shared_bytes",
    "name": 'use the same name in variant.py and in kernel.cu, where it is declared extern "C" __global__',
    "linkage": 'declare it extern "C" __global__; to use a template, call it from such a kernel',
    "count": "pass one argument for each parameter of the kernel, in the same order",
    "constant": "declare it const __grid_constant__ ptx::TensorMap",
    "type": "pass the declared type in variant.py, or declare the passed type in kernel.cu",
}


def shared_limit(arch: int) -> int:
    """Bytes of shared memory that a block may have on GPUs of a compute capability, times ten."""
    return SHARED_LIMIT.get(arch, max(SHARED_LIMIT.values()))


def check_launches(
    plan: Callable[[int], Planned], batch: int, arch: int, static_bytes: Callable[[str], int]
) -> Finding | None:
    """The finding about the first launch of a plan that a GPU of this kind would refuse, if any.

    Parameters
    ----------
    plan
        Returns the plan for this many entries of the batch.
    batch
        The number of entries.
    arch
        The compute capability, times ten. If it is not in `SHARED_LIMIT`, only the driver knows the limit.
    static_bytes
        The size of the shared arrays that a kernel declares.
    """
    planned = plan(batch)
    kernels = Kernels(planned.source)
    if any(_beyond(launch.grid, GRID_LIMIT) for launch in planned.launches):  # the runner splits such a batch
        planned = plan(1)
    for launch in planned.launches:
        if launch.code:  # the kernel of another variant, which is checked separately
            continue
        at = _At(planned.source, launch)
        finding = _kernel(at, kernels) or _geometry(at)
        finding = finding or _cluster(at, arch) or _shared(at, arch, static_bytes)
        finding = finding or _arguments(at, kernels)
        if finding:
            return finding
    return None


def static_finding(source: Path, error: SharedMemoryError) -> Finding:
    """A kernel whose shared arrays are too large for any launch."""
    declared = Kernels(source).signatures.get(error.kernel)
    own = Party(declared.place, (), ()) if declared else None
    return Finding("launch", str(error), error.kernel, own, cure=CURES["static"])


@dataclass(frozen=True)
class _At:
    """A launch of the plan that belongs to a kernel file."""

    source: Path
    launch: Launch

    def finding(self, field: str, what: str, cure: str, other: Place | None = None) -> Finding:
        """Where the launch is written, and the kernel's declaration."""
        own = Party(launch_place(self.source, self.launch.kernel, field), (), ())
        declared = Party(other, (), ()) if other else None
        own_or_none = own if own.place else None
        return Finding("launch", what, self.launch.kernel, own_or_none, "", declared, CURES[cure])


def _kernel(at: _At, kernels: Kernels) -> Finding | None:
    launch = at.launch
    declared = kernels.signatures.get(launch.kernel)
    if declared and kernels.have_cpp_names:
        what = f"kernel '{launch.kernel}' has a C++ name, which the host cannot look up"
        return at.finding("kernel", what, "linkage", declared.place)
    if not kernels.lack(launch.kernel):
        return None
    have = ", ".join(kernels.signatures) or "none"
    mean = meant(launch.kernel, kernels.signatures)
    what = f"there is no kernel '{launch.kernel}' in {at.source.name}, which has {have}{mean}"
    other = kernels.signatures[nearest(launch.kernel, kernels.signatures)].place if mean else None
    return at.finding("kernel", what, "name", other)


def _geometry(at: _At) -> Finding | None:
    launch = at.launch
    for field, sizes, limits in (("grid", launch.grid, GRID_LIMIT), ("block", launch.block, MAX_BLOCK)):
        if not 1 <= len(sizes) <= 3:
            return at.finding(field, f"{field} {sizes} must have one to three entries", field)
        beyond = _beyond(sizes, limits)
        if beyond and not (field == "block" and beyond[1] > MAX_THREADS):
            axis, size, limit = beyond
            what = f"{field}.{axis} is {size:,} in {field} {sizes}; CUDA allows 1 to {limit:,}"
            return at.finding(field, what, "zero" if size < 1 else field)
    threads = prod(launch.block)
    if threads > MAX_THREADS:
        what = f"block {launch.block} has {threads:,} threads; CUDA allows {MAX_THREADS:,} in a block"
        return at.finding("block", what, "threads")
    return None


def _beyond(sizes: tuple[int, ...], limits: tuple[int, ...]) -> tuple[str, int, int] | None:
    """Axis, size and limit of the first entry that is not in 1 ... limit."""
    entries = zip("xyz", sizes, limits, strict=False)
    return next(((axis, size, limit) for axis, size, limit in entries if not 1 <= size <= limit), None)


def _cluster(at: _At, arch: int) -> Finding | None:
    launch = at.launch
    if fault := cluster_fault(launch.grid, launch.cluster_sizes):
        return at.finding("cluster", fault, "cluster")
    if launch.cluster_sizes != ALONE and arch < CLUSTER_ARCH:
        what = f"{launch.kernel} is launched in clusters, which need sm_{CLUSTER_ARCH}; this is sm_{arch}"
        return at.finding("cluster", what, "arch")
    return None


def _shared(at: _At, arch: int, static_bytes: Callable[[str], int]) -> Finding | None:
    launch = at.launch
    limit = shared_limit(arch)
    static, dynamic = static_bytes(launch.kernel), launch.shared_bytes
    if dynamic >= 0 and static + dynamic <= limit:
        return None
    what = (
        f"a block of {launch.kernel} requests {static + dynamic:,} bytes of shared memory "
        f"({static:,} static, {dynamic:,} dynamic); sm_{arch} allows {limit:,} ({limit // KB} KB)"
    )
    return at.finding("shared_bytes", what, "shared")


def _arguments(at: _At, kernels: Kernels) -> Finding | None:
    launch = at.launch
    signature = kernels.signatures.get(launch.kernel)
    if signature is None or signature.parameters is None:
        return None  # the device checks it
    taken, passed = signature.parameters, launch.args
    if len(taken) != len(passed):
        what = (
            f"{launch.kernel} takes {len(taken)} arguments ({signature}); the launch passes {len(passed)} "
            f"({', '.join(map(_words, passed))})"
        )
        return at.finding("args", what, "count", signature.place)
    for number, (parameter, argument) in enumerate(zip(taken, passed, strict=True), 1):
        if wanted := _wanted(parameter, argument):
            what = (
                f"argument {number} of {launch.kernel} is {parameter.declaration} and needs {wanted}; "
                f"the launch passes {_words(argument)}"
            )
            return at.finding("args", what, "type", signature.place)
        if parameter.is_tensor_map and "__grid_constant__" not in parameter.declaration:
            what = (
                f"argument {number} of {launch.kernel} is {parameter.declaration}: the copy engine reads the "
                "parameter at its own address, but the kernel may pass the address of a copy"
            )
            return at.finding("args", what, "constant", signature.place)
    return None


def _wanted(parameter: Parameter, argument: Argument) -> str:
    """Describe what should be passed instead.

    The text is empty if the argument fits, or if that is unknown.
    """
    is_buffer = isinstance(argument, str | Images)
    if parameter.is_tensor_map:
        return "" if isinstance(argument, TensorMap) else "a TensorMap(...)"
    if parameter.is_pointer:
        return "" if is_buffer else "a buffer, by its name"
    if parameter.type is None:
        return "a value" if is_buffer or isinstance(argument, TensorMap) else ""
    usual = {("i", 4): "an int", ("f", 4): "a float"}.get(parameter.type)
    return "" if _type(argument) == parameter.type else usual or f"{NUMPY[parameter.type]}(...)"


def _type(argument: Argument) -> tuple[str, int] | None:
    if isinstance(argument, np.generic):
        kind = argument.dtype.kind
        return ("i" if kind == "u" else kind, argument.dtype.itemsize)
    if isinstance(argument, int):
        return ("i", 4)
    return ("f", 4) if isinstance(argument, float) else None


def _words(argument: Argument) -> str:
    match argument:
        case Images():
            return f"{argument.buffer}[{argument.first}:{argument.last}]"
        case TensorMap():
            return f"a TensorMap of {argument.buffer}"
        case str():
            return f"buffer {argument}"
        case np.generic():
            return f"np.{type(argument).__name__}({argument})"
    return f"the {type(argument).__name__} {argument}"


def launch_place(source: Path, kernel: str, field: str) -> Place | None:
    """The line of the kernel's ``variant.py`` that sets a field of a launch, if it can be determined."""
    file = source.with_name("variant.py")
    if not file.is_file():
        return None
    text = read_source(file)
    calls = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "Launch"
    ]
    named = [
        call
        for call in calls
        if isinstance(name := _given(call, "kernel"), ast.Constant) and name.value == kernel
    ]
    call = named[0] if named else calls[0] if len(calls) == 1 else None
    if call is None:
        return None
    line = (_given(call, field) or call).lineno
    return Place(file.name, line, text.split("\n")[line - 1].strip())


def _given(call: ast.Call, field: str) -> ast.expr | None:
    position = FIELDS.index(field)
    if position < len(call.args):
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == field), None)
