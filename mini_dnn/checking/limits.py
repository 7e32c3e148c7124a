"""Code that g++ accepts but a CUDA compiler or a GPU refuses, found by nvcc, or by inspection without it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mini_dnn.checking.host_code import read
from mini_dnn.checking.nvcc_findings import CURES, TOO_MUCH, OwnFile, findings_in, too_much
from mini_dnn.checking.steps import step_place
from mini_dnn.device.base import Defines
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.device.nvcc import compiled, find_nvcc, nvcc_arch
from mini_dnn.device.sources import read_source, source_files
from mini_dnn.errors import CompileError
from mini_dnn.variant import Planned, ceil_div
from mini_dnn.variant.plan import CopyToSymbol, Launch
from mini_dnn.variant.signatures import Kernels

CONSTANT_BYTES = 64 * 1024  # CUDA C++ Programming Guide, technical specifications; the same for all GPUs
REGISTERS = 64 * 1024  # of a block; same source
UNIT = 256  # registers are allocated to a warp in these units
WARP = 32

COMPILED = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'(?:.*\n)*?.*?Used (?P<registers>\d+) registers"
)


@dataclass(frozen=True)
class Verdict:
    """The verdict of a CUDA compiler on a kernel file with some definitions, or what is known of it."""

    defines: Defines = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    registers: Mapping[str, int] = field(default_factory=dict)  # per thread, by kernel; empty if unknown
    constants: Mapping[str, Place] = field(default_factory=dict)  # the declarations of __constant__ variables
    # Number of threads, by kernel
    bounds: Mapping[str, tuple[int, Place | None]] = field(default_factory=dict)
    too_many_constants: Finding | None = None  # reported by nvcc, without a place


def verdict(source: Path, defines: Defines, arch: int, words: Callable[[], str], ask: bool) -> Verdict:
    """Judge a kernel file like a CUDA compiler.

    Parameters
    ----------
    arch
        Compute capability times ten.
    words
        Returns the preprocessed file, which still contains CUDA's qualifiers.
    ask
        Whether to run nvcc, if it is installed.
    """
    try:
        declared = read(words())
    except (CompileError, RecursionError):
        return Verdict(defines)  # g++ reports it as well
    own = OwnFile(source, declared)
    bounds = {kernel: (most, own.place(at)) for kernel, (most, at) in declared.bounds.items()}
    constants = {name: place for name, at in declared.constants.items() if (place := own.place(at))}
    known = Verdict(defines, constants=constants, bounds=bounds)
    nvcc = find_nvcc() if ask else None
    output = compiled(nvcc, source, defines, nvcc_arch(arch)) if nvcc else None
    if output is None or not output.is_about_file:
        return replace(known, findings=tuple(own.finding(use) for use in declared.uses))
    said = output.said
    registers = {m["kernel"]: int(m["registers"]) for m in COMPILED.finditer(said)}
    of_file = next((too_much(m, own) for m in TOO_MUCH.finditer(said) if not m["kernel"]), None)
    findings = tuple(findings_in(said, own))
    return replace(known, findings=findings, registers=registers, too_many_constants=of_file)


def with_defines(known: Verdict, source: Path, words: Callable[[], str]) -> Verdict:
    """The verdict for other definitions than those of the first inspection.

    Registers are then unknown, and launch bounds may differ.
    """
    texts = (read_source(path) for path in source_files(source))
    if not any("__launch_bounds__" in text for text in texts):
        return replace(known, registers={})
    own = verdict(source, {}, 0, words, ask=False)
    return replace(known, registers={}, bounds=own.bounds)


def check_limits(planned: Planned, verdict: Verdict, variable_bytes: Mapping[str, int]) -> Finding | None:
    """The finding about a plan's copies to variables or about its blocks, before any thread runs.

    Parameters
    ----------
    variable_bytes
        The size of each ``__constant__`` or ``__device__`` variable of the compiled file.
    """
    constant_bytes = {name: variable_bytes.get(name, 0) for name in verdict.constants}
    if sum(constant_bytes.values()) > CONSTANT_BYTES:
        return _too_many_constants(verdict, constant_bytes)
    if verdict.too_many_constants:
        return verdict.too_many_constants
    for step in (*planned.setup, *planned.steps):
        finding = None
        if isinstance(step, CopyToSymbol):
            finding = _copy(planned, step, verdict, variable_bytes.get(step.symbol, 0))
        elif isinstance(step, Launch) and not step.code:
            finding = _bounds(planned, step, verdict) or _registers(planned, step, verdict)
        if finding:
            return finding
    return None


def _too_many_constants(verdict: Verdict, constant_bytes: Mapping[str, int]) -> Finding:
    largest = max(constant_bytes, key=lambda name: constant_bytes[name])
    total = sum(constant_bytes.values())
    has = (
        f"{largest} has {total:,} bytes"
        if len(constant_bytes) == 1
        else (
            f"the __constant__ variables of the file have {total:,} bytes, of which {largest} "
            f"has {constant_bytes[largest]:,}"
        )
    )
    own = Party(verdict.constants.get(largest), (), ())
    what = f"{has}; a GPU has {CONSTANT_BYTES:,} (64 KB) of constant memory"
    return Finding("launch", what, own=own, array=largest, cure=CURES["constant"])


def _copy(planned: Planned, step: CopyToSymbol, verdict: Verdict, has: int) -> Finding | None:
    array = planned.arrays.get(step.buffer)
    if array is None or array.nbytes <= has:
        return None
    own = Party(step_place(planned.source, step), (), (), write=True)
    declared = verdict.constants.get(step.symbol)
    other = Party(declared, (), ()) if declared else None
    if not has:
        what = f"there is no variable {step.symbol} in {planned.source.name} to copy to"
        return Finding(
            "launch", what, own=own if own.place else None, array=step.symbol, cure=CURES["symbol"]
        )
    what = (
        f"the copy of {step.buffer}, {array.nbytes:,} bytes, does not fit in the variable {step.symbol}, "
        f"which has {has:,}"
    )
    return Finding("launch", what, "", own if own.place else other, step.symbol, other, CURES["small"])


def _bounds(planned: Planned, launch: Launch, verdict: Verdict) -> Finding | None:
    most, declared = verdict.bounds.get(launch.kernel, (0, None))
    threads = _threads(launch)
    if not most or threads <= most:
        return None
    what = (
        f"{launch.kernel} is declared __launch_bounds__({most}), but is launched with {threads:,} "
        f"threads per "
        "block: a GPU refuses the launch"
    )
    other = Party(declared, (), ()) if declared else None
    return Finding("launch", what, launch.kernel, _launched(planned, launch), "", other, CURES["bounds"])


def _registers(planned: Planned, launch: Launch, verdict: Verdict) -> Finding | None:
    each = verdict.registers.get(launch.kernel, 0)
    warps = ceil_div(_threads(launch), WARP)
    all_of_them = warps * ceil_div(each * WARP, UNIT) * UNIT
    if all_of_them <= REGISTERS:
        return None
    what = (
        f"{launch.kernel} uses {each} registers per thread, {all_of_them:,} for a block of "
        f"{_threads(launch):,} threads; a GPU has {REGISTERS:,} per block and refuses the launch"
    )
    signature = Kernels(planned.source).signatures.get(launch.kernel)
    other = Party(signature.place, (), ()) if signature else None
    return Finding("launch", what, launch.kernel, _launched(planned, launch), "", other, CURES["registers"])


def _launched(planned: Planned, launch: Launch) -> Party | None:
    place = step_place(planned.source, launch)
    return Party(place, (), ()) if place else None


def _threads(launch: Launch) -> int:
    threads = 1
    for side in launch.block:
        threads *= side
    return threads
