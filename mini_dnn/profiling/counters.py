"""Counters of a kernel's launch in the emulator, by source line and array.

Where a counter is the same thing as one of Nsight Compute's, `Counters.metrics` has it under that name;
docs/counters.md shows both side by side. All others have names of our own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

SECTOR_BYTES = 32
SHARED_ACCESSES = ("load", "store", "atomic")
TILES, COPIES = ("tile load", "tile store"), ("copy to", "copy from")  # which ncu counts by other rules
LARGEST = 16  # bytes of a lane's access; what is larger is a bulk copy
# Products of one instruction of a warp, by the name of its wrapper; see `Call.products` for the others.
PRODUCTS = {
    "mma_m16n8k8": 16 * 8 * 8,
    "mma_m16n8k8_tf32": 16 * 8 * 8,
    "mma_m16n8k16": 16 * 8 * 16,
    "mma_m16n8k16_bf16": 16 * 8 * 16,
}


@dataclass(frozen=True)
class Access:
    """What the instructions of one line do with one array."""

    file: str
    line: int
    array: str
    memory: str  # "global", "shared", "constant", "another block's shared"
    operation: str  # "load", "store", "atomic", "copy load", "copy to" ...: see totals.OPERATIONS
    bytes: int  # of a lane; of bulk copies all of it
    instructions: int  # of warps: requests
    lanes: int  # active ones, of all instructions
    sectors: int  # of 32 bytes, in global memory
    ideal_sectors: int  # if neighbouring lanes had neighbouring bytes
    used_bytes: int  # distinct ones of each instruction, of those in the sectors
    lines: int  # of 128 bytes
    wavefronts: int  # of shared memory, or of the L1 cache for global memory
    ideal_wavefronts: int
    block_sectors: int  # that the block had not used before
    merged: int = 0  # loads of shared memory that nvcc may make part of a wider one
    saved: int = 0  # wavefronts that this saves


@dataclass(frozen=True)
class Call:
    """A call that lanes wait in, or that starts or counts something."""

    file: str
    line: int
    name: str
    instructions: int  # of warps
    lanes: int
    number: int  # the sum of what the lanes passed, such as columns

    @property
    def products(self) -> int:
        """Products that tensor cores make for it."""
        if self.name.startswith("wmma::mma_sync"):
            return self.number // 32
        if self.name.startswith("wgmma_m64k16"):  # a warp has 16 of the 64 rows
            return self.number // 32 * 16 * 16
        return PRODUCTS.get(self.name, 0) * self.instructions

    @property
    def operand_bytes(self) -> int:
        """Bytes of shared memory that are operands of wgmma: 16 columns of a, 16 rows of b, in halves."""
        if not self.name.startswith("wgmma_m64k16"):
            return 0
        rows = 0 if self.name.endswith("a in registers") else 16 * self.instructions
        return (rows + self.number // 32 // 4) * 16 * 2  # four warps share b


@dataclass(frozen=True)
class Work:
    """Arithmetic of a line in single precision: operations of all its lanes."""

    file: str
    line: int
    ffma: int = 0
    fadd: int = 0
    fmul: int = 0
    special: int = 0
    other: int = 0  # an estimate of all further instructions of lanes, but for accesses
    instructions: int = 0  # of warps: all but the others
    other_instructions: int = 0  # of warps


@dataclass(frozen=True)
class Branch:
    """How often a line's instructions sent lanes of a warp different ways."""

    file: str
    line: int
    splits: int


@dataclass(frozen=True)
class ArrayUse:
    """An array, and how much of it a launch has used."""

    name: str
    memory: str
    nbytes: int
    used_bytes: int  # in whole sectors; 0 for shared arrays


@dataclass(frozen=True)
class Counters:
    """What one launch did, or several launches of one kernel together."""

    kernel: str
    source: str  # the kernel file
    defines: Mapping[str, int | float | str]
    launches: int
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_bytes: int  # of a block, static and dynamic
    accesses: tuple[Access, ...]
    calls: tuple[Call, ...]
    work: tuple[Work, ...]
    branches: tuple[Branch, ...]
    arrays: tuple[ArrayUse, ...]
    block_instructions: int  # basic blocks that warps entered
    block_lanes: int  # and the lanes that did

    @property
    def blocks(self) -> int:
        """Thread blocks of a launch."""
        return prod(self.grid)

    @property
    def threads(self) -> int:
        """Of a block."""
        return prod(self.block)

    @property
    def active_lanes(self) -> float:
        """Lanes that are on, of 32, in a basic block that a warp enters."""
        return self.block_lanes / self.block_instructions if self.block_instructions else 0.0

    def sum(self, field: str, memory: str, *operations: str) -> int:
        """A field of `Access`, added up for one memory and some operations, or all."""
        return sum(
            getattr(access, field)
            for access in self.accesses
            if access.memory == memory and (not operations or access.operation in operations)
        )

    @cached_property
    def products(self) -> Mapping[str, int]:
        """Products of tensor cores, by the instruction's name."""
        found: Counter[str] = Counter()
        for call in self.calls:
            found[call.name] += call.products
        return {name: count for name, count in found.items() if count}

    def operations(self, kind: str) -> int:
        """A field of `Work`, added up: of lanes "ffma", "fadd", "fmul" or "special"; see there."""
        return sum(getattr(work, kind) for work in self.work)

    @cached_property
    def metrics(self) -> Mapping[str, float]:
        """Counters by the names of Nsight Compute: those alone that mean the same there."""
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
