"""Properties of some GPUs, as far as occupancy and bounds of the time depend on them.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (warps, blocks,
registers and shared memory of a multiprocessor) and "Throughput of Native Arithmetic Instructions" (special
functions); NVIDIA's white papers of Turing (T4), A100, GA102 (RTX 3090, A40), Ada (RTX 4090) and H100, and
the data sheets of H200, A40, L4 and L40S (multiprocessors, boost clock, memory, tensor cores, L2 cache).

The A100's white paper gives 5,120 bytes per clock for its L2 cache. On an H200, Nsight Compute's L2
throughput is 100 % at 23 TB/s of hits, and at 4.5 TB/s of traffic from and to DRAM; both kinds of kernels are
in benchmarks/results/counters/limits-*.json. This project has no measurement for the other GPUs. It assumes
40 bytes per clock and multiprocessor, a little less than the A100 has, and no limit of the L2 cache for
traffic from and to DRAM.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from mini_dnn.errors import UsageError, meant

KB = 1024
WARP = 32
# Registers are allocated to a warp in these units; warps are rounded up to a multiple
REGISTER_UNIT, WARP_UNIT = 256, 4
# Bytes: shared memory is allocated to a block in these units
SHARED_UNIT = {75: 256, 80: 128, 86: 128, 89: 128, 90: 128}
RESERVED = {75: 0, 80: KB, 86: KB, 89: KB, 90: KB}  # shared memory that the system reserves for each block


@dataclass(frozen=True)
class Generation:
    """A multiprocessor of one compute capability."""

    warps: int
    blocks: int
    shared: int  # bytes
    fp32: int  # multiply-adds per clock
    products: int  # products of halves with fp32 sums, in tensor cores, per clock
    mma_share: float = 1.0  # the fraction of it that mma.sync reaches; the rest needs wgmma
    special: int = 16  # results per clock
    registers: int = 64 * KB


@dataclass(frozen=True)
class Gpu:
    """The properties of a GPU."""

    name: str
    arch: int  # compute capability times ten
    multiprocessors: int
    ghz: float  # boost clock
    gbps: float  # of the memory
    l2_mb: float  # the L2 cache's size
    l2_bytes: float = 40.0  # per clock and multiprocessor
    fill_gbps: float = math.inf  # of the L2 cache, for traffic from and to DRAM
    # If it differs from the generation's: GeForce has half the rate of products with fp32 sums
    products: int = 0

    @property
    def generation(self) -> Generation:
        """The properties of a multiprocessor."""
        return GENERATIONS[self.arch]

    @property
    def tensor_products(self) -> int:
        """Products of halves with fp32 sums per clock and multiprocessor."""
        return self.products or self.generation.products

    @property
    def balance(self) -> dict[str, float]:
        """The ridges of the roofline: FLOPs per byte at which a unit is as busy as the memory."""
        each = {"FMA units": self.generation.fp32, "tensor cores, halves": self.tensor_products}
        return {unit: 2 * count * self.clocks_per_second / (self.gbps * 1e9) for unit, count in each.items()}

    @property
    def clocks_per_second(self) -> float:
        """The clocks of all multiprocessors together."""
        return self.multiprocessors * self.ghz * 1e9


GENERATIONS = {
    75: Generation(warps=32, blocks=16, shared=64 * KB, fp32=64, products=512),
    80: Generation(warps=64, blocks=32, shared=164 * KB, fp32=64, products=1024),
    86: Generation(warps=48, blocks=16, shared=100 * KB, fp32=128, products=512),
    89: Generation(warps=48, blocks=24, shared=100 * KB, fp32=128, products=512),
    # mma.sync reaches 600 of wgmma's 930 TFLOP/s, as measured for docs/roofline.md
    90: Generation(warps=64, blocks=32, shared=228 * KB, fp32=128, products=2048, mma_share=0.65),
}
GPUS = {
    "h200": Gpu("NVIDIA H200", 90, 132, 1.98, 4800, 50, l2_bytes=88, fill_gbps=4500),
    "h100": Gpu("NVIDIA H100 SXM", 90, 132, 1.98, 3350, 50, l2_bytes=88, fill_gbps=4500),
    "a100": Gpu("NVIDIA A100 SXM 80 GB", 80, 108, 1.41, 2039, 40, l2_bytes=5120 / 108),
    "a40": Gpu("NVIDIA A40", 86, 84, 1.74, 696, 6),
    "l4": Gpu("NVIDIA L4", 89, 58, 2.04, 300, 48),
    "l40s": Gpu("NVIDIA L40S", 89, 142, 2.52, 864, 96),
    "t4": Gpu("NVIDIA T4", 75, 40, 1.59, 320, 4),
    "3090": Gpu("NVIDIA GeForce RTX 3090", 86, 82, 1.695, 936, 6, products=256),
    "4090": Gpu("NVIDIA GeForce RTX 4090", 89, 128, 2.52, 1008, 72, products=256),
}


def gpu(name: str) -> Gpu:
    """Return the GPU with this name.

    Raises
    ------
    UsageError
        There is no such GPU in the table. The message lists the names.
    """
    found = GPUS.get(name.lower().removeprefix("rtx").strip(" -_"))
    if found is None:
        hint = meant(name, GPUS)
        raise UsageError(f"--gpu {name}: no such GPU in the table{hint}; expected one of {', '.join(GPUS)}")
    return found


@dataclass(frozen=True)
class Occupancy:
    """How many blocks fit on a multiprocessor, by each limit. An unknown limit by registers is None."""

    warps: int  # per block
    limits: dict[str, int]  # blocks that fit, by the limiting resource, with Nsight Compute's names
    gpu: Gpu

    @property
    def blocks(self) -> int:
        """Blocks on a multiprocessor."""
        return min(self.limits.values())

    @property
    def percent(self) -> float:
        """Warps on a multiprocessor, as a percentage of the largest possible number."""
        return 100.0 * self.blocks * self.warps / self.gpu.generation.warps


def occupancy(gpu: Gpu, threads: int, shared_bytes: int, registers: int | None) -> Occupancy:
    """Compute how many blocks with this many threads fit on a multiprocessor.

    Parameters
    ----------
    shared_bytes
        Per block, static and dynamic.
    registers
        Per thread; None if unknown.
    """
    has = gpu.generation
    warps = -(-threads // WARP)
    limits = {"blocks": has.blocks, "warps": has.warps // warps}
    unit = SHARED_UNIT[gpu.arch]
    taken = -(-(shared_bytes + RESERVED[gpu.arch]) // unit) * unit
    limits["shared_mem"] = has.shared // taken if taken else has.blocks
    if registers:
        each = -(-registers * WARP // REGISTER_UNIT) * REGISTER_UNIT
        at_once = has.registers // each // WARP_UNIT * WARP_UNIT  # warps on the four schedulers together
        limits["registers"] = at_once // (-(-warps // WARP_UNIT) * WARP_UNIT)
    return Occupancy(warps, limits, gpu)
