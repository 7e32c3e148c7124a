"""The text of a finding: one statement, the places in the source, and the usual fix."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from itertools import takewhile
from math import prod
from pathlib import Path

from mini_dnn.device.cures import CURES, FREED, HARMLESS, READ_ONLY, STACK
from mini_dnn.device.sources import read_source, source_files

FAR = 1 << 34  # bytes that a 32-bit index of floats can reach


@dataclass(frozen=True)
class Place:
    """A line of a kernel file."""

    file: str
    line: int
    code: str

    @classmethod
    def at(cls, source: Path, file: str, line: int) -> Place | None:
        """Return the line if the file belongs to the kernel."""
        names = shown_names(source)
        same = [path for path in names if path.name == Path(file).name]
        if not same:
            return None
        # A compiled file from the cache may have been that of another checkout
        path = max(same, key=lambda path: _alike(path, Path(file)))
        code = read_source(path).splitlines()
        return cls(names[path], line, code[line - 1].strip() if 0 < line <= len(code) else "")


def shown_names(source: Path) -> dict[Path, str]:
    """The names of the kernel's files in messages, which are unique.

    They are without folders, except for files that have the name of another one.
    """
    names: dict[Path, str] = {}
    for path in source_files(source):
        taken = path.name in names.values()
        names[path] = os.path.relpath(path, source.resolve().parent) if taken else path.name
    return names


def _alike(path: Path, other: Path) -> int:
    """The number of equal parts at the ends of two paths."""
    pairs = zip(reversed(path.parts), reversed(other.parts), strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))


@dataclass(frozen=True)
class Party:
    """A thread, what it did, and where."""

    place: Place | None
    block: tuple[int, ...]
    thread: tuple[int, ...]
    warp: int = 0
    write: bool = False
    atomic: bool = False

    @property
    def does(self) -> str:
        """``"writes"`` or ``"reads"``."""
        return "updates" if self.atomic else "writes" if self.write else "reads"


@dataclass(frozen=True)
class Finding:
    """One mistake, reported once."""

    kind: str
    what: str
    kernel: str = ""
    own: Party | None = None
    array: str = ""  # including the index: "w_tile[3][16]"
    other: Party | None = None
    cure: str = ""
    notes: tuple[str, ...] = field(default=())
    memory: str = ""  # of the array, as in `Target`
    effects: tuple[Finding, ...] = ()  # further findings with the same cause

    @property
    def place(self) -> Place | None:
        """The line that a student should look at first."""
        return self.own.place if self.own else None


@dataclass(frozen=True)
class Target:
    """The array that an access is about, or the one closest to the access."""

    name: str
    memory: str  # "global", "constant or device", "shared", "heap"
    shape: tuple[int, ...]
    itemsize: int
    axes: str = ""  # one letter per axis if the problem has them
    line: int = 0  # for heap memory: the line that allocated it

    def index(self, offset: int) -> str:
        """Format an offset in bytes: ``x[n=0, c=1, h=2, w=9]``, ``tile[3][16]`` or ``x[-21]``."""
        flat = offset // self.itemsize
        # The kernel did not mean any (n, c, h, w)
        if self.memory == "global" and not 0 <= flat < 2 * prod(self.shape):
            return f"{self.name}[{flat}]"
        sides = []
        for side in reversed(self.shape[1:]):
            sides.append(flat % side)
            flat //= side
        values = [flat, *reversed(sides)]
        if self.memory == "global":
            if len(self.axes) == len(values):
                return f"{self.name}[{', '.join(f'{n}={v}' for n, v in zip(self.axes, values, strict=True))}]"
            return f"{self.name}[{', '.join(map(str, values))}]"
        return self.name + "".join(f"[{v}]" for v in values)

    def __str__(self) -> str:
        """Describe the array with its kind and shape."""
        if self.memory == "heap":
            return f"the {prod(self.shape) * self.itemsize} bytes that line {self.line} allocates"
        shape = "x".join(map(str, self.shape)) if self.memory == "shared" else str(self.shape)
        return f"{self.memory} array {self.name} {shape}".rstrip()


@dataclass(frozen=True)
class Fault:
    """An access at which checked mode stopped."""

    kind: str
    kernel: str
    own: Party
    other: Party
    array: Target
    offset: int
    nbytes: int
    exited: int  # threads of the block that had returned at its last barrier
    subscript: int | None  # for an array whose size C++ knows
    type: str
    home: tuple[int, ...] = ()  # the block that owns the shared memory of the array
    # For a race: "same value", or how the value was read; otherwise "local": a variable of the thread
    detail: str = ""


def explain_fault(fault: Fault) -> Finding:
    """Return the finding for a student."""
    make = {
        "out-of-bounds": _out_of_bounds,
        "race": _race,
        "uninitialised": _uninitialised,
        "misaligned": _misaligned,
        "fault": lambda f: Finding(f.kind, f.type, f.kernel, f.own, cure=CURES["unreachable"]),
        "undefined": _undefined,
    }
    found = make[fault.kind](fault)
    return replace(
        found, memory=fault.array.memory if found.array.startswith(fault.array.name or "\0") else ""
    )


def _out_of_bounds(f: Fault) -> Finding:
    if f.subscript is not None:
        side = re.search(r"\[(\d+)\]", f.type)
        last = f" (0 to {int(side[1]) - 1})" if side else ""
        what = f"index {f.subscript} is outside an array declared as {f.type}{last}"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES[f.kind])
    if f.detail in STACK:
        verb = "writes" if f.own.write else "reads"
        what = f"a thread {verb} {f.nbytes} bytes {STACK[f.detail]}"
        if f.detail == "way back" and f.other.place:
            what += f" (called in line {f.other.place.line})"
        return Finding(f.kind, what, f.kernel, f.own, "local variable", cure=CURES["stack"])
    if f.detail == "no function":
        what = "call by a pointer that leads to no function of the kernel file"
        return Finding(f.kind, what, f.kernel, f.own, "pointer to a function", cure=CURES["no function"])
    if f.detail in FREED:
        what = FREED[f.detail].format(verb=f.own.does, index=f.array.index(f.offset), array=f.array)
        return Finding(f.kind, what, f.kernel, f.own, "heap memory", f.other, CURES[f.detail])
    if f.detail == "local":
        what = f"access to a {f.type} beyond the end of a thread's own variable"
        if f.nbytes:  # a copy
            verb = "writes" if f.own.write else "reads"
            what = f"{f.type} {verb} {f.nbytes} bytes where a thread's own variable has {f.offset} bytes left"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES[f.kind])
    count = prod(f.array.shape)
    end = count * f.array.itemsize
    # A range that begins inside exceeds the array only at its end
    offset = max(f.offset, end) if f.offset >= 0 else f.offset
    flat = offset // f.array.itemsize
    verb = "update" if f.own.atomic else "write" if f.own.write else "read"
    if not f.array.memory or abs(f.offset) > FAR:
        what = f"{verb} at an address that is neither in nor near any array"
        return Finding(f.kind, what, f.kernel, f.own, cure=CURES["fault"])
    index = f.array.index(offset)
    where = f"{-flat} elements before its start" if flat < 0 else f"element {flat} of {count}"
    what = f"{verb} of {index}: outside {f.array}, {where}"
    wrapped = flat < 0 <= flat + (1 << 32) < count
    cure = "32 bits" if wrapped else "shared" if f.array.memory == "shared" else f.kind
    return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES[cure])


def _race(f: Fault) -> Finding:
    index = f.array.index(f.offset)
    where = f"{index} of {f.array}"
    if f.detail in READ_ONLY:
        what = f"read of {where} {READ_ONLY[f.detail]}, although this launch has written it"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES["read only"])
    if f.detail == "ahead":
        what = f"{f.kernel} {f.own.does} {where}, which {f.type} {f.other.does}, before ptx::grid_wait(): "
        what += f"the launch is early, and that of {f.type} may still run"
        return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES["ahead"])
    if f.detail == "copied" and f.array.memory == "shared":
        access = "write" if f.other.write else "read"
        what = f"a copy of {f.nbytes} bytes to {where} starts, and nothing orders it after another "
        what += f"thread's {access} of these bytes"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES["copy race"])
    if f.own.block != f.other.block and f.array.memory == "shared":
        cure, between = "cluster race", "without a cluster barrier between them that orders memory"
        where += f" in block {f.home}"
    elif f.own.block != f.other.block:
        cure, between = "block race", "and nothing orders the two blocks"
    elif f.own.write and f.other.write and f.array.memory == "global":
        cure, between = "same element", "and nothing orders them"
    elif f.own.write and f.other.write and f.own.place != f.other.place:
        cure, between = "overlap", "without a __syncthreads() between them"
    elif f.own.warp == f.other.warp and f.array.memory == "shared":
        cure, between = "warp race", "without a __syncwarp() or __syncthreads() between them"
    else:
        cure, between = "race", "without a __syncthreads() between them"
    what = f"one thread {f.other.does} and another {f.own.does} {where}, {between}"
    if f.detail == "same value":
        what = f"two threads write {where}, {between}; both write the same value"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES["same value"], (HARMLESS,))
    return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES[cure])


def _uninitialised(f: Fault) -> Finding:
    if not f.array.name and f.type:
        what = f"use of a {f.type} that was never initialised: its value is undefined"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES["unset"])
    index = f.array.index(f.offset)
    by = "no thread of the block has" if f.array.memory == "shared" else "nothing has"
    what = f"read of {index} of {f.array}, which {by} written"
    notes: tuple[str, ...] = ()
    if f.array.memory == "shared" and f.exited:
        notes = (
            f"{f.exited} threads of the block had returned before: the elements that they should load are "
            "missing",
        )
    return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES[f.kind], notes=notes)


def _undefined(f: Fault) -> Finding:
    cure = CURES["shift" if f.type.startswith("a shift") else "conversion"]
    return Finding(f.kind, f.type, f.kernel, f.own, cure=cure)


def _misaligned(f: Fault) -> Finding:
    if f.type == "WMMA pitch":
        what = (
            f"the leading dimension of a WMMA tile is {f.offset} bytes; it must be a multiple of {f.nbytes}"
        )
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES["pitch"])
    what = f"access to a {f.type} at an address that is {f.offset} past a multiple of {f.nbytes} bytes"
    return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES[f.kind])
