"""What a CUDA compiler and a GPU refuse, and g++ takes: asked of nvcc where there is one, else looked for."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mini_dnn.checking.host_code import HOST_LIBRARY, HOST_STD, Declared, Token, Use, read
from mini_dnn.checking.steps import step_place
from mini_dnn.device.base import Defines
from mini_dnn.device.cache import cache_dir, key, may_compile, store, stored
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.device.nvcc import ERROR_LINE, OPTIONS, find_nvcc, nvcc_arch
from mini_dnn.device.sources import INCLUDE, source_files, source_hash
from mini_dnn.errors import CompileError
from mini_dnn.variant import Planned, ceil_div
from mini_dnn.variant.plan import CopyToSymbol, Launch
from mini_dnn.variant.signatures import Kernels

CONSTANT_BYTES = 64 * 1024  # CUDA C++ Programming Guide, technical specifications: of all GPUs
REGISTERS = 64 * 1024  # of a block; likewise
UNIT = 256  # registers that a warp is given at a time
WARP = 32

CURES = {
    "call": "declare it __device__, or __host__ __device__ if the host also calls it",
    "library": "kernels can use the functions of math.h, printf, malloc and assert; write others "
    "yourself; max(a, b) and min(a, b) are available without std::",
    "variable": "declare it constexpr if its value never changes; otherwise declare it __constant__ or "
    "__device__ and fill it with a CopyToSymbol, or pass it to the kernel as an argument",
    "nvcc": "correct this line; if g++, which compiles for the emulator, accepts it, it is not CUDA C++",
    "constant": "use a buffer, which the kernel gets as const float* __restrict__, or copy it in parts "
    "that fit: all __constant__ variables of a file share 64 KB",
    "small": "make the variable as large as the copy, or copy a buffer that fits; if this "
    "depends on the problem, refuse the problems that do not fit with refuses=",
    "symbol": "declare it __constant__ or __device__ in kernel.cu, outside any namespace, with the same name",
    "registers": "use a smaller block, or declare the kernel __launch_bounds__(threads), so that nvcc limits "
    "the registers; or keep fewer values at a time",
    "bounds": "launch at most as many threads, or declare __launch_bounds__ for the largest block",
    "shared": "use smaller tiles, or declare one extern __shared__ array and launch with shared_bytes",
}
CALLED = re.compile(
    r"calling a (?:constexpr )?__host__ function\(\"(?P<name>.*?)\"\) "
    r"from a __\w+__ function\(\"(?P<by>.*?)\"\)"
)
UNDEFINED = re.compile(r"identifier \"(?P<name>.*?)\" is undefined in device code")
HOST_VARIABLE = re.compile(r"a host variable \"(?P<name>.*?)\" cannot be")
TOO_MUCH = re.compile(
    r"ptxas error *: (?:Entry function '(?P<kernel>\w+)'|File) uses too much (?P<what>[\w ]+?) "
    r"(?:data )?\(0x(?P<has>[0-9a-f]+) bytes, 0x(?P<most>[0-9a-f]+) max\)"
)
COMPILED = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'(?:.*\n)*?.*?Used (?P<registers>\d+) registers"
)


@dataclass(frozen=True)
class Verdict:
    """What a CUDA compiler says of a kernel file with some definitions, or would say."""

    defines: Defines = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    registers: Mapping[str, int] = field(default_factory=dict)  # of a thread, by kernel; empty: unknown
    constants: Mapping[str, Place] = field(default_factory=dict)  # where __constant__ variables are declared
    bounds: Mapping[str, tuple[int, Place | None]] = field(default_factory=dict)  # of threads, by kernel
    too_many_constants: Finding | None = None  # says nvcc, which does not say where


def verdict(source: Path, defines: Defines, arch: int, words: Callable[[], str], ask: bool) -> Verdict:
    """Look at a kernel file as CUDA's compiler does.

    Parameters
    ----------
    arch
        Compute capability times ten.
    words
        Gives the file after its macros, with CUDA's qualifiers in it.
    ask
        Ask nvcc, if it is there.
    """
    try:
        declared = read(words())
    except (CompileError, RecursionError):
        return Verdict(defines)  # g++ says so, too
    own = _Own(source, declared)
    bounds = {kernel: (most, own.place(at)) for kernel, (most, at) in declared.bounds.items()}
    constants = {name: place for name, at in declared.constants.items() if (place := own.place(at))}
    known = Verdict(defines, constants=constants, bounds=bounds)
    said = _ask_nvcc(source, defines, arch) if ask else None
    if said is None:
        return replace(known, findings=tuple(own.finding(use) for use in declared.uses))
    registers = {m["kernel"]: int(m["registers"]) for m in COMPILED.finditer(said)}
    of_file = next((_too_much(m, own) for m in TOO_MUCH.finditer(said) if not m["kernel"]), None)
    findings = tuple(_told(said, own))
    return replace(known, findings=findings, registers=registers, too_many_constants=of_file)


def with_defines(known: Verdict, source: Path, words: Callable[[], str]) -> Verdict:
    """The verdict of a file for other definitions than those that it was looked at with.

    Registers are unknown then, and launch bounds may be others.
    """
    texts = (path.read_text(errors="replace") for path in source_files(source))
    if not any("__launch_bounds__" in text for text in texts):
        return replace(known, registers={})
    own = verdict(source, {}, 0, words, ask=False)
    return replace(known, registers={}, bounds=own.bounds)


def check_limits(planned: Planned, verdict: Verdict, variable_bytes: Mapping[str, int]) -> Finding | None:
    """What is wrong with a plan's copies to variables, and with its blocks, before any thread has run.

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


def _ask_nvcc(source: Path, defines: Defines, arch: int) -> str | None:
    """What nvcc says of a file, good or bad; None where there is none, or it cannot say."""
    nvcc = find_nvcc()
    if nvcc is None:
        return None
    flags = [*OPTIONS, f"-arch={nvcc_arch(arch)}", *(f"-D{name}={value}" for name, value in defines.items())]
    stamp = nvcc.resolve().stat()
    name = key(
        source_hash(source), *flags, str(nvcc), stamp.st_mtime_ns, stamp.st_size, str(source.resolve())
    )
    cached = cache_dir() / "nvcc" / f"{source.parent.name}-{name}.txt"
    if (known := stored(cached)) is not None:
        return known.decode()
    may_compile(source)
    command = [
        str(nvcc),
        "-cubin",
        "-Xptxas",
        "-v",
        f"-I{INCLUDE}",
        *flags,
        str(source.resolve()),
        "-o",
        "/dev/null",
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = done.stdout + done.stderr
    if done.returncode and not (TOO_MUCH.search(said) or _errors(said)):
        return None  # no fault of the file: it does not know the architecture, or has no room
    store(cached, said.encode())
    return said


def _errors(said: str) -> list[tuple[str, int, str]]:
    """File, line and words of each error."""
    return [
        (match["file"], int(match["line"]), line.partition("error: ")[2].strip())
        for line in said.splitlines()
        if (match := ERROR_LINE.match(line)) and "error: " in line
    ]


@dataclass(frozen=True)
class _Own:
    """The kernel file, for the words of findings."""

    source: Path
    declared: Declared

    def place(self, token: Token | None) -> Place | None:
        return Place.at(self.source, token.file, token.line) if token else None

    def finding(self, use: Use) -> Finding:
        """A name of the host in code of a GPU."""
        own, declared = self.place(use.at), self.place(use.declared)
        if use.is_call and use.declared is None and _in_library(use.name):
            what, cure = f"{use.kernel} calls {use.name}, which is only available on the host", "library"
        elif use.is_call:
            what = f"{use.kernel} calls {use.name}, a function without __device__, which a GPU cannot call"
            cure = "call"
        else:
            what = f"{use.kernel} uses {use.name}, a host variable, which a GPU cannot access"
            cure = "variable"
        other = Party(declared, (), ()) if declared else None
        return Finding("compile", what, use.kernel, Party(own, (), ()), use.name, other, CURES[cure])


def _told(said: str, own: _Own) -> list[Finding]:
    """The errors of nvcc, one for each name that it is about, each with its first line."""
    found: dict[str, Finding] = {}
    for match in TOO_MUCH.finditer(said):
        if match["kernel"]:
            found.setdefault(match["what"], _too_much(match, own))
    known = {use.name.rpartition("::")[2]: use for use in own.declared.uses}
    for file, line, words in _errors(said):
        place = Place.at(own.source, file, line)
        called, undefined = CALLED.search(words), UNDEFINED.search(words)
        name = _plain((called or undefined or {"name": words})["name"])
        if name in found or place is None:
            continue
        at = Token(name, place.file, line)
        if name in known:
            found[name] = own.finding(known[name])
        elif called or undefined:
            by = called["by"] if called else "a kernel"
            found[name] = own.finding(Use(name, by, at, own.declared.host.get(name), is_call=bool(called)))
        else:
            what = f"nvcc rejects it: {words}"
            found[name] = Finding("compile", what, own=Party(place, (), ()), cure=CURES["nvcc"])
    if _errors(said):  # nvcc ends at the first kind of mistake that it meets
        for name, use in known.items():
            found.setdefault(name, own.finding(use))
    return list(found.values())


def _too_much(match: re.Match[str], own: _Own) -> Finding:
    has, most = int(match["has"], 16), int(match["most"], 16)
    if match["kernel"]:
        signature = Kernels(own.source).signatures.get(match["kernel"])
        party = Party(signature.place, (), ()) if signature else None
        what = f"{match['kernel']} has {has:,} bytes of {match['what']} memory; nvcc allows {most:,}"
        return Finding("launch", what, match["kernel"], party, cure=CURES["shared"])
    name, at = next(iter(own.declared.constants.items()), ("", None))
    what = f"the file has {has:,} bytes of {match['what']} memory; nvcc allows {most:,}"
    return Finding("launch", what, "", Party(own.place(at), (), ()), name, cure=CURES["constant"])


def _in_library(name: str) -> bool:
    return name in HOST_LIBRARY or name.removeprefix("std::") in HOST_STD


def _plain(name: str) -> str:
    """``"get"`` of ``"S::get() const"``, and ``"twice"`` of ``"T1  ::twice<float> (T1)"``."""
    while name != (name := re.sub(r"<[^<>]*>", "", name)):
        pass
    head = name.strip().partition("(")[0]
    return re.sub(r"\s*const$", "", head).strip().rpartition("::")[2].strip() or name
