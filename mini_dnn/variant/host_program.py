"""The host program of a kernel that is taken home, in CUDA C++: its launches, copies and buffers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from math import prod

import numpy as np

from mini_dnn.device.clusters import ALONE
from mini_dnn.ops import Array
from mini_dnn.variant.answers import Sample, Span
from mini_dnn.variant.export import scalar
from mini_dnn.variant.plan import Argument, CopyIn, CopyOut, CopyToSymbol, Images, Launch, Step
from mini_dnn.variant.planned import Planned

DEFAULT_SHARED_BYTES = 48 * 1024  # more has to be asked for, kernel by kernel
WIDTH = 120
TYPES = {
    "float16": "half",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
}


def host_program(planned: Planned, found: Sample, includes: Sequence[str]) -> str:
    """The text of ``main.cu`` below its head: what it includes, and ``main``.

    Parameters
    ----------
    planned
        What it runs.
    found
        How its inputs are drawn.
    includes
        Files, in their order.
    """
    lines = [
        *(f'#include "{name}"' for name in includes),
        "",
        "int main() {",
        *_indented(_main(planned, found)),
        "}",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _main(planned: Planned, found: Sample) -> list[str]:
    """What ``main`` does."""
    outputs = planned.problem.named("out")
    fetched = [] if planned.copies_itself else [f"{_variable(name)}.download();" for name in outputs]
    compared = [f'right &= harness::agrees("{name}", {_variable(name)});' for name in outputs]
    timed = "copies and kernels" if planned.copies_itself else "kernels"
    flops, nbytes = f"{planned.problem.flops:.1f}", f"{planned.problem.min_bytes:.1f}"
    return [
        f'harness::introduce("{planned.name}", "{planned.problem}");',
        f"harness::Streams stream({planned.streams});",
        "",
        *_buffers(planned, found),
        *_once(planned),
        "",
        "auto steps = [&] {",
        *_indented(_steps(planned)),
        "};",
        "",
        "steps();",
        "CUDA_CHECK(cudaDeviceSynchronize());",
        *fetched,
        "bool right = true;",
        *compared,
        "",
        f"const double flops = {flops}, bytes = {nbytes};  // each array once",
        f'harness::time("{timed}", steps, stream[0], flops, bytes);',
        "return right ? 0 : 1;",
    ]


def _buffers(planned: Planned, found: Sample) -> list[str]:
    """Buffers with their values, in host memory and on the GPU."""
    lines = ["// Arrays in C order."]
    lines += [_declaration(name, array) for name, array in planned.problem.arrays.items()]
    if planned.scratch:
        lines += ["", "// Scratch."]
        lines += [_declaration(name, array) for name, array in planned.scratch.items()]
    lines += ["", "// Random values, uniform from the one number to the other."]
    given = planned.problem.named("in", "weight")
    for sequence, (name, array) in enumerate(given.items(), 1):
        later = planned.copies_itself and array.role == "in" and array.split
        drawn = f"{_variable(name)}.draw({sequence}, {_range(found.spans[name])})"
        lines.append(f"{drawn};" if later else f"{drawn}.upload();")
    return lines


def _declaration(name: str, array: Array) -> str:
    return f"harness::Buffer<{TYPES[array.dtype]}> {_variable(name)}({{{', '.join(map(str, array.shape))}}});"


def _range(span: Span) -> str:
    return f"{np.float32(span.low)!s}f, {np.float32(span.high)!s}f"  # as short as they can be


def _once(planned: Planned) -> list[str]:
    """What is done before the first run."""
    largest: dict[str, int] = {}
    for launch in planned.launches:
        largest[launch.kernel] = max(launch.shared_bytes, largest.get(launch.kernel, 0))
    asked = {kernel: size for kernel, size in largest.items() if size > DEFAULT_SHARED_BYTES}
    lines = [
        line
        for kernel, size in asked.items()
        for line in _call(
            "CUDA_CHECK(cudaFuncSetAttribute(",
            [kernel, "cudaFuncAttributeMaxDynamicSharedMemorySize", str(size)],
            "));",
        )
    ]
    if lines:
        lines = ["", "// More shared memory than the usual 48 KB has to be asked for.", *lines]
    if planned.setup:
        lines += ["", "// Once.", *_run(planned.setup), "CUDA_CHECK(cudaDeviceSynchronize());"]
    return lines


def _steps(planned: Planned) -> list[str]:
    """One run."""
    if planned.streams == 1:
        return _run(planned.steps)
    return ["stream.fork();", *_run(planned.steps), "stream.join();"]


def _run(steps: Iterable[Step]) -> list[str]:
    return [*(line for step in steps for line in _step(step)), "CUDA_CHECK(cudaGetLastError());"]


def _step(step: Step) -> list[str]:
    """A step in CUDA C++."""
    match step:
        case Launch():
            return _launch(step)
        case CopyToSymbol():
            buffer = _variable(step.buffer)
            rest = ["0", "cudaMemcpyDeviceToDevice", f"stream[{step.stream}]"]
            args = [step.symbol, buffer, f"{buffer}.bytes()", *rest]
            return _call("CUDA_CHECK(cudaMemcpyToSymbolAsync(", args, "));")
        case CopyIn(images) | CopyOut(images):
            way = "copy_in" if isinstance(step, CopyIn) else "copy_out"
            part = f"{images.first}, {images.last}, stream[{step.stream}]"
            return [f"{_variable(images.buffer)}.{way}({part});"]
    raise AssertionError(f"{step} was refused before")


def needs_attributes(launch: Launch) -> bool:
    """Whether a launch says more than ``<<< >>>`` has words for."""
    return launch.early or launch.cluster_sizes != ALONE


def _launch(launch: Launch) -> list[str]:
    how = [_size(launch.grid), _size(launch.block), str(launch.shared_bytes), f"stream[{launch.stream}]"]
    args = [_argument(value) for value in launch.args]
    if not needs_attributes(launch):
        return _call(f"{launch.kernel}<<<{', '.join(how)}>>>(", args, ");")
    cluster = launch.cluster_sizes
    words = [] if cluster == ALONE else [f"In clusters of {' x '.join(map(str, cluster))} blocks."]
    words += ["It may begin before the kernel ahead of it has ended."] if launch.early else []
    how += [f"dim3({', '.join(map(str, cluster))})", str(launch.early).lower()]
    settings = f"{{{', '.join(how)}}}"
    return [f"// {' '.join(words)}", *_call("harness::launch(", [launch.kernel, settings, *args], ");")]


def _size(size: Sequence[int]) -> str:
    """A grid or a block; one of a single axis is a number."""
    return str(size[0]) if prod(size[1:]) == 1 else f"dim3({', '.join(map(str, size))})"


def _argument(value: Argument) -> str:
    match value:
        case str():
            return _variable(value)
        case Images():
            return f"{_variable(value.buffer)}[{value.first}]"
    return scalar(value)


def _variable(name: str) -> str:
    """The variable of a buffer: not the name alone, which may also be a kernel's."""
    return "d_" + re.sub(r"\W", "_", name)


def _call(start: str, args: Sequence[str], end: str) -> list[str]:
    """A call in lines that fit the page inside of a lambda; later ones begin below the first argument."""
    lines = [start]
    for at, arg in enumerate(args):
        text = arg + (", " if at + 1 < len(args) else end)
        if len(lines[-1]) + len(text.rstrip()) + 4 > WIDTH and lines[-1] != start:
            lines.append(" " * len(start))
        lines[-1] += text
    return [line.rstrip() for line in lines]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
