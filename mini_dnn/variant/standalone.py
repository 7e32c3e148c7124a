"""A folder to take home: a kernel, a host program for one problem that nvcc alone builds, and its answers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.errors import UsageError
from mini_dnn.ops import Array
from mini_dnn.paths import ROOT
from mini_dnn.variant.answers import Sample, Span, sample
from mini_dnn.variant.export import expand, scalar
from mini_dnn.variant.plan import Argument, CopyIn, CopyOut, CopyToSymbol, Gemm, Images, Launch, Step
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.variant import Variant

FILES = Path(__file__).parent / "take_home"  # that are the same for all kernels, but for ARCH
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


@dataclass(frozen=True)
class Origin:
    """Where a kernel comes from.

    Parameters
    ----------
    title
        What the problem is called.
    commit
        Of the project, with a remark where files differ from it.
    """

    title: str
    commit: str


def standalone(
    variant: Variant, problem: Any, origin: Origin, arch: int, max_shared_bytes: int
) -> dict[str, bytes]:
    """The folder's files by name. ``make && ./main`` builds, checks and times the kernel.

    Parameters
    ----------
    problem
        Which the program is for.
    arch
        Compute capability, times ten, of the GPU that it is built for.
    max_shared_bytes
        Of shared memory that a block may have there, see `Variant.planned`.

    Raises
    ------
    UsageError
        The variant runs on the host or calls a library, or has arrays that the program cannot fill.
    VariantError
        It refuses the problem.
    """
    kernel = expand(variant, problem, origin.title, max_shared_bytes, arch)
    planned = variant.planned(problem, max_shared_bytes)
    _check(planned)
    found = sample(variant.operation, problem, variant.precision)
    makefile = (FILES / "Makefile").read_text().replace("@ARCH@", nvcc_arch(arch))
    return {
        "main.cu": _main(planned, found, variant.idea, origin).encode(),
        "kernel.cu": kernel.encode(),
        "harness.cuh": (FILES / "harness.cuh").read_bytes(),
        "Makefile": makefile.encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        **{f"expected-{name}.bin": answers.tobytes() for name, answers in found.answers.items()},
    }


def _check(planned: Planned) -> None:
    """Refuse what the program could not do.

    Raises
    ------
    UsageError
        The message says why.
    """
    if any(isinstance(step, Gemm) for step in (*planned.setup, *planned.steps)):
        raise UsageError(
            f"{planned.name} calls cuBLAS, and the folder has kernels that nvcc alone builds; take another "
            "variant"
        )
    for name, array in planned.arrays.items():
        if array.dtype not in TYPES:
            known = ", ".join(TYPES)
            raise UsageError(f"{planned.name}: {name} is {array.dtype}; the program knows {known}")
    if not planned.fits(planned.nbytes):
        raise UsageError(
            f"{planned.problem} needs more blocks than a grid has; name a smaller problem by --shapes"
        )


def _main(planned: Planned, found: Sample, idea: str, origin: Origin) -> str:
    """The host program."""
    outputs = planned.problem.named("out")
    fetched = [] if planned.copies_itself else [f"{_variable(name)}.download();" for name in outputs]
    compared = [f'right &= harness::agrees("{name}", {_variable(name)});' for name in outputs]
    timed = "copies and kernels" if planned.copies_itself else "kernels"
    flops, nbytes = f"{planned.problem.flops:.1f}", f"{planned.problem.min_bytes:.1f}"
    body = [
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
    lines = [
        *_head(planned, found, idea, origin),
        '#include "harness.cuh"',
        '#include "kernel.cu"',
        "",
        "int main() {",
        *_indented(body),
        "}",
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(planned: Planned, found: Sample, idea: str, origin: Origin) -> list[str]:
    """The comment at the top."""
    files = {
        "kernel.cu": "the kernel with all that it includes and its definitions for this problem",
        "harness.cuh": "buffers, streams, the comparison, the clock",
    }
    for name, answers in found.answers.items():
        content = f"{len(answers):,} elements of {name} in float64, and how far off each may be"
        files[f"expected-{name}.bin"] = content
    width = max(map(len, files))
    texts = [
        f"{planned.name} for {origin.title}: {planned.problem}",
        f"Idea: {idea}.",
        "",
        "  make && ./main",
        "",
        *(f"{name:<{width}}  {content}" for name, content in files.items()),
        "",
        f"From mini_dnn, commit {origin.commit}. MIT licence: see LICENSE.",
    ]
    return [f"// {line}" for text in texts for line in _wrapped(text, WIDTH - 3)]


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
            how = [_size(step.grid), _size(step.block), str(step.shared_bytes), f"stream[{step.stream}]"]
            return _call(
                f"{step.kernel}<<<{', '.join(how)}>>>(", [_argument(value) for value in step.args], ");"
            )
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


def _wrapped(text: str, width: int) -> list[str]:
    """The text in lines, broken at spaces."""
    lines = [""]
    for word in re.split(r"(?<=\S) ", text):
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines]


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"  {line}" for line in lines]
