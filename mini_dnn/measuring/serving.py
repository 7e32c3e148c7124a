"""Measure serving: the latency of one image, images per second, and how op times grow with the batch."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

import numpy as np

from mini_dnn import datasets
from mini_dnn.checking.check import inputs
from mini_dnn.datasets import ImageSet
from mini_dnn.device.base import Device
from mini_dnn.device.code_hash import code_hash
from mini_dnn.errors import CheckError, DeviceError
from mini_dnn.measuring.bench import CHECK_IMAGES, PUBLISHED, head
from mini_dnn.measuring.nvml import Watch
from mini_dnn.nn.network import Network
from mini_dnn.ops.compare import check_conv2d
from mini_dnn.ops.course import layer_shape
from mini_dnn.ops.shapes import LenetBatch
from mini_dnn.running.resident import SLOTS, ResidentLenet
from mini_dnn.running.resident_check import TOLERANCE, check
from mini_dnn.running.runner import run
from mini_dnn.running.timing import Timing, median_error
from mini_dnn.variant import Variant, ceil_div

SCHEMA = "serving-1"
REQUESTS, WARM_UP = 2000, 200
IMAGES = 200  # that the requests send in turn; all of their answers are compared with float64
PERCENTILES = (50, 90, 99)
GROWTH = (1, 10, 100, 1_000, 10_000, 100_000)  # batches
BATCHES, PASSES = 20, 5  # batches of a pass; the median pass counts
LIMIT = 1.10  # times the longer of copy and kernels that a batch may take
SELDOM_S = 3600.0  # between two readings of the GPU's sensors: none while requests are timed


@dataclass
class ServingBench:
    """Measures, each figure as a row for a list of `record`; no row without a comparison with float64.

    Parameters
    ----------
    network
        The trained one.
    data
        Whose images are classified.
    device
        One with a clock.
    timing
        How op times are taken.
    data_dir
        Where the published images of Fashion-MNIST lie: see `mini_dnn.datasets.load`.
    """

    network: Network
    data: ImageSet
    device: Device
    timing: Timing = PUBLISHED
    data_dir: Path | None = None
    record: dict[str, Any] = field(init=False)  # ready for JSON

    def __post_init__(self) -> None:
        serving = {"warm_up": WARM_UP, "images": IMAGES, "passes": PASSES, "limit": LIMIT}
        rows: dict[str, Any] = {"latency": [], "growth": [], "throughput": []}
        shared = head(self.data, self.device, self.timing)
        self.record = {"schema": SCHEMA, **shared, "serving": serving, **rows}

    def latency(self, variant: Variant, send: str, requests: int, use_graph: bool) -> dict[str, Any]:
        """Wall time of requests of one image each, from ordinary host memory to probabilities there.

        Returns
        -------
        dict
            A row: ``p50_us, p90_us, p99_us, max_us``, and ``op_ms``, the kernels alone.

        Raises
        ------
        CheckError
            An answer differs from float64.
        """
        images = datasets.as_sent(self.data, IMAGES, send, self.data_dir)
        shape = LenetBatch.of(images[:1])
        with closing(ResidentLenet(self.network, variant, self.device, shape, use_graph)) as resident:
            samples = resident.op_samples_ms(self.timing)
            with Watch(self.device, SELDOM_S) as watch:
                us, answers = _requests(resident, images, requests)
        error = check(self.network, self.data.images[:IMAGES], answers, variant.precision)
        return {
            **_about(variant),
            "send": send,
            "graph": use_graph,
            "requests": requests,
            **{f"p{p}_us": float(np.percentile(us, p)) for p in PERCENTILES},
            "max_us": float(us.max()),
            **_op(samples),
            "max_error": error,
            "state": watch.state,
        }

    def growth_of_network(self, variant: Variant, batch: int) -> dict[str, Any]:
        """Op time of a whole network for so many random images.

        Returns
        -------
        dict
            A row; ``op_ms`` is None where the batch does not fit the device's memory in one part.

        Raises
        ------
        CheckError
            Images from either end of the batch differ from float64.
        """
        bytes_ = np.random.default_rng(0).integers(0, 256, (batch, 1, 86, 86), np.uint8)
        images = datasets.to_float(bytes_)
        shape = LenetBatch.of(images)
        with closing(ResidentLenet(self.network, variant, self.device, shape)) as resident:
            error = check(self.network, bytes_, resident.predict(images), variant.precision)
            parts = ceil_div(batch, resident.shape.N)
            with Watch(self.device) as watch:
                samples = resident.op_samples_ms(self.timing) if parts == 1 else []
        about = {**_about(variant), "layer": "lenet", "batch": batch, "parts": parts, "flops": shape.flops}
        return {**about, **_op(samples), "max_error": error, "state": watch.state}

    def growth_of_convolution(self, variant: Variant, layer: str, batch: int) -> dict[str, Any]:
        """Op time of ``"conv1"`` or ``"conv2"`` for so many random images, as a row.

        Raises
        ------
        CheckError
            Images from either end of the batch differ from float64.
        """
        shape = layer_shape(layer, batch)
        x, w = inputs(shape, seed=0)
        with Watch(self.device) as watch:
            result = run(x, w, variant, self.device, self.timing)
        comparison = check_conv2d(x, w, result.y, variant.precision, CHECK_IMAGES)
        if not comparison.ok:
            raise CheckError(f"{variant.name}, layer {layer}, batch {batch}: {comparison}")
        return {
            **_about(variant),
            "layer": layer,
            "batch": batch,
            "parts": result.steps,
            "flops": shape.flops,
            **_op(result.op_samples_ms),
            "op_ms": result.op_ms,  # of a batch in parts: the sum of theirs
            "max_error": comparison.max_error,
            "state": watch.state,
        }

    def throughput(self, variant: Variant, send: str, batch: int, batches: int = BATCHES) -> dict[str, Any]:
        """Images per second from pinned host memory to probabilities in host memory.

        The images are in pinned memory before, as if a producer had written them there: the host copies
        none.

        Returns
        -------
        dict
            A row: ``batch_ms``, a batch's share of the wall time of a pass over ``batches`` of them, with
            the first one's copy and the last one's wait; ``copy_ms``, its bytes at the rate of copies from
            pinned memory; ``op_ms``, its kernels alone; ``over_longer``, ``batch_ms`` over the longer of
            both.

        Raises
        ------
        CheckError
            A batch's probabilities differ from float64 or from other batches'.
        DeviceError
            The device's memory is too small for the batches under way.
        """
        images = datasets.as_sent(self.data, batch, send, self.data_dir)
        shape = LenetBatch.of(images)
        with closing(ResidentLenet(self.network, variant, self.device, shape)) as resident:
            if batch > resident.shape.N:
                raise DeviceError(
                    f"{variant.name} has room for {SLOTS} batches of {resident.shape.N:,} images here, not "
                    f"of {batch:,}; take a smaller --batch"
                )
            op = _op(resident.op_samples_ms(self.timing))
            expected, *_ = resident.serve([images] * SLOTS)  # from here on each pinned array holds them
            error = check(self.network, self.data.images[:batch], expected, variant.precision)
            with Watch(self.device) as watch:
                passes_ms = [_pass_ms(resident, expected, batches) for _ in range(PASSES)]
        batch_ms = statistics.median(passes_ms) / batches
        copy_ms = images.nbytes / self.record["memory"]["h2d_gbps"] / 1e6
        return {
            **_about(variant),
            "send": send,
            "batch": batch,
            "batches": batches,
            "image_bytes": images[0].nbytes,
            "images_per_s": batch / batch_ms * 1e3,
            "batch_ms": batch_ms,
            "batch_ms_of_passes": [ms / batches for ms in passes_ms],
            "copy_ms": copy_ms,
            **op,
            "over_longer": batch_ms / max(copy_ms, op["op_ms"]),
            "accuracy": float(np.mean(expected.argmax(axis=1) == self.data.labels[:batch])),
            "max_error": error,
            "state": watch.state,
        }


def _requests(resident: ResidentLenet, images: np.ndarray, requests: int) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds of each request after the warm-up, and the last answer to each image (n, 10)."""
    batches = [images[n : n + 1] for n in range(len(images))]
    answers = np.full((len(images), 10), np.nan, np.float32)
    us = np.empty(WARM_UP + requests)
    for at in range(len(us)):
        n = at % len(batches)
        start = perf_counter_ns()
        probabilities = resident.respond(batches[n])
        us[at] = (perf_counter_ns() - start) / 1e3
        answers[n] = probabilities
    return us[WARM_UP:], answers


def _pass_ms(resident: ResidentLenet, expected: np.ndarray, batches: int) -> float:
    """Milliseconds of so many full batches of what the pinned arrays hold."""
    counts = iter([len(expected)] * batches)
    start = perf_counter()
    found = list(resident.serve_in_place(lambda images: next(counts, 0)))
    ms = (perf_counter() - start) * 1e3
    for at, probabilities in enumerate(found):
        if not (np.abs(probabilities - expected) <= TOLERANCE["fp32"]).all():  # NaN fails
            raise CheckError(f"batch {at} of {len(found)} differs from the first one, of the same images")
    return ms


def forms(variant: Variant, data: ImageSet) -> list[str]:
    """The forms of images, of `datasets.SEND`, that a network variant takes and a data set has."""
    shapes = {"float32": LenetBatch(1), "uint8": LenetBatch(1, True), "uint8-28": LenetBatch(1, True, 28)}
    drawn = {"uint8-28"} if data.name == datasets.synthetic.NAME else set()
    return [send for send, shape in shapes.items() if send not in drawn and not variant.limit_for(shape)]


def _about(variant: Variant) -> dict[str, Any]:
    return {"variant": variant.name, "code_hash": None if variant.host else code_hash(variant.source)}


def _op(samples: Sequence[float]) -> dict[str, Any]:
    """The op time with its spread."""
    return {
        "op_ms": statistics.median(samples) if samples else None,
        "op_ms_quartiles": statistics.quantiles(samples, n=4) if len(samples) > 1 else None,
        "median_error": median_error(samples) if len(samples) >= 6 else None,
        "repeats": len(samples),
    }
