"""Measures a variant at a problem: runs it, compares it with float64, times it, and monitors the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mini_dnn.device.base import Device
from mini_dnn.errors import CheckError, LaunchError
from mini_dnn.measuring.machine import load
from mini_dnn.measuring.nvml import Watch
from mini_dnn.ops import Arrays
from mini_dnn.ops.compare import Comparison, merged
from mini_dnn.paths import program
from mini_dnn.progress import Bar
from mini_dnn.running.runner import Result, run
from mini_dnn.running.several import run_on_several
from mini_dnn.running.timing import NO_TIMING, WARM_UP_S, Timed, Timing
from mini_dnn.running.verify import explained, verify
from mini_dnn.variant import Variant

MOST_CHECKED_FLOPS = 1e8  # of a problem in checked mode, which takes some seconds
PART = 250  # entries of the batch at a time on a CPU, so that the progress bar moves
UNSETTLED = (
    f"Op times still changed after {WARM_UP_S:g} s of warm-up, so this one may be wrong: measure again while "
    "nothing else uses the device."
)


@dataclass(frozen=True)
class Setting:
    """Where and how variants are measured.

    Parameters
    ----------
    device
        The device; None if all variants run on the host.
    timing
        How each op is timed.
    entries
        The number of entries of the batch that are compared with float64, half of them from each end; None
        for all, and 0 for no comparison.
    several
        GPUs among which each problem is divided, with their names; ``device`` is the first of them.
    """

    device: Device | None
    timing: Timing = NO_TIMING
    entries: int | None = 0
    several: Sequence[tuple[str, Device]] = ()


@dataclass(frozen=True)
class Measured:
    """The measurement of one variant at one problem."""

    variant: Variant
    name: str  # of the problem
    problem: Any
    result: Result
    comparison: Comparison | None  # with float64, if requested
    state: dict[str, Any] | None  # of the GPU during the measurement: see `Watch`
    host: dict[str, float] | None  # how busy the host is, if it computes

    @property
    def samples_ms(self) -> tuple[float, ...]:
        """The timed runs of the whole batch; empty if it was computed in parts on a device."""
        return self.result.timed.samples_ms if self.variant.host else self.result.op_samples_ms


def joined(parts: Sequence[Measured]) -> Measured:
    """The measurement of a batch from its parts. Op times of parts are not samples of the whole batch."""
    first, last = parts[0], parts[-1]
    if len(parts) == 1:
        return first
    results = [part.result for part in parts]
    op_ms = [result.op_ms for result in results]
    compared = [part.comparison for part in parts if part.comparison]
    result = Result(
        outputs={},
        op_ms=None if None in op_ms else sum(ms for ms in op_ms if ms is not None),
        layer_ms=sum(result.layer_ms for result in results),
        compile_ms=sum(result.compile_ms for result in results),
        steps=sum(result.steps for result in results),
        timed=Timed(settled=all(result.timed.settled for result in results)),
    )
    return replace(
        last,
        name=first.name,
        problem=first.problem.with_batch(sum(part.problem.batch for part in parts)),
        result=result,
        comparison=merged(compared) if compared else None,
    )


def measure(variant: Variant, name: str, problem: Any, arrays: Arrays, setting: Setting) -> Measured:
    """Run a variant, and compare what it computes with float64.

    Parameters
    ----------
    name
        The name of the problem in messages.

    Raises
    ------
    CheckError
        Outputs differ from float64, or some were not written. The message has the first such element.
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    device = None if variant.host else setting.device
    most = None if device and device.has_clock else PART
    with Bar(name, problem.batch) as bar, Watch(device) as watch, pointing_to_check(variant, problem):
        if setting.several:
            result: Result = run_on_several(variant, problem, arrays, setting.several, setting.timing)
        else:
            result = run(variant, problem, arrays, device, setting.timing, most, bar.update)
    what = f"{variant.name}, {name}"
    for output, values in result.outputs.items():
        _refuse_nan(problem.arrays[output].without_gap(values), what, _next(variant, problem))
    comparison = None
    if setting.entries != 0:
        compared = min(problem.batch, setting.entries or problem.batch)
        with Bar(f"{name}, float64", compared) as bar:
            comparison = verify(
                variant.operation,
                problem,
                arrays,
                result.outputs,
                variant.precision,
                setting.entries,
                bar.update,
            )
        if not comparison.ok:
            why = explained(variant.operation, problem, arrays, result.outputs, variant.precision, comparison)
            raise CheckError(f"{what}: {comparison}{why}. {_next(variant, problem)}")
    host = load() if variant.host else None
    return Measured(variant, name, problem, result, comparison, watch.state, host)


@contextmanager
def pointing_to_check(variant: Variant, problem: Any) -> Iterator[None]:
    """Append the command that finds the cause to the message of a launch that fails."""
    try:
        yield
    except LaunchError as error:
        raise LaunchError(f"{error}. {_next(variant, problem)}") from error


def _next(variant: Variant, problem: Any) -> str:
    """The command that finds the cause, at a problem like this one if checked mode can run it in seconds."""
    small = problem.with_batch(min(problem.batch, 2))
    where = ["--shapes", small.text] if small.flops <= MOST_CHECKED_FLOPS else []
    return f"Find the cause with: {program('check', variant.name, *where)}"


def _refuse_nan(y: np.ndarray, what: str, next_step: str) -> None:
    """Raise an error for NaN in outputs. Buffers start with NaN, so the element is wrong or unwritten."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isnan(y.sum()):  # faster than checking each element; infinities of both signs also give NaN
            return
        nan = np.isnan(y)
    if nan.any():
        first = tuple(int(i) for i in np.unravel_index(int(nan.argmax()), y.shape))
        raise CheckError(
            f"{what}: {int(nan.sum())} of {y.size} output elements are NaN, the first at {first}: no thread "
            "wrote them (buffers start as NaN), or they were computed from such an element. Do the grid and "
            f"the bounds cover the whole output? {next_step}"
        )
