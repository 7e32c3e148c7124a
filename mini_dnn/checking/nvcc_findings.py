"""Findings from the messages of nvcc, and from host names in code for a GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.checking.host_code import HOST_LIBRARY, HOST_STD, Declared, Use
from mini_dnn.checking.tokens import Token
from mini_dnn.device.finding import Finding, Party, Place
from mini_dnn.device.nvcc import ERROR_LINE
from mini_dnn.variant.signatures import Kernels

CURES = {
    "call": "declare it __device__, or __host__ __device__ if the host also calls it",
    "library": "kernels can use the functions of math.h, printf, malloc and assert; write others "
    "yourself; max(a, b) and min(a, b) are available without std::",
    "variable": "declare it constexpr if its value never changes; otherwise declare it __constant__ or "
    "__device__ and fill it with a CopyToSymbol, or pass it to the kernel as an argument",
    "nvcc": "correct this line or the end of the one before; if g++, which compiles for the emulator, "
    "accepts it, it is not CUDA C++",
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
TOO_MUCH = re.compile(
    r"ptxas error *: (?:Entry function '(?P<kernel>\w+)'|File) uses too much (?P<what>[\w ]+?) "
    r"(?:data )?\(0x(?P<has>[0-9a-f]+) bytes, 0x(?P<most>[0-9a-f]+) max\)"
)


def errors_in(said: str) -> list[tuple[str, int, str]]:
    """The file, line and message of each error."""
    return [
        (match["file"], int(match["line"]), line.partition("error: ")[2].strip())
        for line in said.splitlines()
        if (match := ERROR_LINE.match(line)) and "error: " in line
    ]


@dataclass(frozen=True)
class OwnFile:
    """The kernel file, for the texts of findings."""

    source: Path
    declared: Declared

    def place(self, token: Token | None) -> Place | None:
        """The place of a word."""
        return Place.at(self.source, token.file, token.line) if token else None

    def finding(self, use: Use) -> Finding:
        """Return the finding about a host name in code for a GPU."""
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


def findings_in(said: str, own: OwnFile) -> list[Finding]:
    """Return nvcc's errors, one for each name, with the first line that uses it."""
    found: dict[str, Finding] = {}
    for match in TOO_MUCH.finditer(said):
        if match["kernel"]:
            found.setdefault(match["what"], too_much(match, own))
    known = {use.name.rpartition("::")[2]: use for use in own.declared.uses}
    for file, line, words in errors_in(said):
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
    if errors_in(said):  # nvcc stops at the first kind of mistake
        for name, use in known.items():
            found.setdefault(name, own.finding(use))
    return list(found.values())


def too_much(match: re.Match[str], own: OwnFile) -> Finding:
    """Return the finding about too much memory of a kind in a kernel or a file."""
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
    """The simple name: ``"get"`` in ``"S::get() const"``, ``"twice"`` in ``"T1  ::twice<float> (T1)"``."""
    while name != (name := re.sub(r"<[^<>]*>", "", name)):
        pass
    head = name.strip().partition("(")[0]
    return re.sub(r"\s*const$", "", head).strip().rpartition("::")[2].strip() or name
