"""A bracket of a kernel's time on a GPU, from what it moves and computes.

Each unit of the GPU needs a time for its share of the work. A kernel is not faster than the unit that needs
longest. It is slower where its blocks do not fill the multiprocessors, where too few warps hide the latency
of instructions, where too few blocks keep several units busy at the same time, and by its launch. If the
longest unit works for less than `BUSY` of the time, latency limits the kernel; Nsight Compute draws the line
at the same share. Instructions for integers and branches are an estimate, since g++ has compiled the kernel
and not nvcc, so the lower end of the bracket leaves them out. It is no prediction: clocks and cache misses
are not known.
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
BARRIERS = ("__syncthreads", "cluster_sync", "mbarrier_wait")  # for which warps of a block wait
Key = tuple[str, tuple[int, ...], tuple[int, ...]]  # of a launch: kernel, grid, block
SCHEDULERS = 4  # of a multiprocessor: warp instructions a clock
LAUNCH_MS = 0.002  # of a kernel that does nothing, on an H200
GLOBAL_MS = 0.001  # more until the first bytes have come and the last ones have gone: half of it each
SURE, UNSURE = 1.5, 1.15  # the longest time by the second longest
BUSY = 0.6  # of the time that a unit works which limits a kernel; see the rule of ncu's "Speed of Light"
KEPT = 0.5  # of the L2 cache: what has been written and has not gone to DRAM when a kernel ends
# Clocks until an instruction may use what another one gives, of Hopper; Volta and its successors differ by a
# few. W. Luo et al., "Benchmarking and Dissecting the Nvidia Hopper GPU Architecture", arXiv:2402.13499;
# Z. Jia et al., arXiv:1804.06826.
ARITHMETIC_CLOCKS, SHARED_CLOCKS, L2_CLOCKS, PRODUCT_CLOCKS = 4, 29, 260, 33
ALWAYS = 7  # instructions of a warp to read its numbers and parameters, and to end: see docs/counters.md
INDEPENDENT = 2  # instructions of a warp that are under way together, an assumption: compilers see to it


@dataclass(frozen=True)
class Bracket:
    """The time that each unit needs for a launch, or for several together, in milliseconds.

    Parameters
    ----------
    units
        How long each unit works if all of the GPU takes part.
    low_ms
        The lower end: without instructions for integers and branches, and with enough warps.
    likely_ms
        With them, and with the latency that warps do not hide. A block uses one unit after the other, and
        other blocks use the others meanwhile.
    high_ms
        The upper end: no two units work at the same time.
    """

    units: dict[str, float]
    low_ms: float
    likely_ms: float
    high_ms: float

    @property
    def longest(self) -> str:
        """The unit that needs longest."""
        return max(self.units, key=self.units.__getitem__)

    @property
    def limiter(self) -> str:
        """The unit that needs longest, or the latency if that unit has nothing to do for much of the time."""
        return self.longest if self.units[self.longest] >= BUSY * self.likely_ms else LATENCY

    @property
    def second(self) -> str:
        """The unit that needs longest but one, or longest if latency is the limiter."""
        return sorted(self.units, key=self.units.__getitem__)[-1 if self.limiter == LATENCY else -2]

    @property
    def sure(self) -> str:
        """How sure the limiter is, in words."""
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
    """A larger problem than the one whose counters are known; see `enlarged`."""

    scale: float  # how many times as much work it is
    nbytes: Mapping[str, int]  # of its arrays
    grids: Mapping[Key, tuple[int, ...]]  # the blocks of each of its launches, by the smaller ones'
    same: frozenset[Key]  # launches that do the same for both, such as those that prepare weights


def enlarged(few: Planned, many: Planned, scale: float) -> Larger:
    """The larger one of two problems of a variant, by the launches of both.

    Parameters
    ----------
    scale
        How many times as much work it is.
    """
    pairs = list(zip(few.launches, many.launches, strict=False))
    found: dict[Key, list[int]] = {}
    if len(few.launches) == len(many.launches) and all(a.kernel == b.kernel for a, b in pairs):
        for ours, theirs in pairs:
            found.setdefault(_key(ours), []).append(prod(theirs.grid))
    else:  # there are more of them for a large batch
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
    """Of the buffers that a kernel gets."""
    return {arg if isinstance(arg, str) else getattr(arg, "buffer", "") for arg in launch.args}


def _key(launch: Launch | Counters) -> Key:
    return launch.kernel, (*launch.grid, 1, 1)[:3], (*launch.block, 1, 1)[:3]


def bracket(
    counters: Counters, gpu: Gpu, larger: Larger | None = None, registers: int | None = None
) -> Bracket:
    """The times of one kernel's launches, or of those for a larger problem.

    Parameters
    ----------
    registers
        Of a thread; None if they are unknown, and then they do not limit how many warps there are.
    """
    scale = larger.scale if larger and _key(counters) not in larger.same else 1.0
    grids = larger.grids.get(_key(counters), ()) if larger else ()
    launches = len(grids) or counters.launches
    blocks = sum(grids) // launches or counters.blocks
    nbytes = larger.nbytes if larger else {}
    clocks = gpu.clocks_per_second / scale / 1e3  # of all multiprocessors, in a millisecond
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
    waves = -(-blocks // gpu.multiprocessors) * gpu.multiprocessors / blocks  # the last one is not full
    memory = max(units[DRAM], units[L2])
    own = {name: ms * waves for name, ms in units.items() if name not in (DRAM, L2)}
    hidden = min(1.0, _warps(counters, gpu, blocks, registers) / SCHEDULERS / _latency(counters))
    # Of blocks that go through these one after the other, the last one's others hide behind nothing.
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
    """Of launches one after the other; the limiter is the unit that needs longest for all of them."""
    units = {name: sum(one.units[name] for one in brackets) for name in brackets[0].units}
    ends = zip(*((one.low_ms, one.likely_ms, one.high_ms) for one in brackets), strict=True)
    return Bracket(units, *map(sum, ends))


def moved_bytes(counters: Counters, nbytes: Mapping[str, int]) -> float:
    """Bytes that global memory moves if each sector that is used is read once and written once.

    Parameters
    ----------
    nbytes
        How large arrays are; of those that are not named, as large as when they were counted.
    """
    return sum(_moved(counters, nbytes))


def _moved(counters: Counters, nbytes: Mapping[str, int]) -> tuple[float, float]:
    """Bytes that are read and written."""
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
    """Warps on a multiprocessor: as many as fit, or as there are."""
    fits = occupancy(gpu, counters.threads, counters.shared_bytes, registers)
    return fits.warps * max(1, min(fits.blocks, -(-blocks // gpu.multiprocessors)))


def _copies(counters: Counters) -> bool:
    """Whether most of what is read comes by asynchronous copies: then a block computes meanwhile."""
    copies = counters.sum("sectors", "global", "copy load")
    return copies > counters.sum("block_sectors", "global", "load", "tile load")


def _groups(counters: Counters, gpu: Gpu, blocks: int, registers: int | None) -> int:
    """Parts of a multiprocessor's work that do not wait for each other: blocks, or warps without barriers."""
    fits = occupancy(gpu, counters.threads, counters.shared_bytes, registers)
    found = max(1, min(fits.blocks, -(-blocks // gpu.multiprocessors)))
    waits = any(call.name.startswith(BARRIERS) for call in counters.calls)
    return found if waits else found * fits.warps


def _latency(counters: Counters) -> float:
    """Mean clocks from one instruction of a warp to the next."""
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
    """Bytes between L1 and L2: loads if the L1 cache keeps what a block has used; stores go through."""
    loads = counters.sum("block_sectors", "global", "load", "tile load")
    copies = counters.sum("sectors", "global", "copy load", "copy store")
    stores = counters.sum("sectors", "global", "store", "tile store", "atomic")
    return SECTOR_BYTES * (loads + copies + stores)


def _l1_clocks(counters: Counters) -> int:
    """Clocks of the banks that the L1 cache and shared memory have in common."""
    wavefronts = counters.sum("wavefronts", "shared") + counters.sum("wavefronts", "global")
    return wavefronts - counters.sum("saved", "shared")


def instructions(counters: Counters, estimated: bool = True) -> float:
    """Instructions of warps; integers and branches, and a warp's first and last ones, are an estimate."""
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
