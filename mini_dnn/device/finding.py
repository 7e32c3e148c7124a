"""The text of a finding: one statement, the places in the source, and the usual cure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path

from mini_dnn.device.sources import source_files

FAR = 1 << 34  # bytes: what a 32-bit index of floats reaches

CURES = {
    "out-of-bounds": "check the index; if it is right, guard the access with the bounds of the array "
    "(if (p < P && q < Q) ...), or make the array large enough for the largest index, including the halo",
    "32 bits": "compute the index in 64 bits (make one of its factors a long long): plus 2^32, it would be "
    "in the array, so a product of ints has probably exceeded 2^31",
    "race": "put a __syncthreads() between the two accesses: after a tile is filled and before it is read, "
    "and again before it is overwritten",
    "warp race": "put a __syncthreads() between the two accesses, or a __syncwarp() if only this warp uses "
    "the array: the lanes of a warp do not run in lockstep, and see a WMMA store only after a barrier",
    "same element": "only one thread may write each element: check the index, and check that threads beyond "
    "the end return (if (pixel >= P * Q) return;)",
    "overlap": "put a __syncthreads() between the two accesses if both are meant for this element; "
    "otherwise, "
    "two arrays overlap in shared memory: check the start and the size of each, including the halo",
    "read only": "the read-only cache may not see writes of the same launch: read through a plain pointer "
    "(without __ldg or __restrict__) after a barrier or fence, or write to another buffer",
    "ahead": "call ptx::grid_wait() before the first access of what other launches of the plan use, or "
    "launch the kernel without early=True",
    "same value": "let each thread write its own element (check the index and the grid); if the value is "
    "meant for all of them, let one thread write it (if (threadIdx.x == 0)), or use an atomic (atomicExch, "
    "atomicOr)",
    "cluster race": "put a cluster_sync() between the two accesses: before other blocks use data that a "
    "block "
    "has written, and again before the data are overwritten; a relaxed arrival does not order writes: it "
    "only "
    "lets a waiting block overwrite data that others have read",
    "block race": "let each block write its own elements (check the grid and the index), "
    "or use atomicAdd to combine the sums of several blocks; to pass a value to another block, write it, "
    "call "
    "__threadfence(), and then set a flag with an atomic; the other block waits for the flag",
    "cluster barrier": "let all threads of all blocks of the cluster reach the barrier, outside any branch; "
    "it does not wait for threads that have returned",
    "divergence": "move the barrier out of the branch or loop: threads without work must not return "
    "before it; let them skip the work and still reach every __syncthreads()",
    "warp-mask": "all lanes in the mask must reach the call: move it out of the branch, let lanes "
    "without work pass a zero, and return only after it; the mask must contain exactly the lanes that call",
    "group": "all threads of the group must reach the call: move it out of the branch or loop, let threads "
    "without work pass a zero, and return only after it; or create the group inside the branch from the "
    "threads that are there: coalesced_threads()",
    "tile": "pass the address of the tile's first element and the same leading dimension in all lanes; "
    "WMMA decides which lane moves which element",
    "product": "all four warps of a warpgroup must reach each product, outside any branch, and all their "
    "lanes must pass the same descriptor: compute it from values that they share, not from threadIdx",
    "registers": "all four warps of a warpgroup must reach the same setmaxnreg, outside any branch that "
    "separates them: branch on threadIdx.x / 128",
    "endless": "check that the loop variable changes and that the condition becomes false for every thread; "
    "a thread must wait for other threads of its block at a barrier, not in a loop",
    "uninitialised": "write the element first, in all cases: "
    "let threads outside the image or the tile store 0.0f",
    "unset": "initialise it in its declaration (float acc = 0.0f; float acc[4] = {};), or a fragment with "
    "fill_fragment or a load; check that each path to this line sets it",
    "misaligned": "a vector access needs an address that is a multiple of its size: "
    "use it only if the row length is a multiple of the vector length, otherwise access single elements",
    "pitch": "pad the rows of the tile to a multiple of 8 halves or 4 floats",
    "stack": "keep the pointer or index within the variable whose address was passed; a thread can use only "
    "its own local variables, so share values through shared memory or shuffles",
    "after free": "free memory only after its last access by any thread, with a __syncthreads() between them",
    "freed twice": "let exactly one thread free each piece of memory, once",
    "not allocated": "free or delete exactly the pointers that malloc or new returned",
    "no function": "call functions by their names, or by pointers that were set to functions of the kernel "
    "file; virtual functions need an object that its constructor has made",
    "unreachable": "let every path return a value, and check why a thread takes this one",
    "fault": "check how the index or pointer on this line is computed",
}

STACK = {
    "another thread": "of the local variables of another thread",
    "no variable": "of its stack where it has no local variables",
    "way back": "beyond the local variables of a function, over its return address",
    "kept": "beyond its local variables, over registers that a function has saved",
}
FREED = {
    "after free": "a thread {verb} {index} of {array}, after they were freed",
    "freed twice": "{array} are freed twice",
    "not allocated": "free or delete of an address that malloc or new did not return",
}
READ_ONLY = {
    "__ldg": "with __ldg",
    "const __restrict__": "through a const __restrict__ pointer",
}
HARMLESS = "harmless on current GPUs, which keep one of the two values; by the rules of CUDA it is a race"


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
    memory: str  # "global", "constant or device", "shared", "heap"
    shape: tuple[int, ...]
    itemsize: int
    axes: str = ""  # a letter each, where the problem has them
    line: int = 0  # of the heap: where a kernel allocated it

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
        if self.memory == "heap":
            return f"the {prod(self.shape) * self.itemsize} bytes that line {self.line} allocates"
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
        "fault": lambda f: Finding(f.kind, f.type, f.kernel, f.own, cure=CURES["unreachable"]),
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
        if f.nbytes:  # of a copy
            verb = "writes" if f.own.write else "reads"
            what = f"{f.type} {verb} {f.nbytes} bytes where a thread's own variable has {f.offset} bytes left"
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES[f.kind])
    count = prod(f.array.shape)
    end = count * f.array.itemsize
    offset = (
        max(f.offset, end) if f.offset >= 0 else f.offset
    )  # one that begins inside is wrong from the end on
    flat = offset // f.array.itemsize
    verb = "update" if f.own.atomic else "write" if f.own.write else "read"
    if not f.array.memory or abs(f.offset) > FAR:
        what = f"{verb} at an address that is neither in nor near any array"
        return Finding(f.kind, what, f.kernel, f.own, cure=CURES["fault"])
    index = f.array.index(offset)
    where = f"{-flat} elements before its start" if flat < 0 else f"element {flat} of {count}"
    what = f"{verb} of {index}: outside {f.array}, {where}"
    wrapped = flat < 0 <= flat + (1 << 32) < count
    return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES["32 bits" if wrapped else f.kind])


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
            f"{f.exited} threads of the block had returned before: the elements that they should load "
            f"are missing",
        )
    return Finding(f.kind, what, f.kernel, f.own, index, cure=CURES[f.kind], notes=notes)


def _misaligned(f: Fault) -> Finding:
    if f.type == "WMMA pitch":
        what = (
            f"the leading dimension of a WMMA tile is {f.offset} bytes; it must be a multiple of {f.nbytes}"
        )
        return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES["pitch"])
    what = f"access to a {f.type} at an address that is {f.offset} past a multiple of {f.nbytes} bytes"
    return Finding(f.kind, what, f.kernel, f.own, f.type, cure=CURES[f.kind])
