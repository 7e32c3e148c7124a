"""A network on several GPUs of one host: a shared batch, and images per second on one GPU and on all."""

from __future__ import annotations

import hashlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

import numpy as np

from mini_dnn.device import Device
from mini_dnn.errors import CheckError, DeviceError
from mini_dnn.measuring.bench import CHECKED
from mini_dnn.measuring.measure import PART, Setting
from mini_dnn.measuring.serving import Service
from mini_dnn.progress import Bar
from mini_dnn.running.parts import cut
from mini_dnn.running.resident import SLOTS
from mini_dnn.running.team import Team

PARTS = 4  # parts of a batch for each GPU: little is lost if one of them fails
LEAD_S = 0.05  # from an order until all processes begin
PASSES, PASS_S = 3, 0.5  # number of timed passes, and seconds of each
TRIAL = 8  # batches that are timed to find out how many make a pass

Make = Callable[[], Service]  # hashable, and can be pickled


@dataclass(frozen=True)
class Inferring:
    """Opens a network on a device. The work is to compute the outputs of a range of entries.

    Parameters
    ----------
    make
        Returns the network and all entries.
    most
        The largest number of entries of one part.
    """

    make: Make
    most: int

    @contextmanager
    def __call__(self, device: Device) -> Iterator[Callable[[tuple[int, int]], np.ndarray]]:
        """Yield the function that does the work."""
        service = self.make()
        size = self.most if device.has_clock else min(self.most, PART)
        with closing(service.open(size, Setting(device))) as resident:
            yield lambda ends: resident.predict(service.entries[slice(*ends)])


def parts_of(batch: int, gpus: int) -> list[tuple[int, int]]:
    """Return the first and last entry of each part of a batch that several GPUs share."""
    return cut(batch, max(1, -(-batch // (PARTS * gpus))))


def infer(team: Team, parts: Sequence[tuple[int, int]]) -> tuple[np.ndarray, float]:
    """Return the outputs of a batch from a team of `Inferring`, and the wall-clock ms with copies."""
    start = time.perf_counter()
    found = []
    with Bar("the whole network", parts[-1][1]) as bar:
        for done in team.map(parts):
            found.append(done.result)
            bar.update(done.item[1])
    return np.concatenate(found), (time.perf_counter() - start) * 1e3


@dataclass(frozen=True)
class Pass:
    """An order to compute a number of full batches, starting at a time of `time.monotonic`."""

    batches: int
    begin_s: float


@dataclass(frozen=True)
class Lap:
    """When a process computed its batches (`time.monotonic`), with a hash and the error of its outputs."""

    begin_s: float
    end_s: float
    outputs: str
    max_error: float


@dataclass(frozen=True)
class Rate:
    """Entries per second on some GPUs that work at the same time."""

    gpus: int
    batches: int  # on each GPU
    per_s: float  # the median over the passes
    per_s_of_passes: Sequence[float]
    per_s_of_each: Sequence[float]  # on each GPU, in the last pass


@dataclass(frozen=True)
class Serving:
    """Opens a network on a device, with its entries in page-locked memory.

    The work is passes over full batches.

    Parameters
    ----------
    make
        Returns the network. Its entries are one batch.
    checked
        The number of entries that are compared with float64.
    """

    make: Make
    checked: int = CHECKED

    @contextmanager
    def __call__(self, device: Device) -> Iterator[Callable[[Pass], Lap]]:
        """Yield the function that does the work.

        Raises
        ------
        CheckError
            The outputs differ from float64.
        DeviceError
            The device's memory is too small for the batches in flight.
        """
        service = self.make()
        entries, batch = service.entries, len(service.entries)
        with closing(service.open(batch, Setting(device))) as resident:
            if batch > resident.problem.batch:
                raise DeviceError(
                    f"{service.variant.name} has room for {SLOTS} batches of {resident.problem.batch:,} "
                    f"entries here, not of {batch:,}; use a smaller --batch"
                )
            expected, *_ = resident.serve([entries] * SLOTS)  # from now on each page-locked array holds them
            error = service.check(expected, self.checked)
            digest = hashlib.sha256(expected.tobytes()).hexdigest()

            def work(order: Pass) -> Lap:
                counts = iter([batch] * order.batches)
                time.sleep(max(0.0, order.begin_s - time.monotonic()))
                begin = time.monotonic()
                for found in resident.serve_in_place(lambda inputs: next(counts, 0)):
                    last = found
                end = time.monotonic()
                if not np.array_equal(last, expected):
                    raise CheckError(
                        f"{service.variant.name}: the same entries gave different outputs in a later run"
                    )
                return Lap(begin, end, digest, error)

            yield work


def rates(team: Team, batch: int, gpus: Sequence[int]) -> Iterator[Rate]:
    """Yield the entries per second on the first ``n`` GPUs of a team of `Serving`, for each n in ``gpus``.

    Raises
    ------
    CheckError
        GPUs return different outputs for the same entries.
    """
    for count in gpus:
        trial = _laps(team, count, TRIAL)
        slowest = max(lap.end_s - lap.begin_s for lap in trial) / TRIAL
        batches = max(TRIAL, round(PASS_S / slowest)) if slowest < PASS_S else TRIAL
        passes = []
        for _ in range(PASSES):
            laps = _laps(team, count, batches)
            if len({lap.outputs for lap in laps}) > 1:
                raise CheckError("GPUs give different outputs for the same entries")
            wall = max(lap.end_s for lap in laps) - min(lap.begin_s for lap in laps)
            passes.append(count * batches * batch / wall)
        each = [batches * batch / (lap.end_s - lap.begin_s) for lap in laps]
        yield Rate(count, batches, statistics.median(passes), passes, each)


def _laps(team: Team, count: int, batches: int) -> list[Lap]:
    return team.each(Pass(batches, time.monotonic() + LEAD_S), count)
