"""Information from a checked kernel library: its variables, and the source line of an address."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

from mini_dnn.device.emulator.runtime_build import INCLUDE
from mini_dnn.errors import DeviceError

SYMBOL = re.compile(
    r"^ *\d+: (?P<value>[0-9a-f]+) +(?P<size>\d+|0x[0-9a-f]+) (?P<type>TLS|OBJECT) +\w+ +\w+ +\d+ "
    r"(?P<name>\S+)$",
    re.MULTILINE,
)
LOAD = re.compile(r"^ +LOAD +\S+ +0x(?P<start>[0-9a-f]+) +\S+ +\S+ +0x(?P<size>[0-9a-f]+) +RW", re.MULTILINE)
# Sections that only the loader writes: tables of virtual functions, constants with addresses
FIXED = re.compile(
    r"^ +GNU_RELRO +\S+ +0x(?P<start>[0-9a-f]+) +\S+ +\S+ +0x(?P<size>[0-9a-f]+)", re.MULTILINE
)
ANCHOR = "_ZL20emulator_anchor_byte"
GUARD = ("_ZGV", "_ZTH", "__tls_guard")
DYNAMIC = "emulator_dynamic_shared"
OWN = re.compile(r"emulator_|_Z(?:TI|TS|TV|GV|N8emulator|L\d+emulator)|DW\.|_(?!Z)|completed\.")


@dataclass(frozen=True)
class Variable:
    """A variable of a kernel library."""

    name: str  # as in the source
    offset: int  # from the anchor for shared arrays, otherwise from the beginning of the library
    nbytes: int  # -1 for dynamic shared memory
    is_array: bool = True  # False for the compiler's own flag of whether one is initialised


@dataclass(frozen=True)
class Symbols:
    """The variables of a kernel library."""

    shared: tuple[Variable, ...]
    variables: tuple[Variable, ...]  # __constant__ and __device__
    data: tuple[int, int]  # their range, relative to the beginning of the library


@cache
def _tool(name: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise DeviceError(f"checked mode needs {name}, which was not found; install binutils, which has it")
    return path


def _output(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C"}  # binutils translate their output
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, env=environment
    )
    if done.returncode:
        raise DeviceError(f"{' '.join(command[:2])} failed: {done.stderr.strip()}")
    return done.stdout


def read_symbols(library: Path) -> Symbols:
    """Read the variables of a library that was built for checked mode."""
    text = _output(_tool("readelf"), "-sWl", str(library))
    found = {match["name"]: match for match in SYMBOL.finditer(text.partition("'.symtab'")[2])}
    anchor = int(found[ANCHOR]["value"], 16)
    shared, variables = [], []
    for name, match in found.items():
        value, size = int(match["value"], 16), _size(match)
        if match["type"] == "TLS" and name == DYNAMIC:
            shared.append(Variable("", value - anchor, -1))
        elif match["type"] == "TLS" and size and name != ANCHOR:
            shared.append(Variable(plain_name(name), value - anchor, size, not name.startswith(GUARD)))
        elif match["type"] == "OBJECT" and size and not OWN.match(name):
            variables.append(Variable(plain_name(name), value, size))
    return Symbols(tuple(shared), tuple(variables), _data(text))


def _data(text: str) -> tuple[int, int]:
    """The range that is writable after loading, from the output of readelf."""
    spans = [(int(m["start"], 16), int(m["size"], 16)) for m in LOAD.finditer(text)]
    if not spans:
        return 0, 0
    start = min(s for s, _ in spans)
    fixed = {int(m["start"], 16): int(m["size"], 16) for m in FIXED.finditer(text)}
    return start + fixed.get(start, 0), max(s + n for s, n in spans)


def static_shared_bytes(library: Path, kernel: str) -> int:
    """The bytes of the arrays that a kernel declares: thread-local symbols that are named after it."""
    text = _output(_tool("readelf"), "-sWl", str(library)).partition("'.symtab'")[2]
    own = f"_ZZ{len(kernel)}{kernel}E"
    arrays = {m["name"]: m for m in SYMBOL.finditer(text) if m["type"] == "TLS" and m["name"].startswith(own)}
    return sum(map(_size, arrays.values()))


def _size(symbol: re.Match[str]) -> int:
    """The size of a symbol in bytes, which readelf prints in hexadecimal from 100,000 on."""
    return int(symbol["size"], 0)


def plain_name(symbol: str) -> str:
    """The last name in a mangled name: ``"w_tile"`` for ``"_ZZ4gemmE6w_tile"``."""
    if not symbol.startswith("_Z"):
        return symbol
    demangled = _output(_tool("c++filt"), symbol).strip()
    return re.sub(r"\[abi:.*|\(.*?\)(?=::)", "", demangled).rpartition("::")[2]


def source_lines(library: Path, addresses: Sequence[int]) -> list[tuple[str, int]]:
    """Return file and line in the kernel's code for each address. In a header, it is the line of the call."""
    if not addresses:
        return []
    text = _output(
        _tool("addr2line"), "-a", "-i", "-e", str(library), *(hex(max(a - 1, 0)) for a in addresses)
    )
    places = []
    for part in re.split(r"^0x[0-9a-f]+\n", text, flags=re.MULTILINE)[1:]:
        frames = re.findall(r"^(.*):(\d+|\?)(?: \(.*\))?$", part, re.MULTILINE)
        own = [
            (file, int(line))
            for file, line in frames
            if line.isdigit() and int(line) and not file.startswith(str(INCLUDE))
        ]
        places.append(own[0] if own else ("", 0))
    return places


Entry = tuple[str, str, dict[str, str]]  # of debugging information: where it is, its tag and its attributes
ENTRY = re.compile(
    r"^ *<\d+><(?P<at>[0-9a-f]+)>: Abbrev Number: \d+ \(DW_TAG_(?P<tag>\w+)\)\n(?P<body>(?:    <.*\n)*)",
    re.MULTILINE,
)
ATTRIBUTE = re.compile(r"^    <[0-9a-f]+> +DW_AT_(\w+) *: (?:\([^)]*\):? ?)?(.*?)\s*$", re.MULTILINE)


def declared(library: Path, name: str, nbytes: int) -> tuple[tuple[int, ...], int]:
    """Return the shape, and the bytes per element, of an array, from the debugging information.

    Parameters
    ----------
    nbytes
        Its size. For an array without bounds (dynamic shared memory), the size given at the launch.
    """
    text = _output(_tool("readelf"), "--debug-dump=info", str(library))
    entries = [(m["at"], m["tag"], dict(ATTRIBUTE.findall(m["body"]))) for m in ENTRY.finditer(text)]
    order = {at: i for i, (at, _, _) in enumerate(entries)}
    # Variables of other functions, also of headers, may have the same name
    found = [
        _type_of(a["type"], entries, order)
        for _, tag, a in entries
        if tag == "variable" and a.get("name") == name and "type" in a
    ]
    for shape, size in found:
        if prod(shape) * size == nbytes:
            return shape, size
    found.sort(key=lambda one: one[0][:1] != (0,))  # without bounds
    size = next((size for _, size in found if size), 1)
    return (nbytes // size,), size


def _type_of(start: str, entries: Sequence[Entry], order: Mapping[str, int]) -> tuple[tuple[int, ...], int]:
    """The sides of a type's array, and the bytes of an element; 0 bytes if they are not known."""
    shape: list[int] = []
    while start.strip("<>0x") and (at := start.strip("<>").removeprefix("0x")) in order:
        i = order[at]
        _, tag, attributes = entries[i]
        if tag == "array_type":
            for _, child, bound in entries[i + 1 :]:
                if child != "subrange_type":
                    break
                count = int(bound.get("count", "0"), 0)  # clang++ has the count, g++ the last index
                shape.append(count or int(bound.get("upper_bound", "-1"), 0) + 1)
        elif "byte_size" in attributes:
            return tuple(shape), int(attributes["byte_size"], 0)
        start = attributes.get("type", "")
    return tuple(shape), 0
