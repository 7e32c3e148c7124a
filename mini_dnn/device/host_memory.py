"""The memory that this process may still allocate."""

from __future__ import annotations

import os
import resource
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
MEMINFO, STATM = Path("/proc/meminfo"), Path("/proc/self/statm")


def available_bytes() -> int:
    """Return how much memory this process may still allocate.

    It is the least of what the system, the container and the process's limit allow.
    """
    found = [_of_system()]
    found.append(_of_group("memory.max", "memory.current", "memory.stat", "inactive_file"))
    limit, usage, statistics = (
        f"memory/memory.{name}" for name in ("limit_in_bytes", "usage_in_bytes", "stat")
    )
    found.append(_of_group(limit, usage, statistics, "total_inactive_file"))  # cgroups version 1
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(soft - _address_space())
    return max(0, min((number for number in found if number is not None), default=0))


def _of_system() -> int | None:
    """Memory that is free or can be freed immediately. Without ``/proc``, only free memory.

    The result is None in a confined process, which must not see the memory use of others: its own limit
    counts.
    """
    try:
        lines = MEMINFO.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except PermissionError:
        return None
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_group(limit: str, usage: str, statistics: str, cached: str) -> int | None:
    """What a control group still allows, or None without a limit."""
    try:
        free = int((GROUPS / limit).read_text()) - int((GROUPS / usage).read_text())
    except (OSError, ValueError):  # the file does not exist, or contains "max"
        return None
    return free + _counted(GROUPS / statistics, cached)


def _counted(statistics: Path, name: str) -> int:
    """A number in a control group's statistics. The system frees cached files before memory runs out."""
    try:
        rows = (line.split() for line in statistics.read_text().splitlines())
        return next(int(row[1]) for row in rows if row[:1] == [name])
    except (OSError, StopIteration):
        return 0


def _address_space() -> int:
    """The size of the used address space, or else the largest memory use of this process so far."""
    try:
        return int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
