"""Convert reports of Compute Sanitizer to findings like those of the emulator's checked mode."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mini_dnn.checking.sanitizer import Record
from mini_dnn.device.cures import CURES
from mini_dnn.device.finding import Fault, Finding, Party, Place, Target, explain_fault
from mini_dnn.device.sources import read_source, source_files
from mini_dnn.ops import Arrays

WARP = 32
ACCESS = re.compile(
    r"(?:Invalid|Potential invalid|Uninitialized) __(?P<memory>\w+?)__ (?:memory )?"
    r"(?P<verb>read|write|atomic).*?of size (?P<nbytes>[\d,]+)"
)
SHARED = re.compile(r"__shared__\s+([^;]+);")
WAIT = "wait for the copy (cp.async.wait_group or the pipeline's wait), then call __syncthreads()"
MASK = "the mask of __syncwarp() must contain exactly the lanes that call it"
# A copy of y: the comparison gives more information about unwritten elements
UNWRITTEN = "Host API memory access error"
NOTHING = Party(None, (), ())


@dataclass(frozen=True)
class Allocation:
    """A buffer of the program."""

    array: Target
    address: int
    nbytes: int


@dataclass(frozen=True)
class Run:
    """The result of the program at one problem."""

    problem: Any
    device: str  # its description
    arch: int
    outputs: Arrays | None = None  # if the run completed
    again: Finding | None = None  # of later runs on the same memory
    launch: Finding | None = None  # a launch that the GPU would refuse: nothing ran
    failure: str = ""  # the driver's message
    allocations: tuple[Allocation, ...] = ()
    mapped: tuple[str, ...] = ()  # see `Planned.mapped`


def verdicts(
    records: Iterable[Record], source: Path, allocations: Sequence[Allocation] = ()
) -> list[Finding]:
    """Return each distinct mistake once, in the order of the log.

    Parameters
    ----------
    records
        The reports of one checker.
    source
        The kernel file, whose lines are shown.
    allocations
        The program's buffers: an address in one of them becomes an index of an array.
    """
    found: dict[object, Finding] = {}
    counts: Counter[object] = Counter()
    kernels = [record for record in records if not record.headline.startswith(UNWRITTEN)]
    # hazards have threads and addresses, analyses have their number
    for record in sorted(kernels, key=_is_analysis):
        finding = _verdict(record, source, allocations)
        places = sorted(str(party.place) for party in (finding.own, finding.other) if party)
        key = (finding.kind, finding.kernel, *places)
        found.setdefault(key, finding)
        if _is_analysis(record):
            counts[key] = max(counts[key], record.hazards)
        elif finding.kind != "race":
            counts[key] += 1
    return [
        replace(f, notes=(*f.notes, f"reported {counts[key]:,} times")) if counts[key] > 1 else f
        for key, f in found.items()
    ]


def _is_analysis(record: Record) -> bool:
    return record.headline.startswith("Race reported")


def _verdict(record: Record, source: Path, allocations: Sequence[Allocation]) -> Finding:
    if "hazard detected" in record.headline or _is_analysis(record):
        return _race(record, source)
    kernel = record.places[-1].kernel if record.places else ""  # the outermost function
    own = Party(_own_place(record, source), record.block, record.thread)
    access = ACCESS.match(record.headline)
    if access:
        return _access(record, access, kernel, own, allocations)
    if record.headline.startswith("Barrier error"):
        return _barrier(record, kernel, own)
    return Finding("fault", record.headline, kernel, own, cure=CURES["fault"], notes=record.details)


def _own_place(record: Record, source: Path) -> Place | None:
    """Return the innermost line in the kernel's own files."""
    places = (Place.at(source, place.file, place.line) for place in record.places)
    return next((place for place in places if place), None)


def _access(
    record: Record, access: re.Match[str], kernel: str, own: Party, allocations: Sequence[Allocation]
) -> Finding:
    nbytes = int(access["nbytes"].replace(",", ""))
    own = replace(own, write=access["verb"] != "read", atomic=access["verb"] == "atomic")
    kind = "uninitialised" if access[0].startswith("Uninitialized") else "out-of-bounds"
    if any("misaligned" in line for line in record.details):
        address = record.address or 0
        what = (
            f"access to {nbytes} bytes at an address that is {address % nbytes} bytes past a multiple "
            f"of {nbytes}"
        )
        return Finding("misaligned", what, kernel, own, cure=CURES["misaligned"])
    at = _allocation(record, allocations) if access["memory"] == "global" else None
    if at and record.address is not None:
        offset = record.address - at.address
        fault = Fault(kind, kernel, own, NOTHING, at.array, offset, nbytes, 0, None, "")
        return explain_fault(fault)
    where = "" if record.address is None else f" at 0x{record.address:x}"
    if kind == "uninitialised":
        what = f"read of {nbytes} bytes of {access['memory']} memory{where}, which nothing has written"
    else:
        verb = "update" if own.atomic else access["verb"]
        what = f"{verb} of {nbytes} bytes outside all arrays of {access['memory']} memory{where}"
    near = [f"the address {line.removeprefix('and ')}" for line in record.details if "nearest" in line]
    return Finding(kind, what, kernel, own, cure=CURES[kind], notes=tuple(near))


def _allocation(record: Record, allocations: Sequence[Allocation]) -> Allocation | None:
    """Return the buffer that contains an address, or else the one that the tool names as the nearest."""
    if record.address is None:
        return None
    inside = [a for a in allocations if a.address <= record.address < a.address + a.nbytes]
    nearest = [a for a in allocations if a.address == record.allocation]
    return next(iter([*inside, *nearest]), None)


def _race(record: Record, source: Path) -> Finding:
    """The finding about two threads and a byte of shared memory, which only the two lines can name."""
    parties = [_racer(record, i, source) for i in range(len(record.places))]
    other, own, *more = [*parties, NOTHING, NOTHING][: max(2, len(parties))]  # in order of time
    name = _shared_array(source, other.place, own.place)
    where = f"shared array {name}" if name else "shared memory"
    at = "the same element of" if record.address is None else f"byte 0x{record.address:x} of"
    asynchronous = any("memcpy_async" in line for line in (record.headline, *record.details))
    between = (
        "before the asynchronous copy was waited for" if asynchronous else "without a barrier between them"
    )
    what = f"one thread {other.does} and another {own.does} {at} {where}, {between}"
    cure = "async" if asynchronous else "warp race" if _same_warp(own, other) else "race"
    kernel = record.places[0].kernel if record.places else ""
    notes = tuple(f"also {p.does} at {p.place.file}:{p.place.line}" for p in more if p.place)
    return Finding("race", what, kernel, own, name, other, {**CURES, "async": WAIT}[cure], notes, "shared")


def _racer(record: Record, number: int, source: Path) -> Party:
    place = record.places[number]
    at = Place.at(source, place.file, place.line)
    return Party(at, record.block, place.thread, write=place.access == "write")


def _same_warp(a: Party, b: Party) -> bool:
    """Whether two threads are certainly in one warp: rows of a block are often whole warps."""
    return bool(a.thread) and a.thread[1:] == b.thread[1:] and a.thread[0] // WARP == b.thread[0] // WARP


def _shared_array(source: Path, *places: Place | None) -> str:
    """The shared array that all lines name. The text is empty if they name several, or none."""
    text = "\n".join(read_source(path) for path in source_files(source))
    declared = {name for line in SHARED.findall(text) for name in re.findall(r"(\w+)\s*\[", line)}
    for place in places:
        declared &= set(re.findall(r"\w+", place.code)) if place else set()
    return declared.pop() if len(declared) == 1 else ""


def _barrier(record: Record, kernel: str, own: Party) -> Finding:
    reason = record.headline.partition("detected.")[2].strip(" .").lower()
    if "divergent" in reason:
        group = "warp" if "warp" in reason else "block"
        what = f"not all threads of the {group} reach the same barrier ({reason})"
        return Finding("divergence", what, kernel, own, cure=CURES["divergence"])
    what = f"a barrier is used incorrectly: {reason or record.headline}"
    return Finding("warp-mask", what, kernel, own, cure=MASK)
