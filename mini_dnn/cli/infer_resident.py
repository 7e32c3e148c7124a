"""``infer --resident``: the whole network on the device."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn import datasets
from mini_dnn.datasets import ImageSet
from mini_dnn.device import Device
from mini_dnn.measuring.inference import PART_IMAGES
from mini_dnn.nn.network import Network
from mini_dnn.ops.shapes import LenetBatch
from mini_dnn.progress import Bar
from mini_dnn.running.resident import ResidentLenet
from mini_dnn.running.resident_check import check
from mini_dnn.running.timing import Timing
from mini_dnn.variant import Variant


def classify_resident(
    variant: Variant,
    device: Device,
    network: Network,
    data: ImageSet,
    batch: int,
    timing: Timing,
    send: str,
    data_dir: Path | None,
    compare: bool,
) -> tuple[float, list[dict[str, Any]]]:
    """Classify the first ``batch`` images and print the times; accuracy, and the figures for a file.

    ``send`` is one of `mini_dnn.datasets.SEND`.
    """
    bytes_, labels = data.images[:batch], data.labels[:batch]
    images = datasets.as_sent(data, batch, send, data_dir)
    part = batch if device.has_clock else min(batch, PART_IMAGES)  # so that progress moves
    with closing(ResidentLenet(network, variant, device, LenetBatch.of(images).with_batch(part))) as resident:
        start = time.perf_counter()
        with Bar("the whole network", batch) as bar:
            probabilities = resident.predict(images, bar.update)
        layer_ms = (time.perf_counter() - start) * 1e3
        samples = resident.op_samples_ms(timing) if batch == resident.shape.N else []
        shape = str(resident.shape.with_batch(batch))
    op_ms = statistics.median(samples) if samples else None
    print(f"\nLeNet  {shape}")
    rate = f": {batch / layer_ms * 1e3:,.0f} images/s" if device.has_clock else ""
    print(f"Layer Time: {layer_ms:.3f} ms, with copies{rate}")
    if op_ms is not None:
        print(f"Op Time: {op_ms:.3f} ms")
    elif device.has_clock:
        print(f"Op Time: none (the device's memory holds {resident.shape.N:,} images at a time)")
    else:
        print("Op Time: none (emulated: what a CPU takes says nothing about a GPU)")
    if compare:
        error = check(network, bytes_, probabilities, variant.precision)
        print(f"agrees with float64: max error {error:.2e} of a probability")
    figures = {"name": "lenet", "shape": shape, "op_ms": op_ms, "layer_ms": layer_ms, "compile_ms": None}
    return float(np.mean(probabilities.argmax(axis=1) == labels)), [figures]
