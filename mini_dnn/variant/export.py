"""One self-contained ``.cu`` of a variant, with its definitions and its launches for one problem."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.base import DEFAULT_SHARED_BYTES
from mini_dnn.device.clusters import ALONE
from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.device.sources import LOCAL_INCLUDE, PRAGMA_ONCE, included, read_source
from mini_dnn.errors import UsageError
from mini_dnn.variant.joined import joined, prefixes
from mini_dnn.variant.plan import (
    Argument,
    CopyIn,
    CopyToSymbol,
    Gemm,
    Images,
    Launch,
    Record,
    RoundTrip,
    Step,
    Wait,
)
from mini_dnn.variant.planned import Planned
from mini_dnn.variant.tensor_map import TensorMap
from mini_dnn.variant.variant import Variant

CONDITION = re.compile(r"^\s*#\s*(?P<what>if|endif)")  # ifdef and ifndef begin with if
TOOLKIT_INCLUDE = re.compile(r"^#\s*include\s*<(?!emulator/|mini_dnn/)[^>]+>", re.MULTILINE)
EMULATOR_INCLUDE = re.compile(r"^#\s*include\s*<emulator/[^>]+>", re.MULTILINE)
WIDTH = 116
SHOWN_STEPS = 24  # a plan with many streams repeats itself


def expand(variant: Variant, problem: Any, title: str, max_shared_bytes: int, arch: int = 90) -> str:
    """The variant's kernel file with all that it includes: it compiles with nvcc and in the emulator.

    Parameters
    ----------
    problem
        The problem for which the definitions and the launches are written.
    title
        The name of the problem in the header.
    max_shared_bytes
        The shared memory that a block may use: see `Variant.planned`.
    arch
        The compute capability, times ten, of the GPU in the compile command of the header.

    Raises
    ------
    UsageError
        The variant runs on the host.
    VariantError
        It refuses the problem, or includes a file that does not exist.
    """
    if variant.plan is None:
        raise UsageError(
            f"{variant.name} is NumPy and runs on the host, so it has no kernel to expand; try m1"
        )
    planned = joined(variant.solver(problem).planned(problem, max_shared_bytes))
    guards: dict[Path, str] = {}
    text = _inlined(planned.source.resolve(), [], set(), guards)
    parts = [
        _head(planned, variant.name, title, arch),
        _defined(planned.defines, text, guards.values() if planned.codes else ()),
        *_called(planned),
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def _defined(macros: Mapping[str, int | str], text: str, guards: Iterable[str] = ()) -> str:
    """The text with these definitions, undefined after it: short names would break other headers."""
    parts = ["\n".join(f"#define {name} {value}" for name, value in macros.items()), text]
    parts += ["\n".join(f"#undef {name}" for name in (*macros, *guards))]
    return "\n\n".join(part.strip("\n") for part in parts if part)


def _called(planned: Planned) -> Iterator[str]:
    """The kernel files of other variants, each in a namespace, because two files may use the same names."""
    for code, word in prefixes(planned).items():
        launched = (launch.kernel for launch in planned.launches if launch.code == code)
        names = {kernel.removeprefix(f"{word}_"): kernel for kernel in launched}
        guards: dict[Path, str] = {}
        text = _inlined(code.source.resolve(), [], set(), guards)
        emulated = dict.fromkeys(EMULATOR_INCLUDE.findall(text))
        yield "\n".join(
            [
                f"// ---- {code.source.parent.parent.name}/{code.source.parent.name} ----",
                *dict.fromkeys(TOOLKIT_INCLUDE.findall(text)),  # outside of the namespace
                *(("#ifdef MINI_DNN_EMULATOR", *emulated, "#endif") if emulated else ()),
                "",
                f"namespace {word} {{",
                _defined({**dict(code.defines), **names}, text, guards.values()),
                f"}}  // namespace {word}",
                *(f"using {word}::{kernel};" for kernel in names.values()),
            ]
        )


def calls(asked: str, planned: Planned) -> list[str]:
    """A line that names the requested variant, if it calls this one."""
    return [f"{asked} calls it for this problem."] if asked != planned.name else []


def _head(planned: Planned, asked: str, title: str, arch: int) -> str:
    lines = [
        f"{planned.name} for {title}: {planned.problem}",
        *calls(asked, planned),
        f"nvcc -std=c++17 -O3 -arch={nvcc_arch(arch)} -cubin THIS_FILE.cu",
        "",
        "Buffers in C order:",
        *(f"  {name} {array.shape} {array.dtype}" for name, array in planned.arrays.items()),
        "",
    ]
    if large := {kernel: n for kernel, n in planned.shared_bytes.items() if n > DEFAULT_SHARED_BYTES}:
        lines += ["Before the first launch, because a block may have only 48 KB by default:"]
        attribute = "cudaFuncAttributeMaxDynamicSharedMemorySize"
        lines += [*(f"  cudaFuncSetAttribute({kernel}, {attribute}, {n})" for kernel, n in large.items()), ""]
    if planned.setup:
        lines += ["Steps that are done once:", *_listed(planned.setup), ""]
    streams = planned.streams > 1
    lines += ["Steps, in order" + (" within each stream:" if streams else ":"), *_listed(planned.steps)]
    return "\n".join(f"// {line}".rstrip() for line in lines)


def _listed(steps: Sequence[Step]) -> list[str]:
    used = {step.stream for step in steps}
    streams = {number: f"stream {number}: " if len(used) > 1 else "" for number in used}
    lines = [
        line for step in steps[:SHOWN_STEPS] for line in _wrapped(f"{streams[step.stream]}{_step(step)}")
    ]
    if len(steps) > SHOWN_STEPS:
        lines.append(f"  ... and {len(steps) - SHOWN_STEPS} more of the same kinds")
    return lines


def _wrapped(text: str) -> list[str]:
    """The text in lines of a comment, which are broken after commas."""
    lines = ["  "]
    for part in re.split(r"(?<=,) ", text):
        if len(lines[-1]) + len(part) > WIDTH:
            lines.append("      ")
        lines[-1] += part + " "
    return [line.rstrip() for line in lines]


def _step(step: Step) -> str:
    """The step as one would write it in CUDA C++."""
    match step:
        case Launch():
            grid, block = (f"dim3({', '.join(map(str, size))})" for size in (step.grid, step.block))
            args = ", ".join(map(_argument, step.args))
            cluster = f", clusters of {'x'.join(map(str, step.cluster_sizes))}"
            more = (cluster if step.cluster_sizes != ALONE else "") + (", early" if step.early else "")
            return f"{step.kernel}<<<{grid}, {block}, {step.shared_bytes}>>>({args}){more}"
        case CopyToSymbol():
            return f"copy {step.buffer} to the __constant__ variable {step.symbol}"
        case RoundTrip():
            return f"copy {step.buffer} from the GPU and back"
        case Gemm():
            return _product(step)
        case Record():
            return f"record the event {step.event}"
        case Wait():
            return f"wait for the event {step.event}"
    way = "to the GPU" if isinstance(step, CopyIn) else "from the GPU"
    return f"copy {_argument(step.images)} {way}"


def _product(step: Gemm) -> str:
    shapes = zip((step.a, step.b, step.c), step.product.lines, f"{step.layout}n", strict=True)
    a, b, c = (f"{name} ({m}, {n}){'.T' if turned == 't' else ''}" for name, (m, n, _), turned in shapes)
    factor = "" if step.alpha == 1 else f"{step.alpha:g} * "
    more = f" + {step.beta:g} * {step.c}" if step.beta else ""
    each = f", for each of {step.batch}" if step.batch > 1 else ""
    return f"cuBLAS: {c} = {factor}{a} @ {b}{more}{each}"


def _argument(value: Argument) -> str:
    match value:
        case str():
            return value
        case Images():
            return f"{value.buffer}[{value.first}..{value.last - 1}]"
        case TensorMap():
            return _tensor_map(value)
    return scalar(value)


def scalar(value: int | float | np.generic) -> str:
    """A number as C++ writes it: an int, a long long, a float or a double."""
    match value:
        case bool() | np.bool_():
            return str(bool(value)).lower()
        case np.integer() if value.dtype.itemsize > 4:
            return f"{value}LL"
        case float() | np.floating():
            is_double = isinstance(value, np.float64)  # which is also a Python float
            if np.isfinite(value):
                return f"{float(value)!r}{'' if is_double else 'f'}"
            word = "NAN" if np.isnan(value) else "INFINITY" if value > 0 else "-INFINITY"  # of math.h: floats
            return f"double({word})" if is_double else word
    return str(value)


def _tensor_map(value: TensorMap) -> str:
    """The arguments of the driver's function; sizes are in elements, the innermost last."""
    words = [f"boxes of {value.box}", f"swizzle {value.swizzle}"]
    for name in ("shape", "strides", "dtype", "windows"):
        if getattr(value, name) is not None:
            words.append(f"{name} {getattr(value, name)}")
    return f"tensor map of {value.buffer} [{'; '.join(words)}]"


def _inlined(file: Path, within: Sequence[Path], above: set[Path], guards: dict[Path, str]) -> str:
    """The text of a file, with the texts of included files of the kernel and of this project.

    Parameters
    ----------
    within
        The files that include it.
    above
        Files with ``#pragma once`` that have been included unconditionally; this call adds to them. A file
        that only one branch of an ``#if`` includes is not among them, so another branch includes it again.
    guards
        The macro that guards each file with ``#pragma once``; this call adds to them.
    """
    text = read_source(file)
    if PRAGMA_ONCE.search(text):
        above.add(file)
        guard = guards.setdefault(file, f"INCLUDED_{len(guards) + 1}")
        text = f"#ifndef {guard}\n#define {guard}\n{PRAGMA_ONCE.sub('', text).strip()}\n#endif\n"
    lines: list[str] = []
    depth = -1 if file in guards else 0  # of conditions; the file's own guard does not count
    for line in text.splitlines():
        if condition := CONDITION.match(line):
            depth += 1 if condition["what"] == "if" else -1
        match, path = LOCAL_INCLUDE.match(line), included(file, line)
        if match is None or path is None:  # "cuda_fp16.h" in quotes is a header of the toolkit
            lines.append(line)
        # A circular include ends here, because its guard would make it empty
        elif path in above or path in (*within, file):
            lines.append(f"// {match['spelled']} is above")
        else:
            body = _inlined(path, (*within, file), set(above) if depth else above, guards).strip("\n")
            lines += [f"// ---- {match['spelled']} ----", body, f"// ---- end of {match['spelled']} ----"]
    return "\n".join(lines) + "\n"
