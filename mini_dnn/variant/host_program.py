"""The host program of an exported kernel, in CUDA C++: its buffers, launches and copies."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from mini_dnn.device.base import DEFAULT_SHARED_BYTES
from mini_dnn.device.clusters import ALONE
from mini_dnn.ops import Array
from mini_dnn.variant.answers import Exercise
from mini_dnn.variant.export import scalar
from mini_dnn.variant.plan import Argument, CopyIn, CopyOut, CopyToSymbol, Images, Launch, Record, Step, Wait
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.tensor_map import TensorMap

WIDTH = 120
TYPES = {
    "float16": "half",
    "bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int32": "int",
    "uint32": "unsigned",
    "int64": "long long",
}


@dataclass(frozen=True)
class HostProgram:
    """The text of ``main.cu`` below its header comment.

    Parameters
    ----------
    planned
        The plan that it runs.
    exercise
        How its inputs are generated.
    """

    planned: Planned
    exercise: Exercise

    @cached_property
    def maps(self) -> list[TensorMap]:
        """The tensor maps of all launches, each once."""
        found: list[TensorMap] = []
        for arg in (arg for launch in self.planned.launches for arg in launch.args):
            if isinstance(arg, TensorMap) and arg not in found:
                found.append(arg)
        return found

    def text(self, includes: Sequence[str]) -> str:
        """Return the whole text, which includes these files in this order."""
        lines = [
            *(f'#include "{name}"' for name in includes),
            "",
            "int main() {",
            *indented(self._main()),
            "}",
        ]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def _main(self) -> list[str]:
        """The body of ``main``."""
        planned, problem = self.planned, self.planned.problem
        outputs = problem.named("out")
        fetched = [] if planned.copies_itself else [f"{variable(name)}.download();" for name in outputs]
        compared = [f'right &= harness::agrees("{name}", {variable(name)});' for name in outputs]
        timed = "copies and kernels" if planned.copies_itself else "kernels"
        return [
            *_call("harness::introduce(", [f'"{planned.name}"', f'"{problem}"'], ");"),
            f"harness::Streams stream({planned.streams});",
            "",
            *self._buffers(),
            *self._maps(),
            *self._once(),
            "",
            "auto steps = [&] {",
            *indented(self._steps()),
            "};",
            "",
            "steps();",
            "CUDA_CHECK(cudaDeviceSynchronize());",
            *fetched,
            "bool right = true;",
            *compared,
            "",
            f"const double flops = {problem.flops:.1f}, bytes = {problem.min_bytes:.1f};  // each array once",
            f'harness::time("{timed}", steps, stream[0], flops, bytes);',
            "return right ? 0 : 1;",
        ]

    def _buffers(self) -> list[str]:
        """The buffers with their values, in host memory and on the GPU."""
        planned, problem = self.planned, self.planned.problem
        gaps = any(array.gap for array in problem.arrays.values())
        lines = ["// Arrays in C order" + (", and the gap after each line." if gaps else ".")]
        lines += [_declaration(name, array) for name, array in problem.arrays.items()]
        if planned.scratch:
            lines += ["", "// Scratch."]
            lines += [_declaration(name, array) for name, array in planned.scratch.items()]
        lines += ["", "// Random values, uniformly distributed between the two numbers."]
        for sequence, (name, array) in enumerate(problem.named("in", "weight").items(), 1):
            later = planned.copies_itself and array.role == "in" and array.split
            span = self.exercise.spans[name]
            ends = f"{np.float32(span.low)!s}f, {np.float32(span.high)!s}f"  # as few digits as possible
            drawn = f"{variable(name)}.draw({sequence}, {ends})"
            lines.append(f"{drawn};" if later else f"{drawn}.upload();")
        return lines

    def _maps(self) -> list[str]:
        """The tensor maps."""
        if not self.maps:
            return []
        lines = ["", "// Tensor maps: address, type, shape, strides in bytes, box, swizzle, L2 promotion."]
        return [*lines, *(line for map_ in self.maps for line in self._map(map_))]

    def _once(self) -> list[str]:
        """The steps before the first run."""
        lines = []
        if large := {k: n for k, n in self.planned.shared_bytes.items() if n > DEFAULT_SHARED_BYTES}:
            lines += ["", "// By default, a block may have only 48 KB of shared memory."]
            attribute = "cudaFuncAttributeMaxDynamicSharedMemorySize"
            for kernel, size in large.items():
                lines += _call("CUDA_CHECK(cudaFuncSetAttribute(", [kernel, attribute, str(size)], "));")
        if self.planned.setup:
            lines += ["", "// Once.", *self._run(self.planned.setup), "CUDA_CHECK(cudaDeviceSynchronize());"]
        return lines

    def _map(self, map_: TensorMap) -> list[str]:
        array = self.planned.arrays[map_.buffer]
        found = map_.geometry(array.shape, array.dtype, array.nbytes)
        kind, *others = found.driver_names
        args = [
            variable(map_.buffer),
            kind,
            *(f"{{{', '.join(map(str, sizes))}}}" for sizes in (found.shape, found.pitches, found.box)),
            *others,
            *([] if found.windows is None else [f"{{{', '.join(map(str, found.windows))}}}"]),
        ]
        return _call(f"const auto {self._map_name(map_)} = harness::tensor_map(", args, ");")

    def _map_name(self, map_: TensorMap) -> str:
        same = [other for other in self.maps if other.buffer == map_.buffer]
        number = f"_{same.index(map_) + 1}" if len(same) > 1 else ""
        return f"map_{_word(map_.buffer)}{number}"

    def _steps(self) -> list[str]:
        """The steps of one run."""
        if self.planned.streams == 1:
            return self._run(self.planned.steps)
        return ["stream.fork();", *self._run(self.planned.steps), "stream.join();"]

    def _run(self, steps: Iterable[Step]) -> list[str]:
        return [*(line for step in steps for line in self._step(step)), "CUDA_CHECK(cudaGetLastError());"]

    def _step(self, step: Step) -> list[str]:
        """Return a step in CUDA C++."""
        match step:
            case Launch():
                return self._launch(step)
            case CopyToSymbol():
                buffer = variable(step.buffer)
                rest = ["0", "cudaMemcpyDeviceToDevice", f"stream[{step.stream}]"]
                args = [step.symbol, buffer, f"{buffer}.bytes()", *rest]
                return _call("CUDA_CHECK(cudaMemcpyToSymbolAsync(", args, "));")
            case CopyIn(images) | CopyOut(images):
                way = "copy_in" if isinstance(step, CopyIn) else "copy_out"
                part = f"{images.first}, {images.last}, stream[{step.stream}]"
                return [f"{variable(images.buffer)}.{way}({part});"]
            case Record() | Wait():
                return [f'stream.{type(step).__name__.lower()}("{step.event}", {step.stream});']
        raise AssertionError(f"{step} was refused before")

    def _launch(self, launch: Launch) -> list[str]:
        how = [_size(launch.grid), _size(launch.block), str(launch.shared_bytes), f"stream[{launch.stream}]"]
        args = [self._argument(value) for value in launch.args]
        if not needs_attributes(launch):
            return _call(f"{launch.kernel}<<<{', '.join(how)}>>>(", args, ");")
        cluster = launch.cluster_sizes
        words = [] if cluster == ALONE else [f"In clusters of {' x '.join(map(str, cluster))} blocks."]
        words += ["It may begin before the kernel ahead of it has ended."] if launch.early else []
        how += [f"dim3({', '.join(map(str, cluster))})", str(launch.early).lower()]
        settings = f"{{{', '.join(how)}}}"
        return [f"// {' '.join(words)}", *_call("harness::launch(", [launch.kernel, settings, *args], ");")]

    def _argument(self, value: Argument) -> str:
        match value:
            case str():
                return variable(value)
            case Images():
                return f"{variable(value.buffer)}[{value.first}]"
            case TensorMap():
                return self._map_name(value)
        return scalar(value)


def needs_attributes(launch: Launch) -> bool:
    """Whether ``<<< >>>`` cannot express a launch."""
    return launch.early or launch.cluster_sizes != ALONE


def _declaration(name: str, array: Array) -> str:
    gap = f", {array.gap}" if array.gap else ""
    shape = ", ".join(map(str, array.shape))
    return f"harness::Buffer<{TYPES[array.dtype]}> {variable(name)}({{{shape}}}{gap});"


def variable(name: str) -> str:
    """The variable of a buffer, which must differ from the names of kernels."""
    return f"d_{_word(name)}"


def _word(name: str) -> str:
    return re.sub(r"\W", "_", name)


def _size(size: Sequence[int]) -> str:
    """Format a grid or a block. With a single axis, it is a number."""
    return str(size[0]) if prod(size[1:]) == 1 else f"dim3({', '.join(map(str, size))})"


def _call(start: str, args: Sequence[str], end: str) -> list[str]:
    """Wrap a call inside a lambda. Further lines are aligned with the first argument."""
    lines = [start]
    for at, arg in enumerate(args):
        text = arg + (", " if at + 1 < len(args) else end)
        if len(lines[-1]) + len(text.rstrip()) + 4 > WIDTH and lines[-1] != start:
            lines.append(" " * len(start))
        lines[-1] += text
    return [line.rstrip() for line in lines]


def indented(lines: Iterable[str]) -> list[str]:
    """Indent the lines of a block."""
    return [f"  {line}" for line in lines]
