"""What a measurement ran on: device, driver, clocks, versions, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from mini_dnn.device.base import Device
from mini_dnn.variant import ROOT

PACKAGES = ("mini-dnn", "numpy", "h5py", "pillow", "pycuda")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that matter; those that are not installed are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def cpu_name() -> str:
    """The processor as its maker calls it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def commit() -> dict[str, Any]:
    """The checkout's commit, and whether files differ from it; None for both outside a git checkout.

    A copy of the tree that left its history behind gets its commit from ``MINI_DNN_COMMIT``; whether it
    was changed since is not known, and recorded as None.
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


def gpu_state(device: Device) -> dict[str, Any] | None:
    """Clocks, temperature, power and reasons for throttling of a GPU now; None without a GPU or NVML."""
    bus = getattr(device, "pci_bus_id", None)
    if bus is None:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    try:
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
        return {
            "driver": _text(pynvml.nvmlSystemGetDriverVersion()),
            "sm_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "throttle_reasons": hex(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
        }
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
