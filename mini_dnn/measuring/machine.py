"""A description of the machine of a measurement: device, driver, clocks, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from mini_dnn.paths import ROOT

PACKAGES = ("mini-dnn", "numpy", "h5py", "pillow", "pycuda", "cuda-bindings")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the relevant packages that are installed."""
    # Imported here, because the import takes a twentieth of each command's start-up, and few commands need it
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def cpu_name() -> str:
    """Return the manufacturer's name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def load() -> dict[str, float]:
    """Return the load of the CPU: runnable threads of all programs in the last minute, and our cores."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {"load": os.getloadavg()[0], "cores": cores}


def commit() -> dict[str, Any]:
    """Return the checkout's commit, and whether files differ from it; None for both outside a git checkout.

    For a copy without its history, the commit is taken from ``MINI_DNN_COMMIT``. It is unknown then whether
    files differ, which is recorded as None.
    """
    named = os.environ.get("MINI_DNN_COMMIT")
    if named:
        return {"commit": named, "dirty": None}

    def git(*words: str) -> str | None:
        command = ["git", "-C", str(ROOT), *words]
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return None

    status = git("status", "--porcelain")
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}
