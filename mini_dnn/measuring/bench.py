"""Measure variants in the network, and record everything that a figure needs to be believed."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.datasets import ImageSet
from mini_dnn.device.base import Device
from mini_dnn.device.code_hash import code_hash
from mini_dnn.device.sources import source_hash
from mini_dnn.errors import CheckError
from mini_dnn.measuring.ceilings import copy_rates, peak_tflops
from mini_dnn.measuring.inference import ConvLayer, Convolutions, accuracy
from mini_dnn.measuring.machine import commit, cpu_name, load, versions
from mini_dnn.measuring.nvml import Watch, gpu_state
from mini_dnn.nn.network import Network
from mini_dnn.ops.compare import check_conv2d
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.paths import write_atomically
from mini_dnn.running.execute import Span, hidden_fraction
from mini_dnn.running.runner import check_runnable, run
from mini_dnn.running.timing import Timing, median_error
from mini_dnn.variant import Sweep, Variant

SCHEMA = (
    2  # since 1: layer_ms is without the NaN fill, rows have a code_hash, their state is read all through
)
CHECK_IMAGES = 100  # compared with float64, from both ends of the batch
PUBLISHED = Timing(
    warm_up=5, repeats=20, max_repeats=500, precision=0.005, budget_s=5.0, cold_cache=True
)  # how a figure for publication is timed
SWEEP_TIMING = Timing(warm_up=2, repeats=10, max_repeats=10, cold_cache=True)


def bench(
    variants: Sequence[Variant],
    batches: Sequence[int],
    network: Network,
    data: ImageSet,
    device: Device,
    timing: Timing = PUBLISHED,
    sweeps: bool = False,
    report: Callable[[dict[str, Any]], None] = lambda row: None,
    keep: Callable[[dict[str, Any]], None] = lambda record: None,
) -> dict[str, Any]:
    """Run each variant at each batch through the network.

    Every convolution's output is compared with float64 before its time counts.

    Parameters
    ----------
    sweeps
        Also time all candidates of variants that come from a search.
    report
        Called with each row as soon as it is measured.
    keep
        Called with the record so far after each variant, so that a later failure costs nothing.

    Returns
    -------
    dict
        Ready for JSON: ``schema, started, commit, dirty, device, data, versions, method, memory, rows,
        sweeps``. A row is one convolution layer of one variant at one batch.

    Raises
    ------
    CheckError
        A variant computes something else; nothing is recorded of it.
    """
    for variant in variants:
        check_runnable(variant, device)
    record: dict[str, Any] = {"schema": SCHEMA, **head(data, device, timing), "rows": [], "sweeps": []}
    for variant in variants:
        for batch in batches:
            used = None if variant.host else device
            convolutions = Watched(variant, used, timing, min(batch, CHECK_IMAGES))
            found = accuracy(network, convolutions, data, batch)
            for layer in convolutions.layers.values():
                row = _row(variant, batch, layer, found) | convolutions.states[layer.name]
                record["rows"].append(row)
                report(row)
            if sweeps and variant.sweep:
                record["sweeps"] += [
                    _sweep(variant, variant.sweep, layer.shape, layer.name, device)
                    for layer in convolutions.layers.values()
                ]
        keep(record)
    return record


def head(data: ImageSet, device: Device, timing: Timing) -> dict[str, Any]:
    """What all figures of a record share: when, of which code, on what, and how an op is timed."""
    return {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        **commit(),
        "device": {"name": device.description, "cpu": cpu_name(), "state": gpu_state(device)},
        "data": data.name,
        "versions": versions(),
        "method": asdict(timing),
        "memory": ceilings(device),
    }


@dataclass
class Watched(Convolutions):
    """Convolutions with the state of what runs each of them, by layer: the GPU's, or how busy the host is."""

    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __call__(self, x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        """Convolve for the layer of that name."""
        with Watch(self.device) as watch:
            y = super().__call__(x, w, name)
        self.states[name] = {"state": watch.state} if self.device else {"state": None, "host": load()}
        return y


def ceilings(device: Device) -> dict[str, float]:
    """Measured copy rates and computed peak rates of a GPU; empty for a device without a clock."""
    if not device.has_clock:
        return {}
    clock = getattr(device, "max_clock_mhz", 0.0)
    peaks = peak_tflops(device.arch, getattr(device, "multiprocessors", 0), clock)
    return copy_rates(device) | peaks


def _sweep(variant: Variant, sweep: Sweep, shape: ConvShape, layer: str, device: Device) -> dict[str, Any]:
    """Op times of all pairs of values on one layer, with random inputs; each result is checked, too."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)

    def op_ms(x_value: int, y_value: int) -> float | None:
        candidate = replace(sweep.make(x_value, y_value), name=variant.name, folder=variant.folder)
        result = run(x, w, candidate, device, SWEEP_TIMING)
        comparison = check_conv2d(x, w, result.y, candidate.precision, CHECK_IMAGES)
        if not comparison.ok:
            names = f"{sweep.x_name} = {x_value}, {sweep.y_name} = {y_value}"
            raise CheckError(f"{variant.name} with {names}, layer {layer}: {comparison}")
        return result.op_ms

    return {
        "variant": variant.name,
        "layer": layer,
        "batch": shape.N,
        "x_name": sweep.x_name,
        "x_values": sweep.x_values,
        "y_name": sweep.y_name,
        "y_values": sweep.y_values,
        "op_ms": [[op_ms(x, y) for x in sweep.x_values] for y in sweep.y_values],
        "best": sweep.best,
    }


def _row(variant: Variant, batch: int, layer: ConvLayer, found: float) -> dict[str, Any]:
    result, samples = layer.result, layer.result.op_samples_ms
    assert layer.comparison is not None, "bench always checks"
    return {
        "variant": variant.name,
        "parent": variant.parent,
        "precision": variant.precision,
        "source_hash": None if variant.host else source_hash(variant.source),
        "code_hash": None if variant.host else code_hash(variant.source),
        "batch": batch,
        "layer": layer.name,
        "shape": asdict(layer.shape),
        "flops": layer.shape.flops,
        "min_bytes": layer.shape.min_bytes,
        "op_ms": result.op_ms,
        "op_ms_min": min(samples, default=None),
        "op_ms_max": max(samples, default=None),
        "op_ms_quartiles": statistics.quantiles(samples, n=4) if len(samples) > 1 else None,
        "median_error": median_error(samples) if len(samples) >= 6 else None,
        "repeats": len(samples),
        "parts": result.steps,
        "layer_ms": result.layer_ms,
        "compile_ms": result.compile_ms,
        "max_error": layer.comparison.max_error,
        "error_of_bound": layer.comparison.worst_ratio,
        "accuracy": found,
        **({"streams": _streams(result.spans)} if result.spans else {}),
    }


def _streams(spans: tuple[Span, ...]) -> dict[str, Any]:
    return {
        "hidden_fraction": hidden_fraction(list(spans)),
        "spans": [asdict(span) for span in spans],
    }


def write(record: dict[str, Any], path: Path) -> None:
    """Write a record as JSON, whole or not at all."""
    write_atomically(path, (json.dumps(record, indent=1) + "\n").encode())
    path.chmod(0o644)  # results are for everybody
