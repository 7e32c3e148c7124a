"""Code shared by all peers: cases that become rows, clocks, and the record."""

from __future__ import annotations

import signal
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mini_dnn.device.base import Device
from mini_dnn.device.cuda import FLUSHES
from mini_dnn.errors import CheckError
from mini_dnn.measuring.bench import PUBLISHED
from mini_dnn.measuring.files import write
from mini_dnn.measuring.nvml import Watch
from mini_dnn.report.peers import PeersFile
from mini_dnn.running.timing import time_op

TIMING = replace(PUBLISHED, max_repeats=200, budget_s=1.0)
RUNS_BEFORE_CHECK = 3  # a CUDA graph is warmed up, captured, and replayed: the replay is checked


@dataclass(frozen=True)
class Prepared:
    """Something that is ready to run on the device."""

    op: Callable[[], Any]  # issues one run to the device
    result: Callable[[], np.ndarray]  # the result of the last run, for the check
    setting: str = ""  # found during preparation; if empty, the setting of the case


@dataclass(frozen=True)
class Case:
    """A future row: what is run, how, and how its result is checked."""

    kind: str  # "ours", "library" or "floor"
    peer: str
    what: str  # "conv1", "conv2", "fused1", "fused2", "network"; for floors also "copy", "read", "write"
    precision: str
    order: str
    setting: str
    bytes: int  # bytes that must be moved: each input and output once
    prepare: Callable[[], AbstractContextManager[Prepared]]
    check: Callable[[np.ndarray], Mapping[str, float]]
    facts: Mapping[str, Any] = field(default_factory=dict)  # additional fields of its row

    @property
    def words(self) -> dict[str, str]:
        """The fields that identify the row."""
        names = ("kind", "peer", "what", "precision", "order", "setting")
        return {name: getattr(self, name) for name in names}


class Clock(Protocol):
    """The interface that `time_op` needs."""

    has_clock: bool

    def record(self) -> Any:
        """Record an event."""

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Milliseconds between two events."""

    def flush_cache(self) -> None:
        """Evict everything from the L2 cache."""

    def synchronize(self) -> None:
        """Wait for all work."""


class DefaultStream:
    """The clock of a `CudaDevice` for PyTorch and CuPy, which both use the default stream.

    It uses the same driver's events, and the same flush, as on the streams of the device itself.
    """

    has_clock = True

    def __init__(self, device: Any) -> None:
        import pycuda.driver

        self._cuda, self._device = pycuda.driver, device
        self._flush = device.empty("L2 flush", (2 * device.l2_bytes,), np.uint8)

    def record(self) -> Any:
        """Record an event on the default stream."""
        return self._cuda.Event().record()

    def elapsed_ms(self, start: Any, end: Any) -> float:
        """Return the milliseconds between two events. Waits for the second one."""
        end.synchronize()
        return float(end.time_since(start))

    def flush_cache(self) -> None:
        """Overwrite twice the size of the L2 cache, long enough for launches to queue up behind it."""
        for _ in range(FLUSHES):
            self._cuda.memset_d8_async(self._flush.memory, 0, self._flush.nbytes)

    def synchronize(self) -> None:
        """Wait for all work on all streams."""
        self._device.synchronize()


class Budget:
    """The time in seconds that a library may take for all of its rows."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._until = time.monotonic() + seconds

    @property
    def spent(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() >= self._until

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Raise TimeoutError inside the block, in the main thread, when the budget is spent."""
        message = f"the {self.seconds:g} s of --budget are spent"

        def ring(signum: int, frame: Any) -> None:
            raise TimeoutError(message)

        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError(message)
        before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, left)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


class Session:
    """The record of a run: rows and skipped cases, written after each group.

    Parameters
    ----------
    record
        The fields that describe the run, to which rows are added.
    gpu
        The GPU whose sensors are read during each measurement.
    out
        The file for the record; None keeps it in memory.
    """

    def __init__(self, record: dict[str, Any], gpu: Device | None, out: Path | None = None) -> None:
        self.record = record | {"rows": [], "skipped": []}
        self._gpu, self._out = gpu, out

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows that were measured so far."""
        return self.record["rows"]

    def attempt(self, case: Case, clock: Clock, budget: Budget | None = None) -> bool:
        """Add the row of a case, or why there is none. Return whether there is one."""
        try:
            if budget is None:
                row = measure(case, clock, self._gpu)
            else:
                with budget():
                    row = measure(case, clock, self._gpu)
        except Exception as error:  # a library may raise anything, which must not end the benchmark
            self.skip(case.words, _reason(error), isinstance(error, CheckError))
            return False
        self.rows.append(row)
        name = f"{case.peer} {case.precision} {case.order}".rstrip()
        figures = f"{row['op_ms']:9.4f} ms  error {row['relative_error']:.1e}"
        print(f"{case.what:<8} {name:<40} {figures}  {row['setting']}", flush=True)
        return True

    def skip(self, words: Mapping[str, str], reason: str, wrong: bool = False) -> None:
        """Record that a row is missing, and why. ``wrong`` means that its result was wrong."""
        self.record["skipped"].append({**words, "reason": reason, "wrong": wrong})
        kind = "WRONG" if wrong else "skipped"
        print(f"{kind}: {' '.join(filter(None, words.values()))}: {reason}", flush=True)

    def keep(self) -> None:
        """Write the present record, so that a later failure loses nothing."""
        if self._out:
            write(self.record, self._out, PeersFile)


def measure(case: Case, clock: Clock, gpu: Device | None) -> dict[str, Any]:
    """Run a case, compare it with float64, time it, and return its row.

    Raises
    ------
    CheckError
        The result is wrong, so it is not timed.
    """
    with case.prepare() as prepared:
        for _ in range(RUNS_BEFORE_CHECK):
            prepared.op()
        clock.synchronize()
        errors = case.check(prepared.result())
        with Watch(gpu) as watch:
            timed = time_op(prepared.op, clock, TIMING)  # type: ignore[arg-type]
        samples = timed.samples_ms
        setting = prepared.setting or case.setting
    return {
        **case.words,
        "setting": setting,
        "op_ms": statistics.median(samples),
        "op_ms_min": min(samples),
        "op_ms_max": max(samples),
        "repeats": len(samples),
        "settled": timed.settled,
        **errors,
        "bytes": case.bytes,
        **case.facts,
        "state": watch.state,
    }


def _reason(error: Exception) -> str:
    """Return the first lines of an error, because a compiler's may have hundreds."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' | '.join(lines[:3])}"[:250]
