"""Honest op times: warm-up, cold cache, events, and repeats until the median stands still."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mini_dnn.device.base import Device


@dataclass(frozen=True)
class Timing:
    """How an op is timed.

    Parameters
    ----------
    warm_up
        Runs before the timed ones.
    repeats
        Fewest timed runs; 0 times nothing.
    max_repeats
        Most timed runs. More than ``repeats`` are made until the error of the median is below
        ``precision``, or ``budget_s`` is spent.
    precision
        Half the 95 % confidence interval of the median, as a fraction of it.
    budget_s
        Seconds that the timed runs of one op may take.
    cold_cache
        Whether the device's L2 cache is flushed before each timed run.
    """

    warm_up: int = 2
    repeats: int = 10
    max_repeats: int = 10
    precision: float = 0.01
    budget_s: float = 10.0
    cold_cache: bool = False


NO_TIMING = Timing(warm_up=0, repeats=0, max_repeats=0)


def time_op(op: Callable[[], None], device: Device, timing: Timing) -> list[float]:
    """Milliseconds of each timed run of ``op``, between events on the device.

    An empty list where nothing is to be timed, or the device has no clock.
    """

    def once() -> float:
        if timing.cold_cache:
            device.flush_cache()
        start = device.record()
        op()
        return device.elapsed_ms(start, device.record())

    if timing.repeats == 0 or not device.has_clock:
        return []
    for _ in range(timing.warm_up):
        op()
    device.synchronize()
    return repeat(once, timing)


def time_on_host(op: Callable[[], None], timing: Timing) -> list[float]:
    """Milliseconds of each run of ``op`` by the wall clock: at least one, as its result is wanted anyway."""

    def once() -> float:
        start = time.perf_counter()
        op()
        return (time.perf_counter() - start) * 1e3

    return repeat(once, timing) or [once()]


def repeat(once: Callable[[], float], timing: Timing) -> list[float]:
    """Call ``once`` until the median of what it returns stands still, as ``timing`` says."""
    samples: list[float] = []
    since = time.perf_counter()
    while len(samples) < timing.max_repeats:
        samples.append(once())
        if len(samples) < timing.repeats:
            continue
        if time.perf_counter() - since > timing.budget_s or median_error(samples) < timing.precision:
            break
    return samples


def median_error(samples: Sequence[float]) -> float:
    """Half the 95 % confidence interval of the median, as a fraction of the median; infinite below 6 samples.

    The interval lies between two order statistics, whose ranks follow from the binomial distribution
    alone: nothing is assumed of how the times are distributed.
    """
    n = len(samples)
    if n < 6:
        return math.inf
    half = 0.98 * math.sqrt(n)
    low, high = math.floor(n / 2 - half), math.ceil(n / 2 + half) - 1
    ordered = sorted(samples)
    return (ordered[min(high, n - 1)] - ordered[max(low, 0)]) / 2 / statistics.median(ordered)
