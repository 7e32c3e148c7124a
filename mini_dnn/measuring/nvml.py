"""A GPU's clocks, temperature, power and throttling, from NVML: now, or during a measurement."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mini_dnn.device.base import Device

INTERVAL_S = 0.02
IDLE = 0x1  # nvmlClocksThrottleReasonGpuIdle: low clocks then do not show the clocks of a kernel


@dataclass(frozen=True)
class Reading:
    """The values of the sensors at one moment."""

    sm_mhz: int
    memory_mhz: int
    temperature_c: int
    power_w: float
    throttle_reasons: int  # NVML's bits


class Nvml:
    """NVML, open for one GPU.

    Parameters
    ----------
    bus
        PCI bus id.

    Raises
    ------
    ImportError, pynvml.NVMLError
        NVML is not available, or does not know the GPU.
    """

    def __init__(self, bus: str) -> None:
        import pynvml

        self._nvml = pynvml
        pynvml.nvmlInit()
        try:
            self._gpu = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
            driver = pynvml.nvmlSystemGetDriverVersion()
        except pynvml.NVMLError:
            pynvml.nvmlShutdown()
            raise
        self.driver = driver.decode() if isinstance(driver, bytes) else driver

    def read(self) -> Reading | None:
        """Read all sensors. Return None if one of them does not answer."""
        nvml, gpu = self._nvml, self._gpu
        try:
            return Reading(
                sm_mhz=nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM),
                memory_mhz=nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM),
                temperature_c=nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),
                power_w=nvml.nvmlDeviceGetPowerUsage(gpu) / 1000,
                throttle_reasons=nvml.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
            )
        except nvml.NVMLError:
            return None

    def energy_j(self) -> float | None:
        """Return the energy in joules since the driver was loaded, or None if it is not counted."""
        try:
            return self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._gpu) / 1000
        except self._nvml.NVMLError:
            return None

    def close(self) -> None:
        """Close NVML."""
        self._nvml.nvmlShutdown()


def open_nvml(device: Device | None) -> Nvml | None:
    """Open NVML for a device. Return None for other devices than GPUs, and if NVML is not available."""
    bus = getattr(device, "pci_bus_id", None)
    if bus is None:
        return None
    try:
        import pynvml
    except ImportError:
        return None
    try:
        return Nvml(bus)
    except pynvml.NVMLError:
        return None


def gpu_state(device: Device) -> dict[str, Any] | None:
    """Return the present state of a GPU's sensors, or None without a GPU or NVML."""
    with Watch(device, threading.TIMEOUT_MAX) as watch:  # it ends before the first interval
        pass
    return watch.state


class Watch:
    """Reads a GPU's sensors while its block runs: at the start, at the end, and in a thread in between.

    Parameters
    ----------
    device
        The GPU. For other devices, and without NVML, nothing is read.
    interval_s
        Seconds between two readings.
    """

    def __init__(self, device: Device | None, interval_s: float = INTERVAL_S) -> None:
        self._nvml = open_nvml(device)
        self._interval_s = interval_s
        self._readings: list[Reading] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    @property
    def state(self) -> dict[str, Any] | None:
        """All readings combined: see `summary`. None if nothing was read."""
        if not self._nvml or not self._readings:
            return None
        return {"driver": self._nvml.driver, **summary(self._readings)}

    def __enter__(self) -> Watch:
        if self._nvml:
            self._read()
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._nvml:
            self._over.set()
            self._thread.join()
            self._read()
            self._nvml.close()

    def _watch(self) -> None:
        while not self._over.wait(self._interval_s):
            self._read()

    def _read(self) -> None:
        assert self._nvml is not None, "only called where there is one"
        reading = self._nvml.read()
        if reading:
            self._readings.append(reading)


def summary(readings: Sequence[Reading]) -> dict[str, Any]:
    """Combine readings: lowest clocks, highest temperature and power, every reason for throttling.

    Readings of an idle GPU do not count unless there are no others.
    """
    busy = [reading for reading in readings if not reading.throttle_reasons & IDLE] or readings
    reasons = 0
    for reading in busy:
        reasons |= reading.throttle_reasons
    return {
        "readings": len(busy),
        "sm_mhz": min(reading.sm_mhz for reading in busy),
        "memory_mhz": min(reading.memory_mhz for reading in busy),
        "temperature_c": max(reading.temperature_c for reading in busy),
        "power_w": max(reading.power_w for reading in busy),
        "throttle_reasons": hex(reasons),
    }
