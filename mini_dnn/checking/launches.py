"""Launches before they are made: what a plan asks for, against its kernels and the limits of a GPU."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable
from math import prod

import numpy as np

from mini_dnn.device.base import GRID_LIMIT
from mini_dnn.device.emulator.explain import Finding, Party, Place
from mini_dnn.device.emulator.launch import MAX_BLOCK, MAX_THREADS
from mini_dnn.errors import SharedMemoryError
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.variant import Variant
from mini_dnn.variant.plan import Argument, Images, Launch
from mini_dnn.variant.signatures import NUMPY, Kernels, Parameter

KB = 1024
# Shared memory of a block, static and dynamic, by compute capability times ten: CUDA C++ Programming Guide,
# technical specifications per compute capability. All allow 48 KB of static arrays.
SHARED_LIMIT = {75: 64 * KB, 80: 163 * KB, 86: 99 * KB, 89: 99 * KB, 90: 227 * KB}
FIELDS = ("kernel", "grid", "block", "args", "shared_bytes")

CURES = {
    "threads": "take a smaller block, and more blocks, or let a thread compute several outputs",
    "zero": "round up: ceil_div(size, tile) is never 0, and size // tile can be",
    "block": "put the longest axis of the block into x",
    "grid": "put the longest axis into grid.x, which takes 2,147,483,647 blocks",
    "shared": "take smaller tiles, or keep fewer of them at a time",
    "static": "take smaller tiles, or declare one extern __shared__ array and launch with shared_bytes",
    "name": 'spell it in variant.py as in kernel.cu, where it is declared extern "C" __global__',
    "linkage": 'declare it extern "C" __global__; a template needs such a kernel that calls it',
    "count": "give the launch one argument for each of the kernel's parameters, in their order",
    "type": "pass in variant.py what the kernel declares, or declare in kernel.cu what is passed",
}


def shared_limit(arch: int) -> int:
    """Bytes of shared memory that a block may have on GPUs of a compute capability, times ten."""
    return SHARED_LIMIT.get(arch, max(SHARED_LIMIT.values()))


def check_launches(
    variant: Variant, shape: ConvShape, arch: int, static_bytes: Callable[[str], int]
) -> Finding | None:
    """The first launch of a plan that no GPU of this kind would do, or none.

    Parameters
    ----------
    arch
        Compute capability times ten; of one that `SHARED_LIMIT` lacks, the driver knows the limit.
    static_bytes
        Of the shared arrays that a kernel declares.
    """
    kernels = Kernels(variant.source)
    launches = [step for step in variant.steps(shape) if isinstance(step, Launch)]
    if any(_beyond(step.grid, GRID_LIMIT) for step in launches):  # the runner splits such a batch
        launches = [step for step in variant.steps(shape.with_batch(1)) if isinstance(step, Launch)]
    for launch in launches:
        finding = _kernel(variant, launch, kernels) or _geometry(variant, launch)
        finding = finding or _shared(variant, launch, arch, static_bytes)
        finding = finding or _arguments(variant, launch, kernels)
        if finding:
            return finding
    return None


def static_finding(variant: Variant, error: SharedMemoryError) -> Finding:
    """A kernel whose shared arrays are too large for any launch."""
    declared = Kernels(variant.source).signatures.get(error.kernel)
    own = Party(declared.place, (), ()) if declared else None
    return Finding("launch", str(error), error.kernel, own, cure=CURES["static"])


def _kernel(variant: Variant, launch: Launch, kernels: Kernels) -> Finding | None:
    declared = kernels.signatures.get(launch.kernel)
    if declared and kernels.have_cpp_names:
        what = f"kernel '{launch.kernel}' has a C++ name, which the host cannot look up"
        return _finding(variant, launch, "kernel", what, "linkage", declared.place)
    if not kernels.lack(launch.kernel):
        return None
    have = ", ".join(kernels.signatures) or "none"
    near = difflib.get_close_matches(launch.kernel, kernels.signatures, 1)
    mean = f"; did you mean '{near[0]}'?" if near else ""
    what = f"there is no kernel '{launch.kernel}' in {variant.source.name}: it has {have}{mean}"
    other = kernels.signatures[near[0]].place if near else None
    return _finding(variant, launch, "kernel", what, "name", other)


def _geometry(variant: Variant, launch: Launch) -> Finding | None:
    for field, sizes, limits in (("grid", launch.grid, GRID_LIMIT), ("block", launch.block, MAX_BLOCK)):
        if not 1 <= len(sizes) <= 3:
            return _finding(variant, launch, field, f"{field} {sizes} must have one to three entries", field)
        at = _beyond(sizes, limits)
        if at and not (field == "block" and at[1] > MAX_THREADS):
            axis, size, limit = at
            what = f"{field}.{axis} is {size:,} in {field} {sizes}; CUDA allows 1 to {limit:,}"
            return _finding(variant, launch, field, what, "zero" if size < 1 else field)
    threads = prod(launch.block)
    if threads > MAX_THREADS:
        what = f"block {launch.block} has {threads:,} threads; CUDA allows {MAX_THREADS:,} in a block"
        return _finding(variant, launch, "block", what, "threads")
    return None


def _beyond(sizes: tuple[int, ...], limits: tuple[int, ...]) -> tuple[str, int, int] | None:
    """Axis, size and limit of the first entry that is not in 1 ... limit."""
    entries = zip("xyz", sizes, limits, strict=False)
    return next(((axis, size, limit) for axis, size, limit in entries if not 1 <= size <= limit), None)


def _shared(
    variant: Variant, launch: Launch, arch: int, static_bytes: Callable[[str], int]
) -> Finding | None:
    limit = shared_limit(arch)
    static, dynamic = static_bytes(launch.kernel), launch.shared_bytes
    if dynamic >= 0 and static + dynamic <= limit:
        return None
    what = (
        f"a block of {launch.kernel} asks for {static + dynamic:,} bytes of shared memory "
        f"({static:,} static, {dynamic:,} dynamic); sm_{arch} allows {limit:,} ({limit // KB} KB)"
    )
    return _finding(variant, launch, "shared_bytes", what, "shared")


def _arguments(variant: Variant, launch: Launch, kernels: Kernels) -> Finding | None:
    signature = kernels.signatures.get(launch.kernel)
    if signature is None or signature.parameters is None:
        return None  # the device looks at what it was given
    taken, passed = signature.parameters, launch.args
    if len(taken) != len(passed):
        what = (
            f"{launch.kernel} takes {len(taken)} arguments ({signature}); the launch passes {len(passed)} "
            f"({', '.join(map(_words, passed))})"
        )
        return _finding(variant, launch, "args", what, "count", signature.place)
    for number, (parameter, argument) in enumerate(zip(taken, passed, strict=True), 1):
        if wanted := _wanted(parameter, argument):
            what = (
                f"argument {number} of {launch.kernel} is {parameter.declaration} and takes {wanted}; "
                f"the launch passes {_words(argument)}"
            )
            return _finding(variant, launch, "args", what, "type", signature.place)
    return None


def _wanted(parameter: Parameter, argument: Argument) -> str:
    """What should be passed instead; empty if the argument fits, or if nobody knows."""
    is_buffer = isinstance(argument, str | Images)
    if parameter.is_pointer:
        return "" if is_buffer else "a buffer, by its name"
    if parameter.type is None:
        return "" if not is_buffer else "a value"
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
        case str():
            return f"buffer {argument}"
        case np.generic():
            return f"np.{type(argument).__name__}({argument})"
    return f"the {type(argument).__name__} {argument}"


def _finding(
    variant: Variant, launch: Launch, field: str, what: str, cure: str, other: Place | None = None
) -> Finding:
    """Where the launch is written, and the kernel's declaration."""
    own = Party(launch_place(variant, launch.kernel, field), (), ())
    declared = Party(other, (), ()) if other else None
    return Finding("launch", what, launch.kernel, own if own.place else None, "", declared, CURES[cure])


def launch_place(variant: Variant, kernel: str, field: str) -> Place | None:
    """The line of ``variant.py`` that gives a field of a kernel's launch, where it can be told."""
    file = variant.folder / "variant.py"
    if not file.is_file():
        return None
    text = file.read_text(errors="replace")
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
    return Place(file.name, line, text.splitlines()[line - 1].strip())


def _given(call: ast.Call, field: str) -> ast.expr | None:
    position = FIELDS.index(field)
    if position < len(call.args):
        return call.args[position]
    return next((keyword.value for keyword in call.keywords if keyword.arg == field), None)
