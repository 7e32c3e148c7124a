"""A folder to take home: a kernel, a host program for one problem that needs only nvcc, and its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import TextWrapper
from typing import Any

from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.errors import UsageError
from mini_dnn.paths import ROOT
from mini_dnn.variant.answers import Exercise, exercise
from mini_dnn.variant.export import calls, expand
from mini_dnn.variant.host_program import TYPES, WIDTH, HostProgram, needs_attributes
from mini_dnn.variant.host_python import PythonProgram
from mini_dnn.variant.host_torch import EXTENSION, TorchProgram
from mini_dnn.variant.joined import joined
from mini_dnn.variant.plan import Gemm, RoundTrip
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.variant import Variant

FILES = Path(__file__).parent / "take_home"  # the same files for all kernels, except for ARCH
KERNEL = "the kernel with all that it includes and its definitions for this problem"


@dataclass(frozen=True)
class Origin:
    """The origin of a kernel.

    Parameters
    ----------
    title
        The name of the problem.
    commit
        The commit of the project, with a remark if files differ from it.
    """

    title: str
    commit: str


def standalone(
    variant: Variant, problem: Any, origin: Origin, arch: int, max_shared_bytes: int, form: str = "c"
) -> dict[str, bytes]:
    """Return the folder's files by name. ``make && ./main`` builds, checks and times the kernel.

    With the forms ``"cupy"`` and ``"torch"``, the command is ``python main.py``.

    Parameters
    ----------
    problem
        The problem that the program solves.
    arch
        The compute capability, times ten, of the GPU for which it is built.
    max_shared_bytes
        The shared memory that a block may use there, see `Variant.planned`.

    Raises
    ------
    UsageError
        The variant runs on the host or calls a library, or has arrays that the program cannot fill.
    VariantError
        The variant refuses the problem.
    """
    kernel = expand(variant, problem, origin.title, max_shared_bytes, arch)
    solver = variant.solver(problem)
    planned = joined(solver.planned(problem, max_shared_bytes))
    _check(planned)
    about = [*calls(variant.name, planned), f"Idea: {solver.idea}."]
    given = exercise(solver.operation, problem, solver.precision)
    if form == "cupy":
        return _for_cupy(PythonProgram(planned, given, arch), kernel, about, origin)
    if form == "torch":
        reference = solver.operation.pytorch(problem)
        return _for_torch(TorchProgram(planned, given, arch, reference), kernel, about, origin)
    program = HostProgram(planned, given)
    headers = _headers(program)
    contents = {"kernel.cu": KERNEL, **headers, **_files(given)}
    texts = _head(planned, about, origin, contents, "make && ./main")
    head = "\n".join(f"// {line}".rstrip() for line in texts)
    makefile = (FILES / "Makefile").read_text().replace("@ARCH@", nvcc_arch(arch).removeprefix("sm_"))
    return {
        "main.cu": f"{head}\n{program.text([*headers, 'kernel.cu'])}".encode(),
        **_shared(given, kernel, *headers),
        "Makefile": makefile.encode(),
    }


def _for_cupy(program: PythonProgram, kernel: str, about: Sequence[str], origin: Origin) -> dict[str, bytes]:
    """Return the folder's files for CuPy."""
    contents = {"harness.py": "arrays, the comparison, the clock", "values.py": "the values of inputs"}
    head = _python_head(program.planned, program.exercise, about, origin, contents)
    return {
        "main.py": (head + program.text()).encode(),
        **_shared(program.exercise, kernel, "harness.py", "values.py"),
    }


def _for_torch(program: TorchProgram, kernel: str, about: Sequence[str], origin: Origin) -> dict[str, bytes]:
    """Return the folder's files for PyTorch."""
    headers = {"tensors.cuh": "tensors as buffers, PyTorch's stream", **_headers(program)}
    contents = {
        EXTENSION: "what is done once, and the launches of one run: the C++ extension",
        **headers,
        "harness.py": "tensors, the comparison, the clock",
        "values.py": "the values of inputs",
    }
    head = _python_head(program.planned, program.exercise, about, origin, contents)
    return {
        "main.py": (head + program.python()).encode(),
        EXTENSION: program.text([*headers, "kernel.cu"]).encode(),
        "harness.py": (FILES / "torch_harness.py").read_bytes(),
        **_shared(program.exercise, kernel, *headers, "values.py"),
    }


def _shared(given: Exercise, kernel: str, *names: str) -> dict[str, bytes]:
    """Return the files that all programs need, and these that are the same for all kernels."""
    return {
        "kernel.cu": kernel.encode(),
        **{name: (FILES / name).read_bytes() for name in names},
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        **{f"expected-{name}.bin": found.tobytes() for name, found in given.answers.items()},
    }


def _python_head(
    planned: Planned, given: Exercise, about: Sequence[str], origin: Origin, contents: Mapping[str, str]
) -> str:
    """Return the docstring of a Python program, which describes each file."""
    files = {"kernel.cu": KERNEL, **contents, **_files(given)}
    return f'"""{chr(10).join(_head(planned, about, origin, files, "python main.py"))}\n"""\n\n'


def _check(planned: Planned) -> None:
    """Raise an error if the program could not run the plan.

    Raises
    ------
    UsageError
        The message says why.
    """
    if any(isinstance(step, Gemm) for step in (*planned.setup, *planned.steps)):
        raise UsageError(
            f"{planned.name} calls cuBLAS, but nvcc alone has to build the folder; use another variant"
        )
    if any(isinstance(step, RoundTrip) for step in planned.steps):
        raise UsageError(
            f"{planned.name} sends buffers to the host and back, which the program cannot do; use "
            "another variant"
        )
    for name, array in planned.arrays.items():
        if array.dtype not in TYPES:
            known = ", ".join(TYPES)
            raise UsageError(f"{planned.name}: {name} is {array.dtype}; the program supports {known}")
    if not planned.fits(planned.nbytes):
        raise UsageError(
            f"{planned.problem} needs more blocks than a grid can have; name a smaller problem with --shapes"
        )


def _headers(program: HostProgram) -> dict[str, str]:
    """The headers that the host program needs, each with a description."""
    found = {"harness.cuh": "buffers, streams, the comparison, the clock"}
    if any(needs_attributes(launch) for launch in program.planned.launches):
        found["launch.cuh"] = "launches in clusters, and launches that may begin early"
    if program.maps:
        found["tensor_map.cuh"] = "tensor maps, through the driver's own function"
    return found


def _files(given: Exercise) -> dict[str, str]:
    """The files with answers, each with a description."""
    return {
        f"expected-{name}.bin": f"{len(answers):,} elements of {name} in float64, and how far off each may be"
        for name, answers in given.answers.items()
    }


def _head(
    planned: Planned, about: Sequence[str], origin: Origin, contents: Mapping[str, str], command: str
) -> list[str]:
    """Return the comment at the top of the program, which describes each file."""
    width = max(map(len, contents))
    texts = [
        f"{planned.name} for {origin.title}: {planned.problem}",
        *about,
        "",
        f"  {command}",
        "",
        *(f"{name:<{width}}  {content}" for name, content in contents.items()),
        "",
        f"From mini_dnn, commit {origin.commit}. MIT licence: see LICENSE.",
    ]
    wrapper = TextWrapper(WIDTH - 3, break_long_words=False, break_on_hyphens=False)
    return [line for text in texts for line in wrapper.wrap(text) or [""]]
