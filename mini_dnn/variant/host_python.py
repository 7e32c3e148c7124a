"""The host program of an exported kernel, in Python: CuPy loads and launches it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from mini_dnn.device.base import DEFAULT_SHARED_BYTES
from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.errors import UsageError
from mini_dnn.variant.answers import Exercise
from mini_dnn.variant.host_program import needs_attributes, variable
from mini_dnn.variant.plan import Argument, CopyToSymbol, Images, Launch, Step
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.tensor_map import TensorMap

# Types that NumPy supports
TYPES = ("float16", "float32", "float64", "int8", "uint8", "int32", "uint32", "int64")


@dataclass(frozen=True)
class PythonProgram:
    """The text of ``main.py`` below its docstring.

    Parameters
    ----------
    planned
        The plan that it runs.
    exercise
        How its inputs are generated.
    arch
        The GPU's compute capability, times ten.

    Raises
    ------
    UsageError
        Such a program cannot express the plan.
    """

    planned: Planned
    exercise: Exercise
    arch: int

    def __post_init__(self) -> None:
        why = next(self._missing(), "")
        if why:
            raise UsageError(f"{self.planned.name} {why}, which --as cupy does not support; use --as c")

    def _missing(self) -> Iterator[str]:
        planned = self.planned
        if planned.streams > 1 or planned.copies_itself:
            yield "overlaps copies with kernels"
        for launch in planned.launches:
            if needs_attributes(launch):
                yield "launches clusters of blocks, or early"
            if any(isinstance(arg, TensorMap) for arg in launch.args):
                yield "copies by tensor maps"
        for name, array in planned.arrays.items():
            if array.gap or array.dtype not in TYPES:
                yield f"has {name}, {'with gaps' if array.gap else f'of type {array.dtype}'}"

    def text(self) -> str:
        """Return the whole text."""
        problem = self.planned.problem
        compared = [f'right &= agrees("{name}", {variable(name)})' for name in problem.named("out")]
        once = self._run(self.planned.setup)
        lines = [
            "import subprocess",
            "from pathlib import Path",
            "",
            "import cupy",
            "import numpy as np",
            "from harness import agrees, draw, fresh, time",
            "",
            *self._module(),
            "",
            *self._buffers(),
            *(["", "# Once.", *once] if once else []),
            "",
            "",
            "def steps() -> None:",
            *(f"    {line}" for line in self._run(self.planned.steps)),
            "",
            "",
            "steps()",
            "right = True",
            *compared,
            f"time(steps, {problem.flops:.1f}, {problem.min_bytes:.1f})  # FLOPs; bytes, each array once",
            "raise SystemExit(0 if right else 1)",
        ]
        return "\n".join(lines) + "\n"

    def _module(self) -> Iterator[str]:
        yield "here = Path(__file__).parent"
        words = ["nvcc", "-std=c++17", "-O3", f"-arch={nvcc_arch(self.arch)}", "-cubin", "kernel.cu"]
        yield f'subprocess.run("{" ".join(words)} -o kernel.cubin".split(), cwd=here, check=True)'
        yield 'module = cupy.RawModule(path=str(here / "kernel.cubin"))'
        for kernel, size in self.planned.shared_bytes.items():
            yield f'{_kernel(kernel)} = module.get_function("{kernel}")'
            if size > DEFAULT_SHARED_BYTES:
                yield f"{_kernel(kernel)}.max_dynamic_shared_size_bytes = {size}  # the default is 48 KB"

    def _buffers(self) -> Iterator[str]:
        problem = self.planned.problem
        given = problem.named("in", "weight")
        for sequence, (name, array) in enumerate(given.items(), 1):
            span = self.exercise.spans[name]
            shape = f'{tuple(map(int, array.shape))}, "{array.dtype}"'
            yield f"{variable(name)} = draw({sequence}, {shape}, {span.low!r}, {span.high!r})"
        for name, array in self.planned.arrays.items():
            if name not in given:
                yield f'{variable(name)} = fresh({tuple(map(int, array.shape))}, "{array.dtype}")'

    def _run(self, steps: tuple[Step, ...]) -> list[str]:
        return [self._step(step) for step in steps]

    def _step(self, step: Step) -> str:
        match step:
            case Launch():
                args = ", ".join(map(_argument, step.args))
                how = f"{_size(step.grid)}, {_size(step.block)}, ({args},)"
                return f"{_kernel(step.kernel)}({how}, shared_mem={step.shared_bytes})"
            case CopyToSymbol():
                source = variable(step.buffer)
                to = f'module.get_global("{step.symbol}")'
                return f"{to}.copy_from_device_async({source}.data, {source}.nbytes)"
        raise AssertionError(f"{step} was refused before")


def _argument(value: Argument) -> str:
    match value:
        case np.generic():
            kind = "bool_" if value.dtype.kind == "b" else value.dtype  # NumPy 1 has no np.bool
            return f"np.{kind}({_number(value.item())})"
        case str():
            return variable(value)
        case Images():
            return f"{variable(value.buffer)}[{value.first}:{value.last}]"
        case float():
            return f"np.float32({_number(value)})"
        case int():
            return f"np.int32({value})"
    raise AssertionError(f"{value} was refused before")


def _number(value: float) -> str:
    """A number as Python writes it. Infinities and NaN have no literals."""
    return repr(value) if np.isfinite(value) else f'float("{value}")'


def _size(size: tuple[int, ...]) -> str:
    return str((*map(int, size), 1, 1)[:3])


def _kernel(name: str) -> str:
    return f"k_{name}"
