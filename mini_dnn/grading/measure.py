"""Op times that a submission cannot manipulate.

Each timed call gets random inputs in buffers that contain NaN elsewhere, with a cold L2 cache. Its outputs
are judged: some entries of the batch element by element, and all of them at once if the operation has an
`Operation.audit`. The inputs must be unchanged, nothing may still run after the clock has stopped, and no
time may be less than the least time for moving the bytes and computing. Set-up is not timed. It runs before
there are inputs.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.device.base import Device
from mini_dnn.grading.guards import Guarded
from mini_dnn.measuring.ceilings import copy_rates, peak_tflops
from mini_dnn.measuring.nvml import gpu_state
from mini_dnn.ops import Arrays, Operation
from mini_dnn.running.parts import empty_outputs
from mini_dnn.running.verify import compare_entries
from mini_dnn.variant import Planned

MARGIN = 1.15  # on the copy rate: a kernel that mostly writes may be this much faster than a copy
LATE_MS = 0.2  # how much a wait for the whole device may exceed a wait with nothing to wait for
LATE_PART = 0.05  # the same as a fraction of the op time
ENTRIES = 8  # entries of the batch that are judged element by element
ENTRIES_ALONE = 64  # the same if there is no other check of the remaining entries


@dataclass(frozen=True)
class Method:
    """How an op is measured: the least exact arithmetic that is allowed, and the number of runs.

    If the problem is a part of a larger batch, ``whole`` is the size of that batch; otherwise it is 0.
    """

    precision: str
    warm_up: int
    repeats: int
    whole: int = 0


@dataclass(frozen=True)
class Floor:
    """What limits every kernel on a device."""

    bytes_per_ms: float
    cached_bytes: int  # bytes of the outputs that may still be in the cache when the clock stops
    flops_per_ms: float  # 0 if unknown

    @classmethod
    def of(cls, device: Device) -> Floor:
        """Measure the copy rates, and look up the peak rates of the tensor cores."""
        clock, processors = getattr(device, "max_clock_mhz", 0.0), getattr(device, "multiprocessors", 0)
        peaks = peak_tflops(device.arch, processors, clock)
        return cls(
            copy_rates(device)["copy_gbps"] * MARGIN * 1e6,
            int(getattr(device, "l2_bytes", 0)),
            peaks.get("fp16_tflops", 0.0) * 1e9,
        )

    def ms(self, problem: Any) -> float:
        """Return the least possible time for a problem."""
        moved = max(0, problem.min_bytes - self.cached_bytes) / self.bytes_per_ms
        return max(moved, problem.flops / self.flops_per_ms if self.flops_per_ms else 0.0)


@dataclass(frozen=True)
class Measured:
    """A measurement. ``refused`` says why it does not count."""

    op_ms: float
    samples_ms: tuple[float, ...]
    floor_ms: float
    state: tuple[Any, Any]  # clocks and throttling, before and after
    refused: str = ""


def measure(operation: Operation, planned: Planned, device: Device, method: Method, floor: Floor) -> Measured:
    """Time the plan for one problem, and judge every call.

    Raises
    ------
    VariantError, DeviceError
        The plan or a kernel fails.
    """
    problem = planned.problem
    # Asking for memory until the batch is computed in parts that fit in the cache brings no gain
    whole = problem.with_batch(method.whole or problem.batch)
    floor_ms = floor.ms(whole) * problem.batch / whole.batch
    rng = np.random.default_rng()  # seeded by the system: nobody can know these inputs
    execution = Guarded(planned, device.compile(planned.source, planned.defines), device)
    outputs = empty_outputs(problem)
    samples: list[float] = []
    late: list[float] = []
    before = gpu_state(device)
    try:
        for call in range(method.warm_up + method.repeats):
            arrays = _draw(operation, problem, method.precision, rng)
            ms, late_ms, refused = _call(execution, device, planned, arrays, outputs)
            if call >= method.warm_up:
                samples.append(ms)
                late.append(late_ms)
            refused = refused or _judge(operation, problem, arrays, outputs, method.precision, rng)
            if not refused and ms < floor_ms:
                refused = (
                    f"{ms:.4f} ms is less than the time that moving its bytes takes on this GPU, "
                    f"{floor_ms:.4f} ms: the work was not done in that time"
                )
            if refused:
                return Measured(ms, tuple(samples), floor_ms, (before, gpu_state(device)), refused)
    finally:
        execution.free()
    # A single wait may coincide with a busy host
    op_ms, late_ms = statistics.median(samples), statistics.median(late)
    refused = ""
    if late_ms > max(LATE_MS, LATE_PART * op_ms):
        refused = f"the device continued to work for {late_ms:.2f} ms after the clock had stopped"
    return Measured(op_ms, tuple(samples), floor_ms, (before, gpu_state(device)), refused)


def _draw(operation: Operation, problem: Any, precision: str, rng: np.random.Generator) -> Arrays:
    """Draw new inputs for one call."""
    return operation.timed(problem, precision, rng) if operation.timed else operation.draw(problem, rng)


def _call(
    execution: Guarded, device: Device, planned: Planned, arrays: Arrays, outputs: Arrays
) -> tuple[float, float, str]:
    """Make one timed call, which fills the outputs.

    Returns
    -------
    Milliseconds; the milliseconds that the device worked on after the clock had stopped; the error, if any.
    """
    problem, buffers = planned.problem, execution.buffers
    execution.fill()
    for name in problem.named("weight"):
        device.copy_in(buffers[name], arrays[name])
    execution.set_up()
    for name in problem.named("in"):
        device.copy_in(buffers[name], arrays[name])
    device.synchronize()
    device.flush_cache()
    start = device.record()
    execution.kernels()
    ms = device.elapsed_ms(start, device.record())
    late_ms = _wait_ms(device) - _wait_ms(device)  # a busy host makes the second wait as long as the first
    for name, out in outputs.items():
        device.copy_out(buffers[name], out)
    for name in problem.named("in", "weight"):
        found = np.empty_like(arrays[name])
        device.copy_out(buffers[name], found)
        if not np.array_equal(_bits(found), _bits(arrays[name])):
            return ms, late_ms, f"a kernel changed the input {name}; inputs are read-only"
    beside = execution.written_beside()
    if beside:
        return ms, late_ms, f"a kernel wrote {beside}; run.py check reports the line"
    return ms, late_ms, ""


def _wait_ms(device: Device) -> float:
    """Return how long the host waits until the device is idle."""
    since = time.perf_counter()
    device.synchronize()
    return (time.perf_counter() - since) * 1e3


def _bits(array: np.ndarray) -> np.ndarray:
    """Return the array's bytes, as 4-byte words if possible, which compare twice as fast."""
    return array.reshape(-1).view(np.uint8 if array.nbytes % 4 else np.uint32)


def _judge(
    operation: Operation,
    problem: Any,
    arrays: Arrays,
    outputs: Arrays,
    precision: str,
    rng: np.random.Generator,
) -> str:
    """Return what is wrong with the outputs of a timed call, or an empty string."""
    count = min(problem.batch, ENTRIES if operation.audit else ENTRIES_ALONE)
    chosen = rng.choice(problem.batch, count, replace=False)
    result = compare_entries(operation, problem, arrays, outputs, precision, chosen)
    said = "" if result.ok else str(result)
    if not said and operation.audit:
        said = operation.audit(problem, arrays, outputs, precision, rng)
    return said and f"the output of a timed call is wrong: {said}"
