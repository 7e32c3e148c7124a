"""Measure serving: latency of one entry, entries per second, and growth of op times with the batch."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np

from mini_dnn.errors import CheckError, DeviceError
from mini_dnn.measuring.bench import SEED, code_of, head_of, spread, state_of
from mini_dnn.measuring.measure import Setting, measure
from mini_dnn.measuring.nvml import Watch
from mini_dnn.measuring.serving_records import Growth, Latency, ServingFile, Throughput
from mini_dnn.ops import Arrays
from mini_dnn.running.resident import SLOTS, Resident
from mini_dnn.running.timing import Timed
from mini_dnn.running.verify import verify
from mini_dnn.variant import Variant

REQUESTS, WARM_UP = 2000, 200
ENTRIES = 200  # entries that requests send in turn; all answers are compared with float64
PERCENTILES = (50, 90, 99)
GROWTH = (1, 10, 100, 1_000, 10_000, 100_000)  # batch sizes
BATCHES, PASSES = 20, 5  # batches of a pass; the median pass counts
LIMIT = 1.10  # multiple of the longer of copy and kernels that a batch may take
SELDOM_S = 3600.0  # between two readings of the GPU's sensors: none while requests are timed


@dataclass(frozen=True)
class Service:
    """A served operation with weights, and the entries that are sent to it.

    Parameters
    ----------
    variant
        The variant that computes it.
    name
        The name of the problem, which includes the form of an entry.
    problem
        The problem, whose batch is all entries.
    arrays
        All arrays: weights, and one input with the entries.
    score
        Returns the quality of the outputs as a fraction; None if it is unknown.
    """

    variant: Variant
    name: str
    problem: Any
    arrays: Arrays
    score: Callable[[np.ndarray], float] | None = None

    @classmethod
    def at_random(cls, variant: Variant, name: str, problem: Any) -> Service:
        """Create a service with random entries and weights."""
        return cls(variant, name, problem, variant.operation.inputs(problem, SEED))

    @property
    def entries(self) -> np.ndarray:
        """The entries that are sent."""
        (name,) = self.problem.named("in")
        return self.arrays[name]

    def open(self, batch: int, setting: Setting, use_graph: bool = True) -> Resident:
        """Open the operation on a device for ``batch`` entries at a time."""
        assert setting.device is not None, "a clock is a device's"
        weights = {name: self.arrays[name] for name in self.problem.named("weight")}
        return Resident(self.variant, self.problem.with_batch(batch), weights, setting.device, use_graph)

    def check(self, answers: np.ndarray, entries: int | None = None) -> float:
        """Return the largest error of the answers. ``entries`` of them are compared, or all.

        Raises
        ------
        CheckError
            The answers differ from float64.
        """
        (output,) = self.problem.named("out")
        operation, precision = self.variant.operation, self.variant.precision
        found = verify(operation, self.problem, self.arrays, {output: answers}, precision, entries)
        if not found.ok:
            raise CheckError(f"{self.variant.name}, {self.name}: {found}")
        return found.max_error

    def tolerance(self, entries: int) -> float:
        """Return how much two answers to an entry may differ: the largest bound of some entries in fp32."""
        cut = self.problem.with_batch(entries)
        given = {n: a[:entries] if cut.arrays[n].split else a for n, a in self.arrays.items()}
        return max(float(bound.max()) for bound in self.variant.operation.bound(cut, given, "fp32").values())


class ServingBench:
    """Measures serving. Each figure becomes a row of `record`, and every row is compared with float64.

    Parameters
    ----------
    setting
        A device with a clock, the timing of ops, and the number of entries that are compared.
    data
        A description of the entries.
    """

    def __init__(self, setting: Setting, data: str) -> None:
        assert setting.device is not None, "a clock is a device's"
        self.setting = setting
        self.record = ServingFile(
            **head_of(data, setting.device, setting.timing),
            serving={"warm_up": WARM_UP, "images": ENTRIES, "passes": PASSES, "limit": LIMIT},
            latency=[],
            growth=[],
            throughput=[],
        )

    def latency(self, service: Service, requests: int, use_graph: bool) -> Latency:
        """Measure the wall time of requests of one entry each, from ordinary host memory and back to it.

        Raises
        ------
        CheckError
            An answer differs from float64.
        """
        with closing(service.open(1, self.setting, use_graph)) as resident:
            timed = resident.time(self.setting.timing)
            with Watch(self.setting.device, SELDOM_S) as watch:
                us, answers = _requests(resident, service.entries, requests)
        percentiles: dict[str, Any] = {f"p{p}_us": float(np.percentile(us, p)) for p in PERCENTILES}
        return Latency(
            **_op(service.variant, timed),
            send=service.name,
            graph=use_graph,
            requests=requests,
            **percentiles,
            max_us=float(us.max()),
            max_error=service.check(answers),
            state=state_of(watch.state),
        )

    def growth(self, variant: Variant, name: str, problem: Any) -> Growth:
        """Measure the op time at a problem, with random inputs.

        If the batch does not fit in the device's memory, it is the sum of its parts' op times.

        Raises
        ------
        CheckError
            Entries from either end of the batch differ from float64.
        """
        arrays = variant.operation.inputs(problem, SEED)
        measured = measure(variant, name, problem, arrays, self.setting)
        assert measured.comparison is not None, "no row without a comparison"
        timed = Timed(measured.samples_ms, measured.result.timed.settled)
        return Growth(
            **_op(variant, timed) | {"op_ms": measured.result.op_ms},
            op=variant.op,
            problem=name,
            batch=problem.batch,
            parts=measured.result.steps,
            flops=problem.flops,
            max_error=measured.comparison.max_error,
            state=state_of(measured.state),
        )

    def throughput(self, service: Service, batches: int = BATCHES) -> Throughput:
        """Measure entries per second from page-locked memory to host memory. All entries are one batch.

        The entries are already in page-locked memory, as if a producer had written them there, so the host
        copies nothing.

        Returns
        -------
        Throughput
            ``batch_ms`` is a batch's share of the wall time of a pass over ``batches`` batches, which
            includes the first batch's copy and the wait for the last one. ``copy_ms`` is the time of its
            bytes at the rate of copies from page-locked memory. ``op_ms`` is the time of its kernels.
            ``over_longer`` is ``batch_ms`` divided by the longer of these two.

        Raises
        ------
        CheckError
            A batch's outputs differ from float64 or from those of other batches.
        DeviceError
            The device's memory is too small for the batches in flight.
        """
        entries, batch = service.entries, len(service.entries)
        with closing(service.open(batch, self.setting)) as resident:
            if batch > resident.problem.batch:
                raise DeviceError(
                    f"{service.variant.name} has room for {SLOTS} batches of {resident.problem.batch:,} "
                    f"entries here, not of {batch:,}; use a smaller --batch"
                )
            op = _op(service.variant, resident.time(self.setting.timing))
            expected, *_ = resident.serve([entries] * SLOTS)  # from now on each page-locked array holds them
            error = service.check(expected, self.setting.entries)
            tolerance = service.tolerance(min(batch, self.setting.entries or batch))
            with Watch(self.setting.device) as watch:
                batches_ms = [
                    _pass_ms(resident, expected, batches, tolerance) / batches for _ in range(PASSES)
                ]
        batch_ms = statistics.median(batches_ms)
        copy_ms = entries.nbytes / self.record.memory["h2d_gbps"] / 1e6
        return Throughput(
            **op,
            send=service.name,
            batch=batch,
            batches=batches,
            image_bytes=entries[0].nbytes,
            images_per_s=batch / batch_ms * 1e3,
            batch_ms=batch_ms,
            batch_ms_of_passes=batches_ms,
            copy_ms=copy_ms,
            over_longer=batch_ms / max(copy_ms, op["op_ms"]),
            accuracy=service.score(expected) if service.score else None,
            max_error=error,
            state=state_of(watch.state),
        )


def _requests(resident: Resident, entries: np.ndarray, requests: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the microseconds of each request after the warm-up, and the last answer to each entry."""
    batches = [entries[n : n + 1] for n in range(len(entries))]
    ((_, output),) = resident.problem.named("out").items()
    answers = np.full((len(entries), *output.shape[1:]), np.nan, output.dtype)
    us = np.empty(WARM_UP + requests)
    for at in range(len(us)):
        n = at % len(batches)
        start = perf_counter_ns()
        answer = resident.respond(batches[n])
        us[at] = (perf_counter_ns() - start) / 1e3
        answers[n] = answer
    return us[WARM_UP:], answers


def _pass_ms(resident: Resident, expected: np.ndarray, batches: int, tolerance: float) -> float:
    """Return the milliseconds of ``batches`` full batches with the content of the page-locked arrays."""
    counts = iter([len(expected)] * batches)
    start = perf_counter()
    found = list(resident.serve_in_place(lambda entries: next(counts, 0)))
    ms = (perf_counter() - start) * 1e3
    for at, outputs in enumerate(found):
        if not (np.abs(outputs - expected) <= tolerance).all():  # NaN fails
            raise CheckError(f"batch {at} of {len(found)} differs from the first one, of the same inputs")
    return ms


def _op(variant: Variant, timed: Timed) -> dict[str, Any]:
    """Return the op time of a variant's code with its spread."""
    op_ms = statistics.median(timed.samples_ms) if timed.samples_ms else None
    return {"variant": variant.name, "code_hash": code_of(variant), "op_ms": op_ms, **spread(timed)}
