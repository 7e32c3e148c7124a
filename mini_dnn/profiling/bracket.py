"""A bracket of a kernel's time on a GPU, from what it moves and computes.

Each unit of the GPU needs a time for its share of the work. A kernel is not faster than the unit that needs
longest, and not slower than all of them one after the other, if enough warps hide the latency. Instructions
for integers and branches are an estimate, since g++ has compiled the kernel and not nvcc, so the lower end of
the bracket leaves them out. It is no prediction: latencies, clocks and cache misses are not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mini_dnn.profiling.counters import SECTOR_BYTES, Counters
from mini_dnn.profiling.gpus import WARP, Gpu

ISSUE = "instruction issue"
SCHEDULERS = 4  # of a multiprocessor: warp instructions a clock
WAVEFRONT_SECTORS = 4  # of 32 bytes that the L1 cache gives in a clock
LAUNCH_MS = 0.002  # of a kernel that does nothing
SURE, UNSURE = 1.5, 1.15  # the longest time by the second longest


@dataclass(frozen=True)
class Bracket:
    """The time that each unit needs for a launch, or for several together, in milliseconds."""

    units: dict[str, float]
    known_ms: float  # the longest time if instructions for integers and branches are left out
    launches: int = 1
    longest_ms: float | None = None  # of launches together: each one's longest, added up

    @property
    def limiter(self) -> str:
        """The unit that needs longest."""
        return max(self.units, key=self.units.__getitem__)

    @property
    def low_ms(self) -> float:
        """The lower end."""
        return self.known_ms + self.launches * LAUNCH_MS

    @property
    def likely_ms(self) -> float:
        """With the estimate of instructions, if all other work hides behind the longest."""
        longest = self.units[self.limiter] if self.longest_ms is None else self.longest_ms
        return longest + self.launches * LAUNCH_MS

    @property
    def high_ms(self) -> float:
        """The upper end: no two units work at the same time."""
        return sum(self.units.values()) + self.launches * LAUNCH_MS

    @property
    def second(self) -> str:
        """The unit that needs longest but one."""
        return sorted(self.units, key=self.units.__getitem__)[-2]

    @property
    def sure(self) -> str:
        """How sure the limiter is, in words."""
        ratio = self.units[self.limiter] / max(self.units[self.second], 1e-12)
        if ratio >= SURE:
            return "clearly"
        return "probably" if ratio >= UNSURE else "about as much as the next one"


@dataclass(frozen=True)
class Larger:
    """A larger problem than the one whose counters are known."""

    scale: float  # how many times as much work it is
    nbytes: Mapping[str, int]  # of its arrays
    blocks: Mapping[str, int]  # of its kernels


def bracket(counters: Counters, gpu: Gpu, larger: Larger | None = None) -> Bracket:
    """The times of one kernel's launches, or of those for a larger problem."""
    scale = larger.scale if larger else 1.0
    blocks = larger.blocks.get(counters.kernel, counters.blocks) if larger else counters.blocks
    waves = -(-blocks // gpu.multiprocessors) * gpu.multiprocessors / blocks  # the last one is not full
    clocks = gpu.clocks_per_second / scale / waves / 1e3  # of all multiprocessors, in a millisecond
    has = gpu.generation
    kinds = {kind: counters.operations(kind) for kind in ("ffma", "fadd", "fmul", "special", "other")}
    units = {
        "DRAM": moved_bytes(counters, larger.nbytes if larger else {}) / (gpu.gbps * 1e6),
        "L2 cache": l2_bytes(counters) / gpu.l2_bytes / clocks,
        "L1 cache and shared memory": _l1_clocks(counters) / clocks,
        ISSUE: _instructions(counters, kinds) / SCHEDULERS / clocks,
        "FMA units": (kinds["ffma"] + kinds["fadd"] + kinds["fmul"]) / has.fp32 / clocks,
        "tensor cores": _tensor_clocks(counters, gpu) / clocks,
        "special functions": kinds["special"] / has.special / clocks,
    }
    known = _instructions(counters, {**kinds, "other": 0}) / SCHEDULERS / clocks
    return Bracket(units, max({**units, ISSUE: known}.values()), counters.launches)


def together(brackets: Sequence[Bracket]) -> Bracket:
    """Of launches one after the other; the limiter is the unit that needs longest for all of them."""
    units = {name: sum(one.units[name] for one in brackets) for name in brackets[0].units}
    longest_ms = sum(one.units[one.limiter] for one in brackets)
    known_ms, launches = sum(one.known_ms for one in brackets), sum(one.launches for one in brackets)
    return Bracket(units, known_ms, launches, longest_ms)


def moved_bytes(counters: Counters, nbytes: Mapping[str, int]) -> float:
    """Bytes that global memory moves if each sector that is used is read once and written once.

    Parameters
    ----------
    nbytes
        How large arrays are; of those that are not named, as large as when they were counted.
    """
    ways = {array.name: set[str]() for array in counters.arrays}
    for access in counters.accesses:
        if access.memory == "global":
            reads = access.operation in ("load", "copy load", "tile load", "atomic")
            ways[access.array].add("read" if reads else "write")
    return sum(
        array.used_bytes * len(ways[array.name]) * nbytes.get(array.name, array.nbytes) / array.nbytes
        for array in counters.arrays
        if array.nbytes
    )


def l2_bytes(counters: Counters) -> int:
    """Bytes between L1 and L2: loads if the L1 cache keeps what a block has used; stores go through."""
    loads = counters.sum("block_sectors", "global", "load", "tile load")
    copies = counters.sum("sectors", "global", "copy load", "copy store")
    stores = counters.sum("sectors", "global", "store", "tile store", "atomic")
    return SECTOR_BYTES * (loads + copies + stores)


def _l1_clocks(counters: Counters) -> float:
    """Clocks of the one pipe that loads, stores and shared memory have."""
    clocks = float(counters.sum("wavefronts", "shared"))
    for access in counters.accesses:
        if access.memory == "global" and access.bytes <= 16:
            clocks += max(access.instructions, access.sectors / WAVEFRONT_SECTORS)
    return clocks


def _instructions(counters: Counters, kinds: dict[str, int]) -> float:
    """Instructions of warps; integers and branches are an estimate."""
    lanes = counters.active_lanes or WARP
    accesses = sum(access.instructions for access in counters.accesses)
    calls = sum(call.instructions for call in counters.calls)
    return sum(kinds.values()) / lanes + accesses + calls


def _tensor_clocks(counters: Counters, gpu: Gpu) -> float:
    clocks = 0.0
    for name, count in counters.products.items():
        share = 1.0 if name.startswith("wgmma") else gpu.generation.mma_share
        slower = 2.0 if name.endswith("tf32") else 1.0
        clocks += count * slower / (gpu.tensor_products * share)
    return clocks
