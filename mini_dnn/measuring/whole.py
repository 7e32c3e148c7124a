"""A network that stays on a device: its results for a batch, and how long they take."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.measuring.inference import Program
from mini_dnn.measuring.measure import PART, Setting
from mini_dnn.measuring.nvml import Watch
from mini_dnn.progress import Bar
from mini_dnn.running.timing import NOT_TIMED, Timed
from mini_dnn.variant import Variant


@dataclass(frozen=True)
class Whole:
    """The results of a network that stays on a device for a batch."""

    problem: Any
    held: int  # entries for which the device has memory at a time
    probabilities: np.ndarray
    layer_ms: float  # wall time of the whole batch, with copies
    timed: Timed  # without samples if the batch is larger than ``held``
    max_error: float | None  # of a probability, if it was compared with float64
    state: dict[str, Any] | None  # of the GPU: see `Watch`


def classify(variant: Variant, program: Program, batch: int, send: str, setting: Setting) -> Whole:
    """Classify the first ``batch`` images with a network that stays on a device.

    Raises
    ------
    CheckError
        The probabilities differ from float64.
    VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    device = setting.device
    assert device is not None, "a network variant has kernels"
    service = program.service(variant, send, batch)
    with closing(service.open(batch if device.has_clock else min(batch, PART), setting)) as resident:
        start = time.perf_counter()
        with Bar("the whole network", batch) as bar:
            probabilities = resident.predict(service.entries, bar.update)
        layer_ms = (time.perf_counter() - start) * 1e3
        held = resident.problem.batch
        with Watch(device) as watch:
            timed = resident.time(setting.timing) if batch == held else NOT_TIMED
    error = None if setting.entries == 0 else service.check(probabilities, setting.entries)
    return Whole(service.problem, held, probabilities, layer_ms, timed, error, watch.state)
