"""How much memory this process may still take."""

from __future__ import annotations

import os
import resource
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
MEMINFO, STATM = Path("/proc/meminfo"), Path("/proc/self/statm")


def available_bytes() -> int:
    """Memory that this process may still take: what the system has, or its container or its limit if less."""
    found = [_of_system(), _of_group("memory.max", "memory.current")]
    found.append(_of_group("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))  # version 1
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY:
        found.append(soft - _address_space())
    return max(0, min((number for number in found if number is not None), default=0))


def _of_system() -> int | None:
    """What is free or can be freed at once; where ``/proc`` is not mounted, what is free.

    None in a confined process, which must not see what its neighbours take: its limit counts.
    """
    try:
        lines = MEMINFO.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except PermissionError:
        return None
    except (OSError, StopIteration):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_group(limit: str, usage: str) -> int | None:
    """What a control group leaves; None without one that has a limit."""
    try:
        return int((GROUPS / limit).read_text()) - int((GROUPS / usage).read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return None


def _address_space() -> int:
    """Bytes of addresses that are taken; where nobody says, as many as this process ever had in memory."""
    try:
        return int(STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
