"""Power from NVML's energy counter, with a stand-in for the counter."""

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest
from test_nvml import CALM, GPU, use
from waiting import wait_until

from mini_dnn.errors import DeviceError
from mini_dnn.measuring.energy import CHUNK_S, Meter, Tick, load, power


def ticks(watts: float, update_s: float, count: int, start_s: float = 100.0) -> list[Tick]:
    return [Tick(start_s + i * update_s, 5e6 + i * update_s * watts) for i in range(count)]


class TestPower:
    def test_energy_of_a_steady_load(self) -> None:
        found = power(ticks(350.0, 0.05, 60), 0.0, 1e9)
        assert found.watts == pytest.approx(350.0)
        assert found.seconds == pytest.approx(59 * 0.05)
        assert found.update_s == pytest.approx(0.05)
        assert found.error == pytest.approx(1 / 59)

    def test_only_what_lies_between_the_moments_counts(self) -> None:
        busy = ticks(700.0, 0.1, 11, start_s=101.0)
        idle = [Tick(100.0 + i / 10, busy[0].joules - (10 - i) * 10.0) for i in range(10)]
        found = power([*idle, *busy], 101.0, 102.0)
        assert found.watts == pytest.approx(700.0)

    def test_one_irregular_update_does_not_change_the_interval(self) -> None:
        some = ticks(100.0, 0.02, 20)
        late = Tick(some[-1].at_s + 0.5, some[-1].joules + 50.0)
        assert power([*some, late], 0.0, 1e9).update_s == pytest.approx(0.02)

    def test_too_few_updates(self) -> None:
        with pytest.raises(
            DeviceError, match=r"updated 4 times in 0\.4 s; at least 5 .*: measure for longer"
        ):
            power(ticks(100.0, 0.1, 4), 100.0, 100.4)


class Clocked:
    """A device whose runs take a set time, on a clock that stands still otherwise."""

    def __init__(self, op_s: float) -> None:
        self.now, self.queued, self.runs, self._op_s = 50.0, 0, 0, op_s
        self.longest = 0

    def op(self) -> None:
        self.queued += 1

    def synchronize(self) -> None:
        self.longest = max(self.longest, self.queued)
        self.runs += self.queued
        self.now += self.queued * self._op_s
        self.queued = 0


@pytest.mark.parametrize("op_s", [1e-5, 1e-3, 0.7])
def test_runs_follow_each_other(op_s: float) -> None:
    device = Clocked(op_s)
    found = load(device.op, device.synchronize, 1.0, 3.0, lambda: device.now)
    assert found.op_s == pytest.approx(op_s)
    assert found.since_s - 50.0 >= 1.0
    assert found.until_s == device.now
    assert 3.0 <= found.until_s - found.since_s < 3.0 + max(CHUNK_S, op_s) + 1e-9
    assert found.runs < device.runs
    assert device.longest == max(1, round(CHUNK_S / op_s))


def counting(nvml: Any, joules: Any) -> None:
    """Let the stand-in return one of these numbers of joules for each reading."""
    source = iter(joules)
    nvml.nvmlDeviceGetTotalEnergyConsumption = lambda gpu: next(source) * 1000


def test_each_update_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = use(monkeypatch, itertools.repeat(CALM))
    values = [7.0, 7.0, 7.0, 7.5, 7.5, 9.0]
    counting(nvml, itertools.chain(values, itertools.repeat(9.0)))
    since = time.perf_counter()
    with Meter(GPU, poll_s=0.001) as meter:
        wait_until(lambda: len(meter.ticks) == 2)
    assert [tick.joules for tick in meter.ticks] == [7.5, 9.0]
    assert since < meter.ticks[0].at_s < meter.ticks[1].at_s < time.perf_counter()
    assert nvml.open == 0


def test_a_counter_that_fails_once_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = use(monkeypatch, itertools.repeat(CALM))
    source = itertools.chain([1.0, 1.0, None], itertools.repeat(2.0))

    def read(gpu: str) -> float:
        value = next(source)
        if value is None:
            raise nvml.NVMLError("lost")
        return value * 1000

    nvml.nvmlDeviceGetTotalEnergyConsumption = read
    with Meter(GPU, poll_s=0.001) as meter:
        wait_until(lambda: bool(meter.ticks))
    assert [tick.joules for tick in meter.ticks] == [2.0]


def test_no_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = use(monkeypatch, itertools.repeat(CALM))

    def read(gpu: str) -> float:
        raise nvml.NVMLError("not supported")

    nvml.nvmlDeviceGetTotalEnergyConsumption = read
    gpu: Any = SimpleNamespace(pci_bus_id=GPU.pci_bus_id, description="Small GPU")
    with pytest.raises(DeviceError, match="Small GPU has no energy counter that NVML can read"):
        Meter(gpu)
    assert nvml.open == 0
    emulator: Any = SimpleNamespace(description="CPU emulator")
    with pytest.raises(DeviceError, match="NVML does not know CPU emulator"):
        Meter(emulator)
