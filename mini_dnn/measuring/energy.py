"""The power of a GPU under a steady load, from NVML's energy counter."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mini_dnn.device.base import Device
from mini_dnn.errors import DeviceError
from mini_dnn.measuring.nvml import open_nvml
from mini_dnn.measuring.records import Level

POLL_S = 0.002  # far shorter than the time between two updates of the counter
LEAST_TICKS = 5  # updates of the counter that a power measurement needs
CHUNK_S = 0.2  # work that is queued at once: long compared with a wait for its end, short compared with a run


@dataclass(frozen=True)
class Tick:
    """A moment at which the counter had increased."""

    at_s: float
    joules: float


@dataclass(frozen=True, kw_only=True)
class Power:
    """A mean power.

    Parameters
    ----------
    watts
        The increase of the counter from its first update to its last one, divided by the time in between.
    seconds
        The time in between.
    update_s
        The median time between two updates.
    error
        The possible error, as a fraction: one update more or less.
    """

    watts: Level
    seconds: Level
    update_s: Level
    error: Level


@dataclass(frozen=True)
class Load:
    """Consecutive runs of an op between two moments."""

    runs: int
    since_s: float
    until_s: float

    @property
    def op_s(self) -> float:
        """The time of one run in seconds."""
        return (self.until_s - self.since_s) / self.runs


class Meter:
    """Reads a GPU's energy counter in a thread while its block runs, and records each update.

    Parameters
    ----------
    device
        The GPU.
    poll_s
        Seconds between two readings of the counter.

    Raises
    ------
    DeviceError
        NVML or its energy counter is not available.
    """

    def __init__(self, device: Device, poll_s: float = POLL_S) -> None:
        nvml = open_nvml(device)
        if nvml is None:
            raise DeviceError(
                f"NVML does not know {device.description}, so its energy cannot be measured; on an NVIDIA "
                "GPU, pip install -e '.[gpu]' adds what is missing"
            )
        if nvml.energy_j() is None:
            nvml.close()
            raise DeviceError(
                f"{device.description} has no energy counter that NVML can read; data-centre GPUs have one"
            )
        self.ticks: list[Tick] = []
        self._nvml, self._poll_s = nvml, poll_s
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Meter:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()
        self._nvml.close()

    def _watch(self) -> None:
        before = self._nvml.energy_j()
        while not self._over.wait(self._poll_s):
            now = self._nvml.energy_j()
            if now is not None and before is not None and now > before:
                self.ticks.append(Tick(time.perf_counter(), now))
            before = now if now is not None else before


def power(ticks: Sequence[Tick], since_s: float, until_s: float) -> Power:
    """Compute the mean power between two moments of a steady load.

    Raises
    ------
    DeviceError
        The counter was not updated often enough in between.
    """
    within = [tick for tick in ticks if since_s <= tick.at_s <= until_s]
    if len(within) < LEAST_TICKS:
        raise DeviceError(
            f"the energy counter was updated {len(within)} times in {until_s - since_s:.1f} s; at least "
            f"{LEAST_TICKS} updates are needed: measure for longer"
        )
    seconds = within[-1].at_s - within[0].at_s
    gaps = [after.at_s - before.at_s for before, after in pairwise(within)]
    update_s = statistics.median(gaps)
    watts = (within[-1].joules - within[0].joules) / seconds
    return Power(watts=watts, seconds=seconds, update_s=update_s, error=update_s / seconds)


def load(
    op: Callable[[], object],
    synchronize: Callable[[], object],
    warm_up_s: float,
    run_s: float,
    clock: Callable[[], float] = time.perf_counter,
) -> Load:
    """Run an op on a device repeatedly. Counting begins when the warm-up has ended.

    Parameters
    ----------
    op
        Issues one run to the device without waiting for it.
    synchronize
        Waits for all runs.
    """
    many = _warm_up(op, synchronize, warm_up_s, clock)
    runs, since = 0, clock()
    while (now := clock()) - since < run_s:
        _repeat(op, synchronize, many)
        runs += many
    return Load(runs, since, now)


def _warm_up(
    op: Callable[[], object], synchronize: Callable[[], object], warm_up_s: float, clock: Callable[[], float]
) -> int:
    """Keep the device busy for a while. Return how many runs take about `CHUNK_S`."""
    many, since = 1, clock()
    while True:
        start = clock()
        _repeat(op, synchronize, many)
        took = clock() - start
        many = max(1, round(many * CHUNK_S / took))
        if clock() - since >= warm_up_s:
            return many


def _repeat(op: Callable[[], object], synchronize: Callable[[], object], many: int) -> None:
    for _ in range(many):
        op()
    synchronize()
