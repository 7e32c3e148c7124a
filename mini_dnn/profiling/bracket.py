"""Bracket a kernel's time on a GPU between two bounds, from what it moves and computes.

Each unit of the GPU needs a time for its share of the work. A kernel cannot be faster than the unit that
needs the longest time. It is slower if its blocks do not fill the multiprocessors, if too few warps hide the
latency of instructions, or if too few blocks keep several units busy at the same time. The launch adds to the
time. If the slowest unit works for less than `BUSY` of the time, latency limits the kernel. Nsight Compute
uses the same threshold. The counts of integer instructions and branches are estimates, because g++ compiled
the kernel and not nvcc, so the lower bound leaves them out. The bracket is not a prediction: clock rates and
cache misses are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from mini_dnn.profiling.counters import SECTOR_BYTES, Counters
from mini_dnn.profiling.gpus import WARP, Gpu, occupancy
from mini_dnn.variant import Planned
from mini_dnn.variant.plan import Launch

DRAM, L2, L1, ISSUE = "DRAM", "L2 cache", "L1 cache and shared memory", "instruction issue"
FMA, TENSOR, SPECIAL, LATENCY = "FMA units", "tensor cores", "special functions", "latency"
BARRIERS = ("__syncthreads", "cluster_sync", "mbarrier_wait")  # warps of a block wait for each other at these
Key = tuple[str, tuple[int, ...], tuple[int, ...]]  # kernel, grid and block of a launch
SCHEDULERS = 4  # of a multiprocessor; each issues one warp instruction per clock
LAUNCH_MS = 0.002  # an empty kernel on an H200
GLOBAL_MS = 0.001  # additional time until the first bytes arrive and the last ones have left, half of it each
SURE, UNSURE = 1.5, 1.15  # ratio of the longest to the second longest time
BUSY = 0.6  # fraction of the time that a limiting unit is busy; see the rule of ncu's "Speed of Light"
KEPT = 0.5  # fraction of the L2 cache: written data that need not be in DRAM when a kernel ends
# The latency of instructions in clocks on Hopper. Volta and its successors differ by a few clocks. W. Luo et
# al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", arXiv:2402.13499; Z. Jia et al.,
# arXiv:1804.06826.
ARITHMETIC_CLOCKS, SHARED_CLOCKS, L2_CLOCKS, PRODUCT_CLOCKS = 4, 29, 260, 33
# Instructions of a warp for reading its indices and parameters, and for its end: see docs/counters.md
ALWAYS = 7
INDEPENDENT = 2  # instructions of a warp in flight at the same time, an assumption about the compiler


@dataclass(frozen=True)
class Bracket:
    """The time that each unit needs for a launch, or for several launches together, in milliseconds.

    Parameters
    ----------
    units
        How long each unit works if all multiprocessors take part.
    low_ms
        The lower bound: without instructions for integers and branches, and with enough warps.
    likely_ms
        The estimate with these instructions, and with latency that warps do not hide. It assumes that a block
        uses one unit after the other, while other blocks use the other units.
    high_ms
        The upper bound: no two units work at the same time.
    """

    units: dict[str, float]
    low_ms: float
    likely_ms: float
    high_ms: float

    @property
    def longest(self) -> str:
        """The unit that needs the longest time."""
        return max(self.units, key=self.units.__getitem__)

    @property
    def limiter(self) -> str:
        """The unit that needs the longest time, or latency if that unit is idle for much of the time."""
        return self.longest if self.units[self.longest] >= BUSY * self.likely_ms else LATENCY

    @property
    def second(self) -> str:
        """The unit that needs the second longest time, or the longest if latency is the limiter."""
        return sorted(self.units, key=self.units.__getitem__)[-1 if self.limiter == LATENCY else -2]

    @property
    def sure(self) -> str:
        """How certain the limiter is, in words."""
        longest = self.units[self.longest]
        if self.limiter == LATENCY:
            ratio = BUSY * self.likely_ms / max(longest, 1e-12)
        else:
            ratio = longest / max(self.units[self.second], 1e-12)
        if ratio >= SURE:
            return "clearly"
        return "probably" if ratio >= UNSURE else "about as much as the next one"


@dataclass(frozen=True)
class Larger:
    """A larger problem than the counted one; see `enlarged`."""

    scale: float  # how many times as much work it is
    nbytes: Mapping[str, int]  # of its arrays
    # The grid of each of its launches, by the key of the smaller problem's launch
    grids: Mapping[Key, tuple[int, ...]]
    same: frozenset[Key]  # launches that are the same for both problems, such as those that prepare weights


def enlarged(few: Planned, many: Planned, scale: float) -> Larger:
    """Describe the larger of two problems of a variant by the launches of both.

    Parameters
    ----------
    scale
        How many times as much work the larger problem is.
    """
    pairs = list(zip(few.launches, many.launches, strict=False))
    found: dict[Key, list[int]] = {}
    if len(few.launches) == len(many.launches) and all(a.kernel == b.kernel for a, b in pairs):
        for ours, theirs in pairs:
            found.setdefault(_key(ours), []).append(prod(theirs.grid))
    else:  # a large batch has more launches
        for ours in few.launches:
            found[_key(ours)] = [prod(one.grid) for one in many.launches if one.kernel == ours.kernel]
    sizes = [{name: array.nbytes for name, array in plan.arrays.items()} for plan in (few, many)]
    grown = {name for name, nbytes in sizes[0].items() if nbytes != sizes[1].get(name)}
    changed = {
        _key(ours) for ours in few.launches if ours not in many.launches or grown.intersection(_names(ours))
    }
    same = {_key(ours) for ours in few.launches} - changed
    return Larger(scale, sizes[1], {key: tuple(grids) for key, grids in found.items()}, frozenset(same))


def _names(launch: Launch) -> set[str]:
    """The names of the buffers that a kernel uses."""
    return {arg if isinstance(arg, str) else getattr(arg, "buffer", "") for arg in launch.args}


def _key(launch: Launch | Counters) -> Key:
    return launch.kernel, (*launch.grid, 1, 1)[:3], (*launch.block, 1, 1)[:3]


def bracket(
    counters: Counters, gpu: Gpu, larger: Larger | None = None, registers: int | None = None
) -> Bracket:
    """Bracket the time of one kernel's launches, or of its launches for a larger problem.

    Parameters
    ----------
    registers
        Registers per thread. If they are None (unknown), they do not limit the number of warps.
    """
    scale = larger.scale if larger and _key(counters) not in larger.same else 1.0
    grids = larger.grids.get(_key(counters), ()) if larger else ()
    launches = len(grids) or counters.launches
    blocks = sum(grids) // launches or counters.blocks
    nbytes = larger.nbytes if larger else {}
    clocks = gpu.clocks_per_second / scale / 1e3  # of all multiprocessors, per millisecond
    has = gpu.generation
    kinds = {kind: counters.operations(kind) for kind in ("ffma", "fadd", "fmul", "special")}
    read, written = _moved(counters, nbytes)
    units = {
        DRAM: (read + max(0.0, written - KEPT * gpu.l2_mb * 1e6)) / (gpu.gbps * 1e6),
        L2: (read + written) / (gpu.fill_gbps * 1e6)
        + max(0.0, l2_bytes(counters) - (read + written) / scale) / gpu.l2_bytes / clocks,
        L1: _l1_clocks(counters) / clocks,
        ISSUE: instructions(counters) / SCHEDULERS / clocks,
        FMA: (kinds["ffma"] + kinds["fadd"] + kinds["fmul"]) / has.fp32 / clocks,
        TENSOR: _tensor_clocks(counters, gpu) / clocks,
        SPECIAL: kinds["special"] / has.special / clocks,
    }
    known = instructions(counters, estimated=False) / SCHEDULERS / clocks
    start = launches * (LAUNCH_MS + GLOBAL_MS * any(a.memory == "global" for a in counters.accesses))
    waves = -(-blocks // gpu.multiprocessors) * gpu.multiprocessors / blocks  # the last wave is not full
    memory = max(units[DRAM], units[L2])
    own = {name: ms * waves for name, ms in units.items() if name not in (DRAM, L2)}
    hidden = min(1.0, _warps(counters, gpu, blocks, registers) / SCHEDULERS / _latency(counters))
    # A block uses these units one after the other. Other blocks hide all but the longest part, except at the
    # end.
    stages = [own[L1], own[TENSOR], max(own[name] for name in (ISSUE, FMA, SPECIAL))]
    if not _copies(counters):
        stages.append(memory)
    rest = (sum(stages) - max(stages)) / _groups(counters, gpu, blocks, registers)
    return Bracket(
        units,
        low_ms=start + max(memory, *({**own, ISSUE: known * waves}.values())),
        likely_ms=start + max(memory, max(stages) + rest, own[ISSUE] / hidden),
        high_ms=start + units[DRAM] + units[L2] + sum({**own, ISSUE: own[ISSUE] / hidden}.values()),
    )


def together(brackets: Sequence[Bracket]) -> Bracket:
    """Bracket consecutive launches. The limiter is the unit that needs the longest time for all of them."""
    units = {name: sum(one.units[name] for one in brackets) for name in brackets[0].units}
    ends = zip(*((one.low_ms, one.likely_ms, one.high_ms) for one in brackets), strict=True)
    return Bracket(units, *map(sum, ends))


def moved_bytes(counters: Counters, nbytes: Mapping[str, int]) -> float:
    """Return the bytes that global memory moves if each used sector is read once and written once.

    Parameters
    ----------
    nbytes
        The sizes of arrays. Arrays that are not named have the sizes that they had when they were counted.
    """
    return sum(_moved(counters, nbytes))


def _moved(counters: Counters, nbytes: Mapping[str, int]) -> tuple[float, float]:
    """Return the bytes that are read and the bytes that are written."""
    ways = {array.name: set[str]() for array in counters.arrays}
    for access in counters.accesses:
        if access.memory == "global":
            reads = access.operation in ("load", "copy load", "tile load", "atomic")
            ways[access.array].add("read" if reads else "write")
    moved = {"read": 0.0, "write": 0.0}
    for array in counters.arrays:
        for way in ways[array.name] if array.nbytes else ():
            moved[way] += array.used_bytes * nbytes.get(array.name, array.nbytes) / array.nbytes
    return moved["read"], moved["write"]


def _warps(counters: Counters, gpu: Gpu, blocks: int, registers: int | None) -> float:
    """Return the warps on a multiprocessor: as many as fit, or as there are."""
    fits = occupancy(gpu, counters.threads, counters.shared_bytes, registers)
    return fits.warps * max(1, min(fits.blocks, -(-blocks // gpu.multiprocessors)))


def _copies(counters: Counters) -> bool:
    """Whether most data arrive by asynchronous copies, during which a block computes."""
    copies = counters.sum("sectors", "global", "copy load")
    return copies > counters.sum("block_sectors", "global", "load", "tile load")


def _groups(counters: Counters, gpu: Gpu, blocks: int, registers: int | None) -> int:
    """Return how many parts of a multiprocessor's work do not wait for each other: blocks, or else warps."""
    fits = occupancy(gpu, counters.threads, counters.shared_bytes, registers)
    found = max(1, min(fits.blocks, -(-blocks // gpu.multiprocessors)))
    waits = any(call.name.startswith(BARRIERS) for call in counters.calls)
    return found if waits else found * fits.warps


def _latency(counters: Counters) -> float:
    """Return the mean number of clocks from one instruction of a warp to the next."""
    loads = [a for a in counters.accesses if a.operation in ("load", "tile load")]
    clocks, count = 0.0, instructions(counters)
    for access in loads:
        fresh = access.block_sectors / access.sectors if access.sectors else 0.0
        clocks += (access.instructions - access.merged) * (SHARED_CLOCKS + fresh * L2_CLOCKS)
    products = sum(call.instructions for call in counters.calls if call.products)
    clocks += products * PRODUCT_CLOCKS
    rest = count - products - sum(access.instructions - access.merged for access in loads)
    return (clocks + rest * ARITHMETIC_CLOCKS) / max(count, 1.0) / INDEPENDENT


def l2_bytes(counters: Counters) -> int:
    """Return the bytes between L1 and L2.

    The L1 cache keeps what a block has loaded; stores go through it.
    """
    loads = counters.sum("block_sectors", "global", "load", "tile load")
    copies = counters.sum("sectors", "global", "copy load", "copy store")
    stores = counters.sum("sectors", "global", "store", "tile store", "atomic")
    return SECTOR_BYTES * (loads + copies + stores)


def _l1_clocks(counters: Counters) -> int:
    """Return the clocks of the banks that the L1 cache and shared memory share."""
    wavefronts = counters.sum("wavefronts", "shared") + counters.sum("wavefronts", "global")
    return wavefronts - counters.sum("saved", "shared")


def instructions(counters: Counters, estimated: bool = True) -> float:
    """Return the number of warp instructions.

    Integers, branches, and a warp's start and end are estimated.
    """
    warps = counters.launches * counters.blocks * -(-counters.threads // WARP)
    work = counters.operations("instructions")
    if estimated:
        work += counters.operations("other_instructions") + warps * ALWAYS
    accesses = sum(access.instructions - access.merged for access in counters.accesses)
    calls = sum(call.instructions for call in counters.calls)
    return work + accesses + calls


def _tensor_clocks(counters: Counters, gpu: Gpu) -> float:
    clocks = 0.0
    for name, count in counters.products.items():
        share = 1.0 if name.startswith("wgmma") else gpu.generation.mma_share
        slower = 2.0 if name.endswith("tf32") else 1.0
        clocks += count * slower / (gpu.tensor_products * share)
    return clocks
