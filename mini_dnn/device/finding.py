"""The words of a finding: one statement, the places in the source, and the usual cure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from mini_dnn.device.sources import source_files

FAR = 1 << 34  # bytes: what a 32-bit index of floats reaches

CURES = {
    "out-of-bounds": "guard the access with the bounds of the array (if (p < P && q < Q) ...), "
    "or size the array for the largest index, halo included",
    "race": "put a __syncthreads() between the two: after a tile is filled and before it is read, "
    "and again before it is filled anew",
    "warp race": "put a __syncthreads() between the two, or a __syncwarp() if the array is this warp's "
    "alone: lanes of a warp do not run in step, and see a WMMA store only after it",
    "same element": "each element needs a thread of its own: check the index, and that threads past the end "
    "return (if (pixel >= P * Q) return;)",
    "overlap": "put a __syncthreads() between the two, if both mean this element; if not, two arrays overlap "
    "in shared memory: check where each begins, and how large it is, halo included",
    "read only": "the read-only cache need not see writes of the same launch: read by a plain pointer "
    "(no __ldg, no __restrict__) after the barrier or fence between, or write to another buffer",
    "same value": "let one thread write it (if (threadIdx.x == 0)), or use an atomic (atomicExch, atomicOr)",
    "cluster race": "put a cluster_sync() between the two: before others use what a block has written, and "
    "again before it is written anew; relaxed arrivals order no writes: they only tell a block that waits "
    "for them that it may write again what others have read",
    "block race": "let each block write elements of its own (check the grid and the index), "
    "or use atomicAdd where sums of several blocks meet; to hand a value over, write it, call "
    "__threadfence(), and only then set a flag by an atomic, which the other block waits for",
    "cluster barrier": "let all threads of all blocks of the cluster come to it, outside of any branch; it "
    "does not wait for threads that have returned",
    "divergence": "move the barrier out of the branch or loop: threads without work must not return "
    "before it, but skip the work and still come to every __syncthreads()",
    "warp-mask": "all lanes that the mask names must come to the call: take it out of the branch, let lanes "
    "without work pass a zero, and return only after it; the lanes of a mask are those that call",
    "group": "all threads of the group must come to the call: take it out of the branch or loop, let those "
    "without work pass a zero, and return only after it; or make the group inside of the branch, of the "
    "threads that are there: coalesced_threads()",
    "tile": "give all lanes the address of the tile's first element and one leading dimension; "
    "which lane moves which element is left to WMMA",
    "product": "all four warps of a warpgroup come to each product, outside of any branch, and all their "
    "lanes pass the same descriptor: compute it from numbers that they share, not from threadIdx",
    "registers": "all four warps of a warpgroup come to the same setmaxnreg, outside of any branch that "
    "tells them apart: branch on threadIdx.x / 128",
    "endless": "see that the loop's variable changes and its condition can become false, for every thread; "
    "a thread waits for others of its block at a barrier, not in a loop",
    "uninitialised": "write the element first, in every case: "
    "threads outside of the image or the tile store 0.0f",
    "unset": "give it a value where it is declared (float acc = 0.0f; float acc[4] = {};), and fragments by "
    "fill_fragment or a load; see that each path to this line has set it",
    "misaligned": "a vector access needs an address that is a multiple of its size: "
    "use it only where the row length is a multiple of the vector, else access single elements",
    "pitch": "pad the rows of the tile to a multiple of 8 halves or 4 floats",
    "fault": "look at how the index or pointer on this line is computed",
}


READ_ONLY = {
    "__ldg": "by __ldg",
    "const __restrict__": "that the kernel was also given as const __restrict__",
}
HARMLESS = "harmless on the GPUs of today, which keep one of the two; by the rules of CUDA it is a race"


@dataclass(frozen=True)
class Place:
    """A line of a kernel file."""

    file: str
    line: int
    code: str

    @classmethod
    def at(cls, source: Path, file: str, line: int) -> Place | None:
        """The line, if the file belongs to the kernel."""
        files = source_files(source)
        for path in sorted(files, key=lambda path: path != Path(file)):  # of two of one name, that one
            if path.name == Path(file).name:
                code = path.read_text(errors="replace").splitlines()
                return cls(path.name, line, code[line - 1].strip() if 0 < line <= len(code) else "")
        return None


@dataclass(frozen=True)
class Party:
    """A thread, and what it did where."""

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
    """One mistake, once."""

    kind: str
    what: str
    kernel: str = ""
    own: Party | None = None
    array: str = ""  # with the index: "w_tile[3][16]"
    other: Party | None = None
    cure: str = ""
    notes: tuple[str, ...] = field(default=())
    memory: str = ""  # of the array, as `Target` has it
    effects: tuple[Finding, ...] = ()  # what else the mistake shows as

    @property
    def place(self) -> Place | None:
        """The line that a student should look at first."""
        return self.own.place if self.own else None


@dataclass(frozen=True)
class Target:
    """The array that an access is about, or that it missed least."""

    name: str
    memory: str  # "global", "constant or device", "shared"
    shape: tuple[int, ...]
    itemsize: int
    axes: str = ""  # a letter each, where the problem has them

    def index(self, offset: int) -> str:
        """``x[n=0, c=1, h=2, w=9]``, ``tile[3][16]`` or ``x[-21]`` for so many bytes from its start."""
        flat = offset // self.itemsize
        if self.memory == "global" and not 0 <= flat < 2 * prod(self.shape):  # no (n, c, h, w) was meant
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
        """With its kind and shape."""
        shape = "x".join(map(str, self.shape)) if self.memory == "shared" else str(self.shape)
        return f"{self.memory} array {self.name} {shape}"


@dataclass(frozen=True)
class Fault:
    """An access that checked mode stopped at."""

    kind: str
    kernel: str
    own: Party
    other: Party
    array: Target
    offset: int
    nbytes: int
    exited: int  # threads of the block that had returned
    subscript: int | None  # of an array that C++ knows the size of
    type: str
    home: tuple[int, ...] = ()  # the block in whose shared memory the array is
    detail: str = (
        ""  # of a race: "same value", or how the value was read; else "local": a variable of the thread
    )


def explain_fault(fault: Fault) -> Finding:
    """The finding that a student reads."""
    make = {
        "out-of-bounds": _out_of_bounds,
        "race": _race,
        "uninitialised": _uninitialised,
        "misaligned": _misaligned,
    }
    found = make[fault.kind](fault)
    return replace(
        found, memory=fault.array.memory if found.array.startswith(fault.array.name or "\0") else ""
    )


def _out_of_bounds(f: Fault) -> Finding:
    if f.subscript is not None:
        side = re.search(r"\[(\d+)\]", f.type)
        last = f" (0 to {int(side[1]) - 1})" if side else ""
        what = f"index {f.subscript} is outside of an array declared as {f.type}{last}"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES[f.kind])
    if f.detail == "local":
        what = f"access of a {f.type} beyond the end of a variable of the thread's own"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES[f.kind])
    count = prod(f.array.shape)
    end = count * f.array.itemsize
    offset = (
        max(f.offset, end) if f.offset >= 0 else f.offset
    )  # one that begins inside is wrong from the end on
    flat = offset // f.array.itemsize
    verb = "update" if f.own.atomic else "write" if f.own.write else "read"
    if not f.array.memory or abs(f.offset) > FAR:
        what = f"{verb} at an address that belongs to no array, and is near none"
        return Finding(f.kind, what, f.kernel, f.own, cure=CURES["fault"])
    index = f.array.index(offset)
    where = f"{-flat} elements before its start" if flat < 0 else f"element {flat} of {count}"
    what = f"{verb} of {index}: outside of {f.array}, {where}"
    return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES[f.kind])


def _race(f: Fault) -> Finding:
    index = f.array.index(f.offset)
    where = f"{index} of {f.array}"
    if f.detail in READ_ONLY:
        what = f"read of {where} {READ_ONLY[f.detail]}, which this launch has written"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES["read only"])
    if f.own.block != f.other.block and f.array.memory == "shared":
        cure, between = "cluster race", "with no barrier of the cluster between that orders memory"
        where += f" in block {f.home}"
    elif f.own.block != f.other.block:
        cure, between = "block race", "and blocks are not ordered"
    elif f.own.write and f.other.write and f.array.memory == "global":
        cure, between = "same element", "and nothing orders them"
    elif f.own.write and f.other.write and f.own.place != f.other.place:
        cure, between = "overlap", "with no __syncthreads() between"
    elif f.own.warp == f.other.warp and f.array.memory == "shared":
        cure, between = "warp race", "with no __syncwarp() or __syncthreads() between"
    else:
        cure, between = "race", "with no __syncthreads() between"
    what = f"one thread {f.other.does} and another {f.own.does} {where}, {between}"
    if f.detail == "same value":
        what = f"two threads write {where}, {between}; both write the same value"
        return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES["same value"], (HARMLESS,))
    return Finding(f.kind, what, f.kernel, f.own, index, f.other, CURES[cure])


def _uninitialised(f: Fault) -> Finding:
    if not f.array.name and f.type:
        what = f"use of a {f.type} that was never set: it has any value"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES["unset"])
    index = f.array.index(f.offset)
    by = "no thread of the block" if f.array.memory == "shared" else "nobody"
    what = f"read of {index} of {f.array}, which {by} has written"
    notes: tuple[str, ...] = ()
    if f.array.memory == "shared" and f.exited:
        notes = (f"{f.exited} threads of the block had returned before: what they should load is missing",)
    return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES[f.kind], notes=notes)


def _misaligned(f: Fault) -> Finding:
    if f.type == "WMMA pitch":
        what = (
            f"the leading dimension of a WMMA tile is {f.offset} bytes; it must be a multiple of {f.nbytes}"
        )
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES["pitch"])
    what = f"access of a {f.type} at an address that is {f.offset} past a multiple of {f.nbytes} bytes"
    return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES[f.kind])
