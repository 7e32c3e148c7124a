"""Queries of NVML, with a stand-in for it."""

import itertools
import sys
import threading
import time
from collections.abc import Iterable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mini_dnn.measuring.nvml import Reading, Watch, gpu_state, summary

GPU: Any = SimpleNamespace(pci_bus_id="0000:01:00.0")
CALM = Reading(1980, 3201, 40, 130.0, 0x0)


class NVMLError(Exception):
    pass


def stand_in(readings: Iterable[Reading | None], driver: str | bytes = "580.1") -> ModuleType:
    """An NVML whose sensors return these readings in order. None means that a sensor does not answer."""
    nvml: Any = ModuleType("pynvml")
    source = iter(readings)
    nvml.NVMLError = NVMLError
    nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM, nvml.NVML_TEMPERATURE_GPU = 1, 2, 0
    nvml.open = 0
    nvml.threads = set()

    def count(by: int) -> None:
        nvml.open += by

    def by_bus(bus: str) -> str:
        if bus != GPU.pci_bus_id:
            raise NVMLError("not found")
        return "gpu"

    def clock(gpu: str, which: int) -> int:
        assert gpu == "gpu"
        assert nvml.open == 1
        nvml.threads.add(threading.get_ident())
        if which == nvml.NVML_CLOCK_SM:
            nvml.now = next(source)
        if nvml.now is None:
            raise NVMLError("lost")
        return int(nvml.now.sm_mhz if which == nvml.NVML_CLOCK_SM else nvml.now.memory_mhz)

    nvml.nvmlInit = lambda: count(1)
    nvml.nvmlShutdown = lambda: count(-1)
    nvml.nvmlDeviceGetHandleByPciBusId = by_bus
    nvml.nvmlSystemGetDriverVersion = lambda: driver
    nvml.nvmlDeviceGetClockInfo = clock
    nvml.nvmlDeviceGetTemperature = lambda gpu, which: nvml.now.temperature_c
    nvml.nvmlDeviceGetPowerUsage = lambda gpu: nvml.now.power_w * 1000
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda gpu: nvml.now.throttle_reasons
    return nvml


def use(monkeypatch: pytest.MonkeyPatch, readings: Iterable[Reading | None], **more: Any) -> Any:
    nvml = stand_in(readings, **more)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    return nvml


def test_the_worst_counts() -> None:
    hot = Reading(1500, 3201, 80, 650.0, 0x4)
    slow = Reading(1700, 2600, 60, 300.0, 0x40)
    assert summary([CALM, hot, slow]) == {
        "readings": 3,
        "sm_mhz": 1500,
        "memory_mhz": 2600,
        "temperature_c": 80,
        "power_w": 650.0,
        "throttle_reasons": "0x44",
    }


def test_an_idle_gpu_says_nothing_of_a_kernel() -> None:
    idle = Reading(345, 3201, 30, 70.0, 0x1)
    assert summary([idle, CALM])["sm_mhz"] == 1980
    assert summary([idle, CALM])["throttle_reasons"] == "0x0"
    assert summary([idle])["sm_mhz"] == 345


def test_what_happens_only_in_between_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    throttled = Reading(1200, 3201, 85, 690.0, 0x20)
    nvml = use(monkeypatch, itertools.chain([CALM, throttled], itertools.repeat(CALM)))
    with Watch(GPU, interval_s=0.001) as watch:
        while len(nvml.threads) < 2:
            time.sleep(0.001)  # the measurement
    state = watch.state
    assert state is not None
    assert state["driver"] == "580.1"
    assert (state["sm_mhz"], state["throttle_reasons"]) == (1200, "0x20")
    assert state["readings"] > 2
    assert nvml.open == 0
    read = state["readings"]
    time.sleep(0.01)
    assert watch.state is not None
    assert watch.state["readings"] == read  # the thread has ended


def test_a_short_measurement_is_read_before_and_after(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, [CALM, Reading(1900, 3201, 41, 140.0, 0x0)], driver=b"570.2")
    state = gpu_state(GPU)
    assert state is not None
    assert (state["readings"], state["sm_mhz"], state["driver"]) == (2, 1900, "570.2")


def test_sensors_that_do_not_answer_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = use(monkeypatch, [None, None])
    assert gpu_state(GPU) is None
    assert nvml.open == 0
    use(monkeypatch, [None, CALM])
    state = gpu_state(GPU)
    assert state is not None
    assert state["readings"] == 1


def test_an_error_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = use(monkeypatch, itertools.repeat(CALM))
    with pytest.raises(KeyError), Watch(GPU):
        raise KeyError
    assert nvml.open == 0


def test_no_gpu_no_nvml(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = use(monkeypatch, itertools.repeat(CALM))
    assert gpu_state(SimpleNamespace()) is None  # type: ignore[arg-type]
    assert gpu_state(SimpleNamespace(pci_bus_id="other")) is None  # type: ignore[arg-type]
    assert nvml.open == 0
    monkeypatch.setitem(sys.modules, "pynvml", None)  # as if it were not installed
    assert gpu_state(GPU) is None
