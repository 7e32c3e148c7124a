"""Profiles without a GPU: the counters of the emulator, and what they mean for a chosen GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from mini_dnn.checking.launches import shared_limit
from mini_dnn.checking.limits import verdict
from mini_dnn.device.base import Defines
from mini_dnn.device.emulator.build import words_of
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.counted import CountedEmulator
from mini_dnn.device.emulator.emulator import EmulatorModule
from mini_dnn.errors import MiniDnnError
from mini_dnn.measuring.measure import pointing_to_check
from mini_dnn.profiling import advice
from mini_dnn.profiling.bracket import Bracket, Larger, bracket, enlarged, moved_bytes, together
from mini_dnn.profiling.counters import SECTOR_BYTES, SHARED_ACCESSES, Access, Counters
from mini_dnn.profiling.gpus import Gpu, Occupancy, occupancy
from mini_dnn.profiling.ncu import Kernel
from mini_dnn.profiling.totals import counters
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant

MOST_FLOPS = 2_000_000_000  # of a problem, which takes some minutes
SCHEMA = "counters/2"  # unlike 1, it has the ends of each bracket
WORST = 3  # lines that are listed
MANY = 0.02  # fraction of a kernel's work; a line with less is not listed
SCATTERED = 2  # times the smallest number of sectors; neighbours that are not aligned touch fewer
WORK = {"ffma": "FMAs", "fadd": "additions", "fmul": "products", "special": "special functions"}
FULL = 31.5  # active lanes that count as a full warp
CURES = {
    "sectors": "let neighbouring threads use neighbouring addresses",
    "unaligned": "let each access of a warp begin at a multiple of 32 bytes",
    "conflicts": "pad the rows of the array, so that the words of the lanes are in different banks",
    "splits": "let all lanes of a warp take the same side: branch on a value that is the same for 32 threads",
}


@dataclass(frozen=True)
class Profile:
    """The work of a variant's kernels for one problem, with a bracket of their time."""

    problem: Any
    kernels: tuple[Counters, ...]
    gpu: Gpu
    larger: Any = None  # the problem that the brackets are for, if it differs
    enlarged: Larger | None = None  # how much larger that problem is

    def bracket(self, kernel: Counters) -> Bracket:
        """Bracket the time of one kernel's launches."""
        return bracket(kernel, self.gpu, self.enlarged, registers(kernel, self.gpu.arch))

    @property
    def together(self) -> Bracket:
        """Bracket the time of all launches."""
        return together([self.bracket(kernel) for kernel in self.kernels])


class _Older(CountedEmulator):
    """Compiles kernels in the form for GPUs before compute capability 9.0: see ``mini_dnn/ptx.cuh``."""

    def compile(self, source: Path, defines: Defines) -> EmulatorModule:
        """Compile a kernel file with counters."""
        return super().compile(source, {**defines, "PTX_NO_BULK": 1, "PTX_NO_WGMMA": 1})


def count(
    variant: Variant, problem: Any, threads: int | None = None, arch: int = CountedEmulator.arch
) -> tuple[Counters, ...]:
    """Run a variant once in the emulator, on random data, and count.

    Parameters
    ----------
    arch
        The compute capability, times ten. Some variants have other tiles and instructions on older GPUs.

    Raises
    ------
    MiniDnnError
        The variant does not run in the emulator, or needs a newer GPU.
    """
    with closing(CountedEmulator(threads) if arch >= CountedEmulator.arch else _Older(threads)) as device:
        device.arch, device.max_shared_bytes = arch, shared_limit(arch)
        with pointing_to_check(variant, problem):
            run(variant, problem, variant.operation.inputs(problem, seed=0), device)
        return tuple(counters(device.launches))


def profile(variant: Variant, problem: Any, gpu: Gpu, larger: Any = None) -> Profile:
    """Count a variant's work and prepare brackets for ``gpu``.

    Parameters
    ----------
    larger
        The same problem with a larger batch, for which the brackets are computed.
    """
    kernels = count(variant, problem, arch=gpu.arch)
    if larger is None or larger.batch == problem.batch or variant.limit_for(larger):
        return Profile(problem, kernels, gpu)
    few, many = (variant.planned(one, shared_limit(gpu.arch)) for one in (problem, larger))
    return Profile(problem, kernels, gpu, larger, enlarged(few, many, larger.batch / problem.batch))


@cache
def _registers(source: Path, defines: tuple[tuple[str, Any], ...], arch: int) -> Mapping[str, int]:
    """Registers per thread of each kernel, from nvcc's report; empty if nvcc is not installed."""
    compiler = find_compiler()
    known = dict(defines)
    try:
        said = verdict(source, known, arch, lambda: words_of(source, known, compiler), ask=True)
    except MiniDnnError:
        return {}
    return said.registers


def registers(kernel: Counters, arch: int) -> int | None:
    """Return the registers per thread, or None if they are unknown."""
    found = _registers(Path(kernel.source), tuple(sorted(kernel.defines.items())), arch)
    return found.get(kernel.kernel)


def summary(name: str, found: Profile) -> list[str]:
    """Describe a problem in lines: each kernel, and the bracket of all kernels together."""
    lines = [f"{name:<9} {found.problem}"]
    if found.larger:
        entries = f"{found.problem.batch} of {found.larger.batch:,} entries"
        lines.append(f"{'times':<10}for {found.larger}, scaled from {entries}")
    for kernel in found.kernels:
        lines += ["", *described(kernel, found)]
    moved = sum(moved_bytes(kernel, {}) for kernel in found.kernels)
    balance = ", ".join(f"{flops:,.0f} ({unit})" for unit, flops in found.gpu.balance.items())
    if moved:
        ratio = f"{found.problem.flops / moved:,.1f} FLOPs per byte of global memory that its kernels move"
        lines += ["", f"{name}: {ratio}; {found.gpu.name} is balanced at {balance}."]
    times = found.together
    verdict = f"limited by {times.limiter} ({times.sure})"
    lines += ["", f"{name}: {_bracket(times)} on {found.gpu.name}, {verdict}."]
    return [*lines, "This range is an estimate. To measure op times on a GPU, use 'run.py bench'."]


def described(kernel: Counters, found: Profile) -> list[str]:
    """Describe one kernel in lines: those of `advice.describe`, and facts that only the emulator knows."""
    gpu = found.gpu
    known = registers(kernel, gpu.arch)
    fits = occupancy(gpu, kernel.threads, kernel.shared_bytes, known)
    head, *rest = advice.describe(_as_kernel(kernel, fits, known))
    hints = [line for line in rest if line.startswith("  try")]
    times = found.bracket(kernel)
    rows = {
        "occupancy": _occupancy(fits, known),
        "lanes": _lanes(kernel),
        "work": _work(kernel),
        "time": _times(times),
        "limit": f"{times.limiter}, {times.sure} (then {times.second})",
    }
    lines = [head + (f", {kernel.launches} launches" if kernel.launches > 1 else "")]
    lines += [line for line in rest if line not in hints and not line.startswith("  occupancy")]
    lines += [f"  {name:<11}{text}" for name, text in rows.items() if text]
    return [*lines, *hints, *(f"  {'line':<11}{text}" for text in worst(kernel))]


def as_json(variant: Variant, profiles: Mapping[str, Profile]) -> dict[str, Any]:
    """All counters by kernel, line and array, and the estimated times, as values for a file."""
    return {
        "schema": SCHEMA,
        "variant": variant.name,
        "problems": {
            name: {
                "problem": found.problem.text,
                "gpu": found.gpu.name,
                "bracket_for": (found.larger or found.problem).text,
                "bracket": _bracket_json(found.together),
                "kernels": [_kernel_json(kernel, found) for kernel in found.kernels],
            }
            for name, found in profiles.items()
        },
    }


def _kernel_json(kernel: Counters, found: Profile) -> dict[str, Any]:
    return {
        **asdict(kernel),
        "active_lanes": kernel.active_lanes,
        "metrics": dict(kernel.metrics),
        "products": dict(kernel.products),
        "calls": [{**asdict(call), "operand_bytes": call.operand_bytes} for call in kernel.calls],
        "moved_bytes": moved_bytes(kernel, {}),
        "registers": registers(kernel, found.gpu.arch),
        "bracket": _bracket_json(found.bracket(kernel)),
    }


def _bracket_json(times: Bracket) -> dict[str, Any]:
    """The estimated range of a time in milliseconds, the time of each unit, and the limiter."""
    ends = {"low_ms": times.low_ms, "likely_ms": times.likely_ms, "high_ms": times.high_ms}
    return {**ends, "units_ms": times.units, "limiter": times.limiter}


def worst(kernel: Counters) -> list[str]:
    """List the worst lines: sectors beyond the ideal, bank conflicts, and branches at which warps diverge."""
    loads = [access for access in kernel.accesses if access.memory == "global"]
    shared = [a for a in kernel.accesses if a.memory == "shared" and a.operation in SHARED_ACCESSES]
    found = [
        *_most(loads, "sectors", "ideal_sectors", "sectors"),
        *_most(shared, "wavefronts", "ideal_wavefronts", "conflicts"),
    ]
    entered = kernel.block_instructions
    splits = sorted(kernel.branches, key=lambda branch: -branch.splits)[:1]
    for branch in splits:
        if branch.line and branch.splits > 2 * MANY * entered and kernel.active_lanes < FULL:
            place = f"{Path(branch.file).name}:{branch.line}"
            times = f"{branch.splits:,} times"
            found.append(f"{place}: the lanes of a warp diverge {times}: {CURES['splits']}")
    return found


def _most(accesses: Sequence[Access], field: str, ideal: str, cure: str) -> list[str]:
    total = sum(getattr(access, field) for access in accesses)
    excess = {access: getattr(access, field) - getattr(access, ideal) for access in accesses}
    chosen = sorted(excess, key=lambda access: -excess[access])[:WORST]
    unit = "sectors" if field == "sectors" else "wavefronts"
    lines = []
    for a in (a for a in chosen if excess[a] > MANY * total):
        found, least = getattr(a, field), getattr(a, ideal)
        what = "unaligned" if cure == "sectors" and found < SCATTERED * least else cure
        place = f"{Path(a.file).name}:{a.line} {a.operation} of {a.array}"
        lines.append(f"{place}: {found:,} {unit}, {least:,} would be enough: {CURES[what]}")
    return lines


def _as_kernel(kernel: Counters, fits: Occupancy, known: int | None) -> Kernel:
    """The counters in the form that `advice` expects. Bank conflicts are those that addresses cause."""
    wavefronts = kernel.sum("wavefronts", "shared", *SHARED_ACCESSES)
    ideal = kernel.sum("ideal_wavefronts", "shared", *SHARED_ACCESSES)
    metrics: dict[str, float] = {
        "launch__thread_count": float(kernel.threads * kernel.blocks),
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": wavefronts,
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": wavefronts - ideal,
        "sm__maximum_warps_per_active_cycle_pct": fits.percent,
        "launch__waves_per_multiprocessor": 1.0,
    }
    # One sector for all lanes is the minimum, however little of it they use
    loads = [a for a in kernel.accesses if (a.memory, a.operation) == ("global", "load")]
    loads = [access for access in loads if access.sectors > access.instructions]
    sectors = sum(access.sectors for access in loads)
    if sectors:
        used = min(sum(access.used_bytes for access in loads) / sectors, float(SECTOR_BYTES))
        metrics["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] = sectors
        metrics["smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio"] = used
    metrics |= {advice.LIMIT + name: float(blocks) for name, blocks in fits.limits.items()}
    if known:
        metrics["launch__registers_per_thread"] = known
    return Kernel(kernel.kernel, str(kernel.grid), str(kernel.block), metrics)


def _occupancy(fits: Occupancy, known: int | None) -> str:
    least = [advice.LIMITERS[name][0] for name, blocks in fits.limits.items() if blocks == fits.blocks]
    if not fits.blocks:
        needed = " and ".join(least)
        return f"none: a block needs more {needed} than an SM of {fits.gpu.name} has, so it cannot run there"
    blocks = f"{fits.blocks} block{'s' * (fits.blocks > 1)} per SM"
    text = f"{fits.percent:.0f}% possible on {fits.gpu.name}, {blocks}, limited by {' and '.join(least)}"
    if known is None:
        return text + "; without nvcc, the number of registers is unknown and may allow fewer"
    return text + f"; {known} registers per thread"


def _lanes(kernel: Counters) -> str:
    splits = sum(branch.splits for branch in kernel.branches)
    times = f"{splits:,} time{'s' * (splits != 1)}"
    return f"{kernel.active_lanes:.1f} of 32 are active on average; warps diverge {times}"


def _work(kernel: Counters) -> str:
    counted = {name: kernel.operations(kind) for kind, name in WORK.items()}
    parts = [f"{count:,} {name}" for name, count in counted.items() if count]
    parts += [f"{count:,} products by {name}" for name, count in kernel.products.items()]
    operands = sum(call.operand_bytes for call in kernel.calls)
    parts += [f"{operands:,} bytes of their operands from shared memory"] if operands else []
    return ", ".join(parts)


def _times(times: Bracket) -> str:
    units = sorted(times.units.items(), key=lambda item: -item[1])
    named = ", ".join(f"{name} {ms:.3g} ms" for name, ms in units[:WORST] if ms)
    return f"{_bracket(times)} ({named})"


def _bracket(times: Bracket) -> str:
    ends = f"{times.low_ms:.3g} to {times.high_ms:.3g} ms"
    return f"{ends}, likely {times.likely_ms:.3g} ms"
