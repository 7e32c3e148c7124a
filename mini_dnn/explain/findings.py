"""Findings in a kernel's counters, in plain words: the line, what it costs, and what helps."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby, takewhile
from math import prod
from pathlib import Path

import numpy as np

from mini_dnn.device.emulator.counted import Place
from mini_dnn.device.emulator.counted_interface import LANES, EventKind
from mini_dnn.device.sources import read_source
from mini_dnn.explain.kernels import Counted, work_by_line
from mini_dnn.profiling.counters import SECTOR_BYTES, Access

LEAST_SHARE = 0.05  # of the kernel's sectors or wavefronts; smaller shares do not matter
SCATTERED, CONFLICTING = 2.0, 1.5  # multiples of the ideal
MANY_TIMES = 16.0  # times that the lanes of a block request a sector
MANY_BLOCKS = 3.0  # blocks that read a sector
FEW_LANES = 0.8  # fraction of all lanes, on average
SAME_DISTANCE = 0.75  # fraction of the pairs of neighbouring lanes
WAITING = 0.2  # fraction of the steps of all warps
MOST = 8
BRANCH = re.compile(r"^(?!\s*//).*(\b(if|else|for|while|switch)\b|\?)")
DOES = {
    "load": ("that loads", EventKind.LOAD),
    "store": ("that stores", EventKind.STORE),
    "atomic": ("that updates", EventKind.ATOMIC),
}


@dataclass(frozen=True)
class Finding:
    """One finding."""

    kind: str  # uncoalesced, conflicts, divergence, idle, redundant or waits
    title: str
    what: str
    cure: str
    place: Place | None
    share: float  # of the kernel's total of this kind, for sorting
    array: str = ""  # the array in question


def findings(kernel: Counted) -> list[Finding]:
    """Return all findings about a kernel, worst first."""
    found = [
        *_uncoalesced(kernel),
        *_conflicts(kernel),
        *_divergence(kernel),
        *_idle(kernel),
        *_waits(kernel),
        *_redundant(kernel),
    ]
    return sorted(found, key=lambda finding: -finding.share)[:MOST]


@dataclass(frozen=True)
class Site:
    """The accesses of one line to one array."""

    place: Place
    array: str  # empty if unknown
    operation: str  # a key of DOES
    figures: Mapping[str, int]  # fields of `Access`

    def each(self, field: str) -> float:
        """The mean per warp instruction."""
        return self.figures[field] / self.figures["instructions"]


def _sites(kernel: Counted, memory: str) -> list[Site]:
    """The accesses of threads to one kind of memory."""

    def key(access: Access) -> tuple[str, int, str, str]:
        return access.file, access.line, access.array, access.operation

    fields = ("instructions", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts", "block_sectors")
    chosen = [a for a in kernel.counters.accesses if a.memory == memory and a.operation in DOES]
    found = []
    for (file, line, array, operation), group in groupby(sorted(chosen, key=key), key):
        same = list(group)
        figures = {field: sum(getattr(access, field) for access in same) for field in fields}
        found.append(Site(Place(file, line), array, operation, figures))
    return found


def _uncoalesced(kernel: Counted) -> Iterator[Finding]:
    of_kernel = kernel.counters.sum("sectors", "global")
    for site in _sites(kernel, "global"):
        sectors, ideal = site.figures["sectors"], site.figures["ideal_sectors"]
        if sectors - ideal < LEAST_SHARE * of_kernel or sectors < SCATTERED * ideal:
            continue
        yield Finding(
            "uncoalesced",
            "Scattered accesses.",
            f"A warp {DOES[site.operation][0]} {site.array or 'memory'} touches {site.each('sectors'):.3g} "
            f"sectors of 32 bytes, although {site.each('ideal_sectors'):.3g} are enough for its bytes"
            f"{_apart(kernel, site)}.",
            "let neighbouring threads use neighbouring elements: swap the roles of the thread's indices, or "
            "load a tile into shared memory and transpose it there",
            site.place,
            (sectors - ideal) / of_kernel,
            site.array,
        )


def _conflicts(kernel: Counted) -> Iterator[Finding]:
    of_kernel = kernel.counters.sum("wavefronts", "shared")
    for site in _sites(kernel, "shared"):
        found, ideal = site.figures["wavefronts"], site.figures["ideal_wavefronts"]
        if found - ideal < LEAST_SHARE * of_kernel or found < CONFLICTING * ideal:
            continue
        yield Finding(
            "conflicts",
            "Bank conflicts.",
            f"A warp {DOES[site.operation][0]} {site.array or 'memory'} takes {site.each('wavefronts'):.3g} "
            f"passes of shared memory, although {site.each('ideal_wavefronts'):.3g} would be enough"
            f"{_apart(kernel, site)}: lanes access different words of the same bank.",
            "pad the rows of the array by one or four words, so that columns are in different banks, or let "
            "neighbouring lanes access neighbouring elements of a row",
            site.place,
            (found - ideal) / of_kernel,
            site.array,
        )


def _divergence(kernel: Counted) -> Iterator[Finding]:
    """Find the branch at which lanes diverge, if this leaves many of them idle."""
    counters = kernel.counters
    # The block's shape allows at most so many
    full = counters.threads / (LANES * -(-counters.threads // LANES))
    lost = 1 - counters.active_lanes / LANES / full
    if lost < 1 - FEW_LANES or not counters.branches:
        return
    most = max(counters.branches, key=lambda branch: branch.splits)
    splits = sum(branch.splits for branch in counters.branches)
    work = work_by_line(kernel.launch)
    yield Finding(
        "divergence",
        "Divergent branches.",
        f"Lanes of a warp diverge {splits:,} time{'s' * (splits != 1)} in this kernel. Most of the loss is "
        "below this branch: one side waits while the other one runs. On average, "
        f"{counters.active_lanes:.3g} of {LANES} lanes are active.",
        "make whole warps take the same side: branch on the number of the warp, threadIdx.x / 32, or replace "
        "the branch by arithmetic that is the same for each lane",
        _branch(work, LANES * full * FEW_LANES) or Place(most.file, most.line),
        lost,
    )


def _branch(work: Mapping[Place, tuple[int, int]], few: float) -> Place | None:
    """Find the branch above the code in which most lanes are idle.

    A basic block is known by the line of its first instruction, which the compiler may have moved. Therefore,
    the search for the branch uses the source text above the lines in which few lanes work.
    """
    low = {place: LANES * count - lanes for place, (count, lanes) in work.items() if lanes < few * count}
    if not low:
        return None
    worst = max(low, key=lambda place: low[place])
    above = sorted((p for p in work if p.file == worst.file and p.line <= worst.line), key=lambda p: -p.line)
    first = list(takewhile(lambda place: place in low, above))[-1]
    least = min(work[place][1] / work[place][0] for place in low)
    count, lanes = work[first]
    some_are_full = lanes / count > 1.05 * least  # all lanes also reach it
    text = read_source(Path(first.file)).splitlines()
    for number in range(first.line - (not some_are_full), 0, -1):
        if BRANCH.search(text[number - 1]):
            return Place(first.file, number)
    return None


def _idle(kernel: Counted) -> Iterator[Finding]:
    threads = prod(kernel.launch.block)
    warps = -(-threads // LANES)
    share = 1 - threads / (warps * LANES)
    if share > 1 - FEW_LANES and prod(kernel.launch.grid) > 1:
        yield Finding(
            "idle",
            "Idle lanes.",
            f"A block has {threads} threads, which need {warps} warps of {LANES}: {share:.0%} of the lanes "
            "are always idle.",
            "make the number of threads per block a multiple of 32",
            None,
            share,
        )


def _waits(kernel: Counted) -> Iterator[Finding]:
    """Find barriers at which warps of the traced blocks wait for others for a long time."""
    launch = kernel.launch
    lost: dict[Place, int] = {}
    room = 0
    for trace in kernel.traces.values():
        records, found = trace.records, trace.steps
        room += found.count * len(np.unique(records["warp"]))
        for i in np.flatnonzero(records["kind"] == EventKind.BARRIER):
            place = launch.places[int(records["pc"][i])]
            lost[place] = lost.get(place, 0) + int(found.end[i] - found.begin[i]) - 1
    if not room or sum(lost.values()) < WAITING * room:
        return
    place = max(lost, key=lambda where: lost[where])
    yield Finding(
        "waits",
        "Warps wait for others.",
        f"Warps spend {lost[place] / room:.0%} of their steps waiting at this barrier, because some have "
        "more work before it.",
        "distribute the work before the barrier evenly over the warps, or load the next tile while this one "
        "is used",
        place,
        lost[place] / room,
    )


def _redundant(kernel: Counted) -> Iterator[Finding]:
    """Find loads of data that the same block, or other blocks, have already loaded."""
    of_kernel = kernel.counters.sum("sectors", "global")
    loads = [site for site in _sites(kernel, "global") if site.operation == "load" and site.array]
    used = {array.name: array.used_bytes // SECTOR_BYTES for array in kernel.counters.arrays}
    for array in dict.fromkeys(site.array for site in loads):
        same = [site for site in loads if site.array == array]
        sectors, fresh = (sum(site.figures[name] for site in same) for name in ("sectors", "block_sectors"))
        distinct = used.get(array, 0) * kernel.counters.launches
        if not fresh or not distinct or sectors < LEAST_SHARE * of_kernel:
            continue
        blocks = fresh / distinct
        if sectors < MANY_TIMES * fresh and (blocks < MANY_BLOCKS or sectors > SCATTERED * fresh):
            continue
        yield Finding(
            "redundant",
            "Redundant loads.",
            _again(array, sectors / fresh, blocks),
            "load a value once and use it for several results: keep it in registers, or in shared memory for "
            "the whole block, or use larger tiles, which share more",
            max(same, key=lambda site: site.figures["sectors"]).place,
            LEAST_SHARE * (sectors - distinct) / of_kernel,
            array,
        )


def _again(array: str, times: float, blocks: float) -> str:
    between = f"{blocks:.3g} blocks load each sector of {array}"
    if times < MANY_TIMES:
        return f"{between}: their tiles overlap, or several blocks use an input that one block could use."
    within = f"On average, the warps of a block load a sector of {array} {times:.3g} times"
    return (
        f"{within}, and {between}."
        if blocks >= MANY_BLOCKS
        else f"{within}. The caches serve most of these loads."
    )


def _apart(kernel: Counted, site: Site) -> str:
    """The distance between neighbouring lanes at a line, if most of its accesses have the same distance."""
    launch = kernel.launch
    number = next((i for i, array in enumerate(launch.arrays) if array.name == site.array), None)
    if number is None:
        return ""
    pcs = [pc for pc, place in launch.places.items() if place == site.place]
    of_site = np.isin(launch.records["pc"], pcs) & (launch.records["kind"] == DOES[site.operation][1])
    chosen = launch.records[of_site & (launch.records["array"] == number)]
    chosen = chosen[chosen["mask"] == 0xFFFFFFFF]
    if not len(chosen):
        return ""
    distances, counts = np.unique(np.diff(chosen["offsets"], axis=1), return_counts=True)
    most = int(np.argmax(counts))
    distance = abs(int(distances[most]))
    if counts[most] < SAME_DISTANCE * counts.sum() or not distance:
        return ""
    elements = distance / launch.arrays[number].itemsize
    words = f" ({elements:g} elements)" if elements != 1 else ""
    return f"; neighbouring lanes are {distance:,} bytes apart{words}"
