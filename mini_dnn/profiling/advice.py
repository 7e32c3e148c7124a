"""Explain a kernel's counters, and suggest what to try next."""

from __future__ import annotations

import re
from math import prod

from mini_dnn.profiling.ncu import Kernel
from mini_dnn.profiling.stalls import STALLS

NEAR_PEAK, BUSY, LOW = 80.0, 60.0, 50.0  # per cent of a unit's peak rate
MANY_CONFLICTS = 0.2  # fraction of the accesses to shared memory
# Bytes of a sector; with fewer used bytes per loaded sector, accesses count as uncoalesced
SECTOR_BYTES, POOR_SECTORS = 32, 16.0
FEW_LOADS = 0.1  # fraction of all bytes that a kernel moves; below it, bulk copies do most of the loading
WARP = 32  # threads; a launch of one warp has no other warps to overlap with, and is short
MAX_HINTS = 3
# Endings of names; a report has one of the two pairs, depending on the version
DRAM_WAYS = ("_read", "_write", "_op_read", "_op_write")
LOADS_AND_STORES = ("_op_ld", "_op_st")
STALL = re.compile(r"smsp__average_warps_issue_stalled_(?P<reason>\w+)_per_issue_active\.ratio")
# These are not stalls, or are counted elsewhere
NO_STALL = re.compile(r"selected|\w+_not_issued|\w+_pipe_(?!throttle)\w+")
LIMIT = "launch__occupancy_limit_"
TENSOR_PIPE = r"sm__(inst_executed_)?pipe_tensor\w*\.avg\.pct_of_peak_sustained_(active|elapsed)"
FMA_PIPE = r"sm__(inst_executed_)?pipe_fma\w*\.avg\.pct_of_peak_sustained_(active|elapsed)"
UNITS = {  # unit names, and the metrics that tell how busy a unit was, best metric first
    "DRAM": (
        "dram__throughput.avg.pct_of_peak_sustained_elapsed",
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "L2 cache": ("lts__throughput.avg.pct_of_peak_sustained_elapsed",),
    "L1 cache and shared memory": (
        "l1tex__throughput.avg.pct_of_peak_sustained_active",
        "l1tex__throughput.avg.pct_of_peak_sustained_elapsed",
    ),
    "arithmetic and instruction issue": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
}
LIMITERS = {
    "registers": (
        "registers",
        "fewer accumulators per thread, or __launch_bounds__, let an SM hold more blocks",
    ),
    "shared_mem": ("shared memory", "smaller tiles let an SM hold more blocks"),
    "warps": ("warps (the SM is full)", ""),
    "blocks": ("blocks an SM can hold", "more threads per block fill it better"),
    "barriers": ("barriers", "fewer blocks with more threads need fewer barriers"),
}


def describe(kernel: Kernel) -> list[str]:
    """Describe one kernel in lines.

    Figures that the report lacks, or that are not meaningful, are left out.
    """
    launch = f"grid {kernel.grid}, block {kernel.block}" if kernel.grid and kernel.block else ""
    rows = {"time": _time(kernel)}
    rows |= {} if _is_tiny(kernel) else _rows(kernel)
    lines = [f"{kernel.name}  {launch}".rstrip()]
    lines += [f"  {name:<11}{text}" for name, text in rows.items() if text]
    return lines + [f"  {'try':<11}{hint}" for hint in hints(kernel)]


def _rows(kernel: Kernel) -> dict[str, str]:
    return {
        "busiest": _busiest(kernel),
        "memory": _memory(kernel),
        "arithmetic": _arithmetic(kernel),
        "occupancy": _occupancy(kernel),
        "waiting": _waiting(kernel),
    }


def hints(kernel: Kernel) -> list[str]:
    """Return up to three hints, most promising first. There are none for a launch of a few threads."""
    if _is_tiny(kernel):
        return []
    found = []
    unit, percent = max(_units(kernel).items(), key=lambda item: item[1], default=("", 0.0))
    if unit == "DRAM" and percent >= BUSY:
        found.append(
            "it is bound by memory: move fewer bytes (fuse kernels, smaller types); higher occupancy does "
            "not help"
        )
    if (kernel.first("launch__waves_per_multiprocessor") or 1.0) < 1.0:
        found.append("the grid does not fill the GPU once: use more blocks, or a larger batch")
    if _conflicts(kernel) > MANY_CONFLICTS:
        found.append(
            "bank conflicts: pad the rows of the shared-memory tile so that columns are in different banks"
        )
    used = _sector_bytes(kernel)
    if used is not None and used < POOR_SECTORS:
        found.append("loads are scattered: let neighbouring threads read neighbouring addresses")
    reason, _ = _top_stall(kernel)
    if reason in STALLS and not (unit == "DRAM" and percent >= NEAR_PEAK):
        found.append(STALLS[reason].hint)
    limiter = _limiters(kernel)
    if percent < BUSY and (_theoretical(kernel) or 100.0) < LOW and limiter:
        found.append(LIMITERS.get(limiter[0], ("", ""))[1])
    return [hint for hint in found if hint][:MAX_HINTS]


def _time(kernel: Kernel) -> str:
    seconds = kernel.first("gpu__time_duration.sum", "gpu__time_duration_measured_user.sum")
    if seconds is None:
        return ""
    return f"{seconds * 1e3:.3f} ms under the profiler with cold caches; 'run.py bench' measures the op time"


def _units(kernel: Kernel) -> dict[str, float]:
    busy = {unit: kernel.first(*metrics) for unit, metrics in UNITS.items()}
    return {unit: percent for unit, percent in busy.items() if percent is not None}


def _busiest(kernel: Kernel) -> str:
    units = _units(kernel)
    if not units:
        return ""
    unit, percent = max(units.items(), key=lambda item: item[1])
    if percent >= NEAR_PEAK:
        verdict = "near its peak, so this is the limit"
    elif percent >= BUSY:
        verdict = "busy, and likely the limit"
    else:
        verdict = "no unit is busy, so warps wait: latency is the limit"
    return f"{unit}, at {percent:.0f}% of its peak: {verdict}"


def _memory(kernel: Kernel) -> str:
    units, parts = _units(kernel), []
    seconds = kernel.first("gpu__time_duration.sum")
    rate = kernel.total("dram__bytes", DRAM_WAYS) / seconds if seconds else 0.0
    if "DRAM" in units:
        parts.append(
            f"DRAM {units['DRAM']:.0f}% of its peak" + (f" ({rate / 1e9:,.0f} GB/s)" if rate else "")
        )
    elif rate:
        parts.append(f"DRAM {rate / 1e9:,.0f} GB/s")
    for unit, hit in (
        ("L2 cache", "lts__t_sector_hit_rate.pct"),
        ("L1 cache and shared memory", "l1tex__t_sector_hit_rate.pct"),
    ):
        hits = kernel.first(hit)
        if unit in units:
            parts.append(f"{unit} {units[unit]:.0f}%" + (f" ({hits:.0f}% hits)" if hits is not None else ""))
    used = _sector_bytes(kernel)
    if used is not None:
        parts.append(f"{used:.0f} of every 32 loaded bytes are used")
    conflicts = _conflicts(kernel)
    if conflicts >= 0.01:
        parts.append(f"bank conflicts are {conflicts:.0%} of the accesses to shared memory")
    return "; ".join(parts)


def _arithmetic(kernel: Kernel) -> str:
    pipes = {
        "SM": kernel.first(*UNITS["arithmetic and instruction issue"]),
        "FMA units": kernel.largest(FMA_PIPE),
        "tensor cores": kernel.largest(TENSOR_PIPE),
    }
    return ", ".join(f"{name} {percent:.0f}%" for name, percent in pipes.items() if percent is not None)


def _theoretical(kernel: Kernel) -> float | None:
    return kernel.first("sm__maximum_warps_per_active_cycle_pct")


def _limiters(kernel: Kernel) -> list[str]:
    """Return the resources that limit the number of blocks on an SM most."""
    limits = {name.removeprefix(LIMIT): v for name, v in kernel.metrics.items() if name.startswith(LIMIT)}
    return [name for name, blocks in limits.items() if blocks == min(limits.values())]


def _occupancy(kernel: Kernel) -> str:
    possible = _theoretical(kernel)
    achieved = kernel.first("sm__warps_active.avg.pct_of_peak_sustained_active")
    parts = [f"{possible:.0f}% possible"] if possible is not None else []
    parts += [f"{achieved:.0f}% achieved"] if achieved is not None else []
    limiters = _limiters(kernel)
    if limiters:
        blocks = kernel.metrics[LIMIT + limiters[0]]
        names = " and ".join(LIMITERS.get(name, (name.replace("_", " "), ""))[0] for name in limiters)
        parts.append(f"{blocks:.0f} block{'s' * (blocks != 1)} per SM, limited by {names}")
    registers = kernel.first("launch__registers_per_thread")
    parts += [f"{registers:.0f} registers per thread"] if registers is not None else []
    shared = kernel.first("launch__shared_mem_per_block")
    parts += [f"{shared / 1024:.1f} KB of shared memory per block"] if shared is not None else []
    return ", ".join(parts)


def _stalls(kernel: Kernel) -> dict[str, float]:
    found = {}
    for name, value in kernel.metrics.items():
        match = STALL.fullmatch(name)
        if match and not NO_STALL.fullmatch(match["reason"]):
            found[match["reason"]] = value
    return found


def _top_stall(kernel: Kernel) -> tuple[str, float]:
    """Return the most common stall reason and its share of all stalls; ``("", 0.0)`` if there is none."""
    stalls = _stalls(kernel)
    total = sum(stalls.values())
    if not total:
        return "", 0.0
    reason = max(stalls, key=stalls.__getitem__)
    return reason, stalls[reason] / total


def _waiting(kernel: Kernel) -> str:
    reason, share = _top_stall(kernel)
    if not reason:
        return ""
    what = STALLS[reason].waits_for if reason in STALLS else reason.replace("_", " ")
    return f"{share:.0%} of a warp's stalls are waits for {what} ({reason})"


def _is_tiny(kernel: Kernel) -> bool:
    """Whether the launch has so few threads that advice makes no sense, as for one that sets a counter."""
    threads = kernel.first("launch__thread_count")
    if threads is None and kernel.grid and kernel.block:
        threads = prod(map(int, re.findall(r"\d+", f"{kernel.grid} {kernel.block}")))
    return threads is not None and threads <= WARP


def _sector_bytes(kernel: Kernel) -> float | None:
    """Return the bytes used of each loaded sector, or None if these loads are a small part of all traffic."""
    sectors = kernel.first("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
    moved = kernel.total("dram__bytes", DRAM_WAYS)
    if sectors is not None and SECTOR_BYTES * sectors < FEW_LOADS * moved:
        return None
    return kernel.first("smsp__sass_average_data_bytes_per_sector_mem_global_op_ld.ratio")


def _conflicts(kernel: Kernel) -> float:
    """Return bank conflicts as a fraction of the wavefronts of shared memory; 0 if the report lacks one."""
    conflicts = kernel.total("l1tex__data_bank_conflicts_pipe_lsu_mem_shared", LOADS_AND_STORES)
    wavefronts = kernel.total("l1tex__data_pipe_lsu_wavefronts_mem_shared", LOADS_AND_STORES)
    return conflicts / wavefronts if wavefronts else 0.0
