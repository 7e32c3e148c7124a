"""Counters of a kernel's launch in the emulator, for each source line and array.

If a counter means the same as one of Nsight Compute, `Counters.metrics` has it under that name, and
docs/counters.md shows both next to each other. All other counters have names of this project.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

SECTOR_BYTES = 32
SHARED_ACCESSES = ("load", "store", "atomic")
TILES, COPIES = ("tile load", "tile store"), ("copy to", "copy from")  # ncu counts these by different rules
LARGEST = 16  # bytes per lane of an access; larger ones are bulk copies
# Products of one warp instruction, by the name of its wrapper. `Call.products` has the others.
PRODUCTS = {
    "mma_m16n8k8": 16 * 8 * 8,
    "mma_m16n8k8_tf32": 16 * 8 * 8,
    "mma_m16n8k16": 16 * 8 * 16,
    "mma_m16n8k16_bf16": 16 * 8 * 16,
}


@dataclass(frozen=True)
class Access:
    """What the instructions of one line do to one array."""

    file: str
    line: int
    array: str
    memory: str  # "global", "shared", "constant", "another block's shared"
    operation: str  # "load", "store", "atomic", "copy load", "copy to" ...: see totals.OPERATIONS
    bytes: int  # per lane; for bulk copies in total
    instructions: int  # warp instructions, which are the requests
    lanes: int  # active lanes, summed over all instructions
    sectors: int  # of 32 bytes, in global memory
    ideal_sectors: int  # if neighbouring lanes accessed neighbouring bytes
    used_bytes: int  # distinct bytes of each instruction within its sectors
    lines: int  # cache lines of 128 bytes
    wavefronts: int  # of shared memory; for global memory, of the L1 cache
    ideal_wavefronts: int
    block_sectors: int  # sectors that the block had not accessed before
    merged: int = 0  # loads of shared memory that nvcc may merge into wider ones
    saved: int = 0  # wavefronts that merging saves


@dataclass(frozen=True)
class Call:
    """A call in which lanes wait, or which starts or counts something."""

    file: str
    line: int
    name: str
    instructions: int  # warp instructions
    lanes: int
    number: int  # the sum of the numbers that the lanes passed, such as columns

    @property
    def products(self) -> int:
        """The products that tensor cores compute for this call."""
        if self.name.startswith("wmma::mma_sync"):
            return self.number // 32
        if self.name.startswith("wgmma_m64k16"):  # a warp has 16 of the 64 rows
            return self.number // 32 * 16 * 16
        return PRODUCTS.get(self.name, 0) * self.instructions

    @property
    def operand_bytes(self) -> int:
        """Bytes of wgmma's operands in shared memory: 16 columns of a and 16 rows of b, as halves."""
        if not self.name.startswith("wgmma_m64k16"):
            return 0
        rows = 0 if self.name.endswith("a in registers") else 16 * self.instructions
        return (rows + self.number // 32 // 4) * 16 * 2  # four warps share b


@dataclass(frozen=True)
class Work:
    """Single-precision arithmetic of a line: the operations of all of its lanes."""

    file: str
    line: int
    ffma: int = 0
    fadd: int = 0
    fmul: int = 0
    special: int = 0
    other: int = 0  # an estimate of all other instructions of lanes, except for accesses
    instructions: int = 0  # warp instructions, except for those in `other`
    other_instructions: int = 0  # warp instructions


@dataclass(frozen=True)
class Branch:
    """How often the instructions of a line caused lanes of a warp to diverge."""

    file: str
    line: int
    splits: int


@dataclass(frozen=True)
class ArrayUse:
    """An array, and how much of it a launch used."""

    name: str
    memory: str
    nbytes: int
    used_bytes: int  # in whole sectors; 0 for shared arrays


@dataclass(frozen=True)
class Counters:
    """The counters of one launch, or of several launches of one kernel together."""

    kernel: str
    source: str  # the kernel's file
    defines: Mapping[str, int | float | str]
    launches: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int  # per block, static and dynamic
    accesses: tuple[Access, ...]
    calls: tuple[Call, ...]
    work: tuple[Work, ...]
    branches: tuple[Branch, ...]
    arrays: tuple[ArrayUse, ...]
    block_instructions: int  # basic blocks that warps entered
    block_lanes: int  # lanes that were active in them

    @property
    def blocks(self) -> int:
        """The number of thread blocks of a launch."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """The number of threads per block."""
        return prod(self.block)

    @property
    def active_lanes(self) -> float:
        """The mean number of active lanes, out of 32, in the basic blocks that warps enter."""
        return self.block_lanes / self.block_instructions if self.block_instructions else 0.0

    def sum(self, field: str, memory: str, *operations: str) -> int:
        """Sum a field of `Access` over one memory and the given operations, or over all operations."""
        return sum(
            getattr(access, field)
            for access in self.accesses
            if access.memory == memory and (not operations or access.operation in operations)
        )

    @cached_property
    def products(self) -> Mapping[str, int]:
        """The products of tensor cores, by the name of the instruction."""
        found: Counter[str] = Counter()
        for call in self.calls:
            found[call.name] += call.products
        return {name: count for name, count in found.items() if count}

    def operations(self, kind: str) -> int:
        """Sum a field of `Work` over all lanes: "ffma", "fadd", "fmul" or "special"."""
        return sum(getattr(work, kind) for work in self.work)

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """The counters that mean the same in Nsight Compute, under its names."""
        found: dict[str, float] = {}
        reached = [a for a in self.accesses if a.memory == "global" and a.bytes <= LARGEST]
        loads = [access for access in reached if access.operation in ("load", "copy load")]
        stores = [access for access in reached if access.operation == "store"]
        for op, accesses in (("ld", loads), ("st", stores)):
            name = f"pipe_lsu_mem_global_op_{op}.sum"
            found[f"l1tex__t_requests_{name}"] = sum(access.instructions for access in accesses)
            found[f"l1tex__t_sectors_{name}"] = sum(access.sectors for access in accesses)
        used = {access.operation for access in self.accesses}
        if used.isdisjoint(TILES):
            for op, operation in (("ld", "load"), ("st", "store"), ("atom", "atomic")):
                name = f"smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum"
                found[name] = self.sum("wavefronts", "shared", operation)
        if used.isdisjoint((*TILES, *COPIES)):
            found["memory_l2_theoretical_sectors_global"] = sum(a.sectors for a in reached)
            for ours, name in (("wavefronts", "shared"), ("ideal_wavefronts", "shared_ideal")):
                found[f"memory_l1_wavefronts_{name}"] = self.sum(ours, "shared", *SHARED_ACCESSES)
        if not self.operations("special"):
            for kind in ("ffma", "fadd", "fmul"):
                name = f"smsp__sass_thread_inst_executed_op_{kind}_pred_on.sum"
                found[name] = self.operations(kind)
        return found
