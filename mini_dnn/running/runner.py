"""The host code of every variant: compile, allocate, copy, launch, time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.device.base import Device, Module
from mini_dnn.errors import LimitError, UsageError
from mini_dnn.ops import Arrays
from mini_dnn.progress import SILENCE_S, running
from mini_dnn.running.execute import Execution, compile_others
from mini_dnn.running.parts import cut, empty_outputs, entries, largest_part
from mini_dnn.running.runnable import check_runnable
from mini_dnn.running.spans import Span
from mini_dnn.running.timing import NO_TIMING, NOT_TIMED, Timed, Timing, time_kernels, time_on_host, time_op
from mini_dnn.variant import Planned, Variant

OVERLAPPED_RUNS = 5  # runs; the layer time is their median

Progress = Callable[[int], None]  # entries of the batch done so far


@dataclass(frozen=True)
class Result:
    """The outputs and times of one problem."""

    outputs: Arrays
    op_ms: float | None  # only the launches: the median of the timed runs; None if none was timed
    layer_ms: float  # allocation, both copies and one op, by the wall clock
    compile_ms: float  # compiling and loading, or loading from the cache
    steps: int  # the number of parts into which the batch was split to fit in memory
    timed: Timed = NOT_TIMED  # the timed runs; for a batch in several parts, those of the last one
    spans: tuple[Span, ...] = ()  # for a plan that overlaps copies with kernels

    @property
    def y(self) -> np.ndarray:
        """The first output, which most operations have alone."""
        return next(iter(self.outputs.values()))

    @property
    def op_samples_ms(self) -> tuple[float, ...]:
        """One value for each timed run; empty for a batch in several parts."""
        return self.timed.samples_ms if self.steps == 1 else ()


def run(
    variant: Variant,
    problem: Any,
    arrays: Arrays,
    device: Device | None,
    timing: Timing = NO_TIMING,
    most: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run a variant: its plan on a device, or its NumPy function on the host.

    Parameters
    ----------
    problem, arrays
        What to compute: arrays of the roles "in" and "weight" by name, in their types and C order.
    device
        Not used by a variant that runs on the host.
    timing
        How the launches are timed. If the device has no clock, there is no op time.
    most
        Split the batch into parts of at most this many entries, even if more would fit.
    progress
        Called after each part.

    Raises
    ------
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    if variant.host is not None:
        if limit := variant.limit_for(problem):
            raise LimitError(f"{variant.name} does not support {problem}: {limit}")
        return _run_host(variant, problem, arrays, timing, most or problem.batch, progress)
    if device is None:
        raise UsageError(f"{variant.name} has kernels and needs a device; pass device='auto', or an open one")
    check_runnable(variant, device)

    def plan(n: int) -> Planned:
        return variant.planned(problem.with_batch(n), device.max_shared_bytes)

    return run_plans(plan, problem, arrays, device, timing, most, progress)


def run_plans(
    plan: Callable[[int], Planned],
    problem: Any,
    arrays: Arrays,
    device: Device,
    timing: Timing = NO_TIMING,
    most: int | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run plans for as many parts of a batch as the device's memory needs.

    Parameters
    ----------
    plan
        Returns the plan for this many entries of the batch.
    problem, arrays, device, timing, most, progress
        See `run`.
    """
    outputs = empty_outputs(problem)
    parts = cut(problem.batch, largest_part(plan, problem, device.free_bytes(), most))
    plans = {size: plan(size) for size in {last - first for first, last in parts}}
    modules = {size: device.compile(planned.source, planned.defines) for size, planned in plans.items()}
    compile_ms = sum(module.compile_ms for module in modules.values())
    layer_ms, op_ms = 0.0, 0.0
    for first, last in parts:
        given, out = (entries(problem, some, first, last) for some in (arrays, outputs))
        done = run_planned(plans[last - first], given, device, timing, modules[last - first], out)
        layer_ms += done.layer_ms
        op_ms += done.op_ms or 0.0
        compile_ms += done.compile_ms - modules[last - first].compile_ms
        if progress:
            progress(last)
    return Result(
        outputs=outputs,
        op_ms=None if done.op_ms is None else op_ms,
        layer_ms=layer_ms,
        compile_ms=compile_ms,
        steps=len(parts),
        timed=done.timed,
        spans=done.spans if len(parts) == 1 else (),
    )


def run_planned(
    planned: Planned,
    arrays: Arrays,
    device: Device,
    timing: Timing = NO_TIMING,
    module: Module | None = None,
    outputs: Arrays | None = None,
) -> Result:
    """Run one plan, as a whole.

    Parameters
    ----------
    module
        The compiled kernels; compiled here if None.
    outputs
        C-contiguous arrays for the results; new arrays if None.

    Raises
    ------
    VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    module = module or device.compile(planned.source, planned.defines)
    others = compile_others(planned, device)
    outputs = empty_outputs(planned.problem) if outputs is None else outputs
    start = time.perf_counter()
    execution = Execution(planned, module, device, others=others)
    allocated = time.perf_counter()
    try:
        execution.fill()  # our own check, which is not part of a layer time
        filled = time.perf_counter()
        given = planned.problem.named("in", "weight")
        for name, array in given.items():
            if not (planned.copies_itself and array.role == "in" and array.split):
                device.copy_in(execution.buffers[name], arrays[name])
        with running(lambda: _slow(planned, device)):
            execution.set_up()
            before_s = allocated - start + time.perf_counter() - filled
            if planned.copies_itself:
                after_s, timed, spans = _run_overlapped(planned, arrays, outputs, execution, device, timing)
            else:
                after_s, timed, spans = _run_once(outputs, execution, device, timing)
    finally:
        execution.free()
    return Result(
        outputs=outputs,
        op_ms=statistics.median(timed.samples_ms) if timed.samples_ms else None,
        layer_ms=(before_s + after_s) * 1e3,
        compile_ms=module.compile_ms + sum(other.compile_ms for other in others.values()),
        steps=1,
        timed=timed,
        spans=spans,
    )


def _slow(planned: Planned, device: Device) -> str:
    """The message for a plan that runs for a long time, with the next step."""
    stop = "Ctrl-\\" if device.has_clock else "Ctrl-C"  # nothing interrupts a wait for a GPU
    return (
        f"the kernels of {planned.name} have run for {SILENCE_S:.0f} s on {planned.problem} and have not "
        f"ended. {stop} stops them. To look for an endless loop: run.py check --impl {planned.name} --shapes "
        f"{planned.problem.with_batch(1).text}"
    )


def _run_host(
    variant: Variant, problem: Any, arrays: Arrays, timing: Timing, most: int, progress: Progress | None
) -> Result:
    """Run on the host, where the op time is wall-clock time."""
    outputs = empty_outputs(problem)
    parts = cut(problem.batch, most)

    def op() -> None:
        for first, last in parts:
            part = problem.with_batch(last - first)
            found = variant.run_host(part, entries(problem, arrays, first, last))
            for name, out in entries(problem, outputs, first, last).items():
                out[...] = found[name]
            if progress:
                progress(last)

    timed = time_on_host(op, timing)
    ms = statistics.median(timed.samples_ms)
    return Result(outputs, ms, ms, compile_ms=0.0, steps=len(parts), timed=timed)


def _run_once(
    outputs: Arrays, execution: Execution, device: Device, timing: Timing
) -> tuple[float, Timed, tuple[Span, ...]]:
    """Make the timed runs, then one whose results are copied out; return the seconds that this one took."""
    timed = time_kernels(execution, device, timing)
    again = time.perf_counter()
    execution.kernels()
    for name, out in outputs.items():
        device.copy_out(execution.buffers[name], out)
    device.synchronize()
    return time.perf_counter() - again, timed, ()


def _run_overlapped(
    planned: Planned, arrays: Arrays, outputs: Arrays, execution: Execution, device: Device, timing: Timing
) -> tuple[float, Timed, tuple[Span, ...]]:
    """Run a plan that copies by itself. The layer time is from page-locked memory to page-locked memory."""
    pinned: dict[str, np.ndarray] = {}
    for name, array in planned.problem.arrays.items():
        if array.split:
            pinned[name] = device.pinned(array.shape, array.dtype)
            if array.role == "in":
                pinned[name][...] = arrays[name]
    layer_s = []
    for _ in range(OVERLAPPED_RUNS if timing.repeats and device.has_clock else 1):
        again = time.perf_counter()
        execution.everything(pinned)
        device.synchronize()
        layer_s.append(time.perf_counter() - again)
    for name, out in outputs.items():
        out[...] = pinned[name]
    timed = time_op(execution.kernels, device, timing)
    spans = tuple(execution.trace(pinned)) if timed.samples_ms else ()
    return statistics.median(layer_s), timed, spans
