"""The host program of an exported kernel, for PyTorch: a C++ extension and the program that calls it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.errors import UsageError
from mini_dnn.ops import Array
from mini_dnn.variant.host_program import HostProgram, indented, variable

FEW = 8  # entries of the batch that PyTorch computes as well: float64 is slow on most GPUs
# Types that both support
TYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")
EXTENSION = "steps.cu"
HALVES = ("HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS")


@dataclass(frozen=True)
class TorchProgram(HostProgram):
    """The texts of ``steps.cu`` and ``main.py`` below their header comments.

    Parameters
    ----------
    arch
        The GPU's compute capability, times ten.
    reference
        The operation as an expression of PyTorch, see `Operation.pytorch`; empty if there is none.

    Raises
    ------
    UsageError
        Such a program cannot run the plan.
    """

    arch: int
    reference: str

    def __post_init__(self) -> None:
        why = next(self._missing(), "")
        if why:
            raise UsageError(f"{self.planned.name} {why}, which --as torch does not support; use --as c")

    def _missing(self) -> Iterator[str]:
        if self.planned.streams > 1 or self.planned.copies_itself:
            yield "overlaps copies with kernels"
        for name, array in self.planned.arrays.items():
            if array.dtype not in TYPES:
                yield f"has {name} of type {array.dtype}"

    def text(self, includes: Sequence[str]) -> str:
        """Return the C++ extension: the steps before the first run, and those of one run."""
        used = [
            *(
                f"const harness::Tensor {variable(name)}(tensors[{number}]);"
                for number, name in enumerate(self.planned.arrays)
            ),
            "const harness::CurrentStream stream;",
            *self._maps(),
        ]
        lines = [
            *(f'#include "{name}"' for name in includes),
            "",
            "void prepare(const Tensors& tensors) {",
            *indented([*(used if self.planned.setup else ()), *self._once()]),
            "}",
            "",
            "void run(const Tensors& tensors) {",
            *indented([*used, "", *self._steps()]),
            "}",
        ]
        return "\n".join(line.rstrip() for line in lines) + "\n"

    def python(self) -> str:
        """Return the Python program."""
        problem = self.planned.problem
        names = ", ".join(map(variable, self.planned.arrays))
        arch = nvcc_arch(self.arch).removeprefix("sm_")
        flags = ["-O3", f"-gencode=arch=compute_{arch},code=sm_{arch}"]
        flags += [f"-U__CUDA_NO_{word}__" for word in HALVES]  # PyTorch defines them
        lines = [
            "from pathlib import Path",
            "",
            "import torch",
            *(["import torch.nn.functional as F"] if "F." in self.reference else []),
            f"from harness import agrees, {'agrees_with_torch, ' if self.reference else ''}draw, fresh, time",
            "from torch.utils.cpp_extension import load_inline",
            "",
            "here = Path(__file__).parent",
            'build = here / "build"',
            "build.mkdir(exist_ok=True)",
            "module = load_inline(",
            f'    name="{re.sub(r"[^A-Za-z0-9]", "_", self.planned.name)}",',
            '    cpp_sources="void prepare(const std::vector<torch::Tensor>&); '
            'void run(const std::vector<torch::Tensor>&);",',
            f"    cuda_sources='#include \"{EXTENSION}\"',",
            '    functions=["prepare", "run"],',
            "    extra_include_paths=[str(here)],",
            "    build_directory=str(build),  # PyTorch's own is shared by all extensions of that name",
            "    extra_cuda_cflags=[",
            *(f'        "{flag}",' for flag in flags),
            "    ],",
            ")",
            "",
            *self._tensors(),
            f"tensors = [{names}]",
            "",
            "module.prepare(tensors)",
            "module.run(tensors)",
            "torch.cuda.synchronize()",
            "right = True",
            *self._compared(),
            f"flops, moved = {problem.flops:.1f}, {problem.min_bytes:.1f}  # bytes, each array once",
            "time(lambda: module.run(tensors), flops, moved)",
            "raise SystemExit(0 if right else 1)",
        ]
        return "\n".join(lines) + "\n"

    def _tensors(self) -> Iterator[str]:
        """The tensors with their values."""
        given = self.planned.problem.named("in", "weight")
        for sequence, (name, array) in enumerate(given.items(), 1):
            span = self.exercise.spans[name]
            ends = f"{span.low!r}, {span.high!r}"
            yield f"{variable(name)} = draw({sequence}, {_like(array)}, {ends}{_gap(array)})"
        for name, array in self.planned.arrays.items():
            if name not in given:
                yield f"{variable(name)} = fresh({_like(array)})"

    def _compared(self) -> Iterator[str]:
        """Comparisons with the answers and with PyTorch."""
        problem = self.planned.problem
        outputs = problem.named("out")
        for name, array in outputs.items():
            yield f'right &= agrees("{name}", {variable(name)}{_gap(array)})'
        if self.reference:
            (output,) = outputs
            for name, array in problem.named("in", "weight").items():
                part = f"[:{FEW}]" if array.split else ""
                yield f"{name} = {variable(name)}{part}.double()"
            yield f'right &= agrees_with_torch("{output}", {variable(output)}[:{FEW}], {self.reference})'


def _like(array: Array) -> str:
    return f"{tuple(map(int, array.shape))}, torch.{array.dtype}"


def _gap(array: Array) -> str:
    return f", gap={array.gap}" if array.gap else ""
