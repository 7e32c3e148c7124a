"""Honest op times: warm-up, cold cache, events, and repeats until the median is known precisely."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from mini_dnn.device.base import Device
from mini_dnn.running.execute import Execution

WINDOW = 5  # runs whose median tells whether op times still change
SETTLED = 0.01  # the largest difference between the medians of two windows, as a fraction
WARM_UP_S = 2.0  # after which timing starts anyway, and the result says so

# Launches that Python can issue while the cache is flushed; with more, the GPU would wait for Python
QUEUED = 12

_Count = Annotated[int, Meta(ge=0, le=2**31)]


@dataclass(frozen=True)
class Timing:
    """How an op is timed.

    Parameters
    ----------
    warm_up
        The minimum number of runs before the timed ones. More are made until op times settle: until the
        medians of two consecutive windows agree, or `WARM_UP_S` have passed.
    repeats
        The minimum number of timed runs; with 0, nothing is timed.
    max_repeats
        The maximum number of timed runs. After ``repeats``, more are made until the error of the median is
        below ``precision``, or ``budget_s`` is spent.
    precision
        Half the 95 % confidence interval of the median, as a fraction of it.
    budget_s
        Seconds that the timed runs of one op may take.
    cold_cache
        Whether the device's L2 cache is flushed before each timed run. The flush also lets all launches of an
        op queue up behind it: without it, the time between the host's launches is part of the op time.
    """

    warm_up: _Count = 2
    repeats: _Count = 10
    max_repeats: _Count = 10
    precision: Annotated[float, Meta(ge=0, le=1)] = 0.01
    budget_s: Annotated[float, Meta(ge=0, le=1e9)] = 10.0
    cold_cache: bool = True


NO_TIMING = Timing(warm_up=0, repeats=0, max_repeats=0)


@dataclass(frozen=True)
class Timed:
    """The milliseconds of each timed run, and whether op times had settled before the first one."""

    samples_ms: tuple[float, ...] = ()
    settled: bool = True


NOT_TIMED = Timed()


@contextmanager
def op_of(execution: Execution, device: Device, timing: Timing) -> Iterator[Callable[[], None]]:
    """Yield a function that issues one op to be timed. Many launches are issued at once, as a graph."""
    if execution.calls <= QUEUED or not timing.repeats or not device.has_clock:
        yield execution.kernels
        return
    graph = device.capture(execution.kernels)
    try:
        yield graph.replay
    finally:
        graph.free()


def time_op(op: Callable[[], None], device: Device, timing: Timing) -> Timed:
    """Time ``op`` between events on the device.

    There are no samples if nothing is to be timed, or if the device has no clock.
    """

    def once() -> float:
        if timing.cold_cache:
            device.flush_cache()
        start = device.record()
        op()
        return device.elapsed_ms(start, device.record())

    if timing.repeats == 0 or not device.has_clock:
        return NOT_TIMED
    settled = warm_up(once, timing)
    device.synchronize()
    return Timed(tuple(repeat(once, timing)), settled)


def time_kernels(execution: Execution, device: Device, timing: Timing) -> Timed:
    """Time all steps of a plan except the set-up and the copies from and to the host: see `time_op`."""
    with op_of(execution, device, timing) as op:
        return time_op(op, device, timing)


def warm_up(once: Callable[[], float], timing: Timing) -> bool:
    """Run until op times settle; return whether they did. An idle GPU raises its clock only under load."""
    if timing.warm_up == 0:
        return True
    for _ in range(timing.warm_up):
        once()
    since, before = time.perf_counter(), math.inf
    while True:
        now = statistics.median(once() for _ in range(WINDOW))
        if abs(now - before) <= SETTLED * now:
            return True
        if before < math.inf and time.perf_counter() - since > WARM_UP_S:
            return False
        before = now


def time_on_host(op: Callable[[], None], timing: Timing) -> Timed:
    """Wall-clock milliseconds of each run of ``op``; at least one, because its result is needed anyway."""

    def once() -> float:
        start = time.perf_counter()
        op()
        return (time.perf_counter() - start) * 1e3

    return Timed(tuple(repeat(once, timing) or [once()]))


def repeat(once: Callable[[], float], timing: Timing) -> list[float]:
    """Call ``once`` until the median of its results is known with the precision of ``timing``."""
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
    alone: nothing is assumed about the distribution of the times.
    """
    n = len(samples)
    if n < 6:
        return math.inf
    half = 0.98 * math.sqrt(n)
    low, high = math.floor(n / 2 - half), math.ceil(n / 2 + half) - 1
    ordered = sorted(samples)
    return (ordered[min(high, n - 1)] - ordered[max(low, 0)]) / 2 / statistics.median(ordered)
