"""Measure variants, and record everything that is needed to trust a figure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from mini_dnn.device.base import Device
from mini_dnn.device.code_hash import code_hash
from mini_dnn.device.sources import source_hash
from mini_dnn.measuring.ceilings import copy_rates, peak_tflops
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.measuring.measure import Measured, Setting, measure
from mini_dnn.measuring.nvml import gpu_state
from mini_dnn.measuring.records import BenchFile, Place, Row, Skipped, Span, State, Streams, Sweep
from mini_dnn.ops import Arrays
from mini_dnn.running.spans import hidden_fraction
from mini_dnn.running.timing import Timed, Timing, median_error
from mini_dnn.variant import Variant

CHECKED = 100  # entries that are compared with float64, from both ends of the batch
PUBLISHED = Timing(
    warm_up=5, repeats=20, max_repeats=500, precision=0.005, budget_s=5.0
)  # how a figure for publication is timed
SWEEP_TIMING = Timing(warm_up=2, repeats=10, max_repeats=10)
RANDOM = "random"  # name of inputs that are not from a data set
SEED = 0  # of random inputs


class Bench:
    """A run, which measures and collects the results in a record.

    Parameters
    ----------
    setting
        Where and how to measure, including a device.
    data
        A description of the inputs.
    on_row
        Called with each row, and with each problem that a variant does not accept, as soon as it is known.
    head
        A record of the same device and data, whose fields are reused. By default, the device is queried.
    """

    def __init__(
        self,
        setting: Setting,
        data: str = RANDOM,
        on_row: Callable[[Row | Skipped], None] = lambda row: None,
        head: BenchFile | None = None,
    ) -> None:
        assert setting.device is not None, "figures are of a device"
        self.setting, self._on_row = setting, on_row
        self.record = (
            replace(head, rows=[], skipped=[], sweeps=[])
            if head
            else BenchFile(**head_of(data, setting.device, setting.timing), rows=[])
        )

    def run(self, variants: Sequence[Variant], name: str, problem: Any) -> None:
        """Measure variants of one operation at a problem, all with the same random inputs.

        Raises
        ------
        CheckError
            A variant computes something else. It is not recorded.
        """
        arrays = variants[0].operation.inputs(problem, SEED)
        for variant in variants:
            limit = variant.limit_for(problem)
            if limit:
                self._skip(variant, name, limit)
            else:
                self.add(measure(variant, name, problem, arrays, self.setting))

    def add(self, measured: Measured, accuracy: float | None = None) -> None:
        """Record a measurement, with the accuracy of the network if it was measured in one."""
        row = row_of(measured, accuracy)
        self.record.rows.append(row)
        self._on_row(row)

    def sweep(self, variant: Variant, name: str, problem: Any) -> None:
        """Time all pairs of the values in which a variant's parameters were searched.

        Other variants have none.

        Raises
        ------
        CheckError
            One of the pairs computes something else.
        """
        if variant.sweep is None or variant.limit_for(problem):
            return
        arrays = variant.operation.inputs(problem, SEED)
        setting = replace(self.setting, timing=SWEEP_TIMING)

        def op_ms(x: int, y: int) -> float | None:
            return op_ms_of(variant, name, problem, x, y, setting, arrays)

        self.record.sweeps.append(sweep_of(variant, name, problem, op_ms))

    def _skip(self, variant: Variant, name: str, reason: str) -> None:
        skipped = Skipped(op=variant.op, problem=name, variant=variant.name, reason=reason)
        self.record.skipped.append(skipped)
        self._on_row(skipped)


def op_ms_of(
    variant: Variant, name: str, problem: Any, x: int, y: int, setting: Setting, arrays: Arrays | None = None
) -> float | None:
    """Return the op time of a searched variant with these parameter values, or None without a clock.

    Parameters
    ----------
    arrays
        The inputs if available: always the random ones of `SEED`.

    Raises
    ------
    CheckError
        The variant computes something else.
    """
    sweep = variant.sweep
    assert sweep is not None, "the caller looks"
    title = f"{variant.name} with {sweep.x_name} = {x}, {sweep.y_name} = {y}"
    candidate = replace(sweep.make(x, y), name=title, folder=variant.folder)
    given = arrays or variant.operation.inputs(problem, SEED)
    return measure(candidate, name, problem, given, setting).result.op_ms


def sweep_of(variant: Variant, name: str, problem: Any, op_ms: Callable[[int, int], float | None]) -> Sweep:
    """Create a record of the op times of all pairs of values in which a variant was searched."""
    sweep = variant.sweep
    assert sweep is not None, "the caller looks"
    return Sweep(
        op=variant.op,
        problem=name,
        variant=variant.name,
        batch=problem.batch,
        x_name=sweep.x_name,
        x_values=list(sweep.x_values),
        y_name=sweep.y_name,
        y_values=list(sweep.y_values),
        op_ms=[[op_ms(x, y) for x in sweep.x_values] for y in sweep.y_values],
        best=sweep.best,
    )


def head_of(data: str, device: Device, timing: Timing) -> dict[str, Any]:
    """Return what all figures of a record share: time, code, machine, and how an op is timed."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **commit(),
        "device": Place(name=device.description, cpu=cpu_name(), state=state_of(gpu_state(device))),
        "data": data,
        "versions": versions(),
        "method": timing,
        "memory": ceilings(device),
    }


def ceilings(device: Device) -> dict[str, float]:
    """Return measured copy rates and computed peak rates of a GPU. Without a clock, the result is empty."""
    if not device.has_clock:
        return {}
    clock = getattr(device, "max_clock_mhz", 0.0)
    peaks = peak_tflops(device.arch, getattr(device, "multiprocessors", 0), clock)
    return copy_rates(device) | peaks


def row_of(measured: Measured, accuracy: float | None = None) -> Row:
    """Convert a measurement, which has been compared with float64, to a row."""
    variant, problem, result = measured.variant, measured.problem, measured.result
    assert measured.comparison is not None, "no row without a comparison"
    samples = measured.samples_ms
    return Row(
        op=variant.op,
        problem=measured.name,
        shape=problem.fields,
        batch=problem.batch,
        variant=variant.name,
        parent=variant.parent,
        precision=variant.precision,
        source_hash=None if variant.host else source_hash(variant.source),
        code_hash=code_of(variant),
        flops=problem.flops,
        min_bytes=problem.min_bytes,
        op_ms=result.op_ms,
        op_ms_min=min(samples, default=None),
        op_ms_max=max(samples, default=None),
        **spread(replace(result.timed, samples_ms=samples)),
        parts=result.steps,
        layer_ms=result.layer_ms,
        compile_ms=result.compile_ms,
        max_error=measured.comparison.max_error,
        error_of_bound=measured.comparison.worst_ratio,
        accuracy=accuracy,
        state=state_of(measured.state),
        host=measured.host,
        streams=streams_of(measured) if result.spans else None,
    )


def code_of(variant: Variant) -> str | None:
    """Return the hash of a variant's code, or None on the host."""
    return None if variant.host else code_hash(variant.source)


def spread(timed: Timed) -> dict[str, Any]:
    """Return how precisely an op time is known from its samples."""
    samples = timed.samples_ms
    return {
        # those of two samples are outside of them, and may be negative
        "op_ms_quartiles": statistics.quantiles(samples, n=4) if len(samples) > 2 else None,
        "median_error": median_error(samples) if len(samples) >= 6 else None,
        "settled": timed.settled,
        "repeats": len(samples),
    }


def state_of(found: Mapping[str, Any] | None) -> State | None:
    """Convert readings of a GPU's sensors for a record."""
    return None if found is None else State(**found)


def streams_of(measured: Measured) -> Streams:
    """Describe how copies and kernels overlapped."""
    spans = list(measured.result.spans)
    parts = msgspec.convert(spans, list[Span], from_attributes=True)
    return Streams(hidden_fraction=hidden_fraction(spans), spans=parts)
