"""Op times that a submission cannot argue with.

Each timed call gets inputs that nobody has seen, in buffers that hold NaN elsewhere, from memory and not from
the L2 cache. Its output is judged: some images element by element, and all of them at once by a random
combination of images, which must equal the convolution of the same combination of inputs [1]_. The inputs
must be what they were, nothing may run on after the clock has stopped, and no time may lie below what moving
the bytes and doing the arithmetic take.

References
----------
.. [1] R. Freivalds, "Probabilistic machines can use less running time", IFIP Congress, 1977: a product is
   checked by a random vector.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.device.base import Device
from mini_dnn.measuring.ceilings import copy_rates, peak_tflops
from mini_dnn.measuring.nvml import gpu_state
from mini_dnn.ops.compare import check_conv2d, conv2d_bound, conv2d_float64
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.running.execute import Execution
from mini_dnn.variant import Variant

MARGIN = 1.15  # of the copy rate: how far a kernel that mostly writes may exceed one that copies
LATE_MS = 0.2  # for a whole-device wait when there is nothing to wait for
LATE_PART = 0.05  # of the op time
PART_IMAGES = 250
ROUNDED_OPERANDS = ("tf32", "fp16")  # whose sums are exact


@dataclass(frozen=True)
class Method:
    """How an op is measured: least exact arithmetic allowed, runs, and images judged element by element.

    ``whole`` is how many images the batch has of which this is a part; 0: it is no part.
    """

    precision: str
    warm_up: int
    repeats: int
    images: int = 8
    whole: int = 0


@dataclass(frozen=True)
class Floor:
    """What a device cannot beat."""

    bytes_per_ms: float
    cached_bytes: int  # of the output may still be in the cache when the clock stops
    flops_per_ms: float  # 0: not known

    @classmethod
    def of(cls, device: Device) -> Floor:
        """Measured copy rates, and peak rates of the tensor cores."""
        clock, processors = getattr(device, "max_clock_mhz", 0.0), getattr(device, "multiprocessors", 0)
        peaks = peak_tflops(device.arch, processors, clock)
        return cls(
            copy_rates(device)["copy_gbps"] * MARGIN * 1e6,
            int(getattr(device, "l2_bytes", 0)),
            peaks.get("fp16_tflops", 0.0) * 1e9,
        )

    def ms(self, shape: ConvShape) -> float:
        """Least time for a convolution."""
        moved = max(0, shape.min_bytes - self.cached_bytes) / self.bytes_per_ms
        return max(moved, shape.flops / self.flops_per_ms if self.flops_per_ms else 0.0)


@dataclass(frozen=True)
class Measured:
    """What was measured; ``refused`` says why it does not count."""

    op_ms: float
    samples_ms: tuple[float, ...]
    floor_ms: float
    state: tuple[Any, Any]  # clocks and throttling, before and after
    refused: str = ""


def measure(variant: Variant, shape: ConvShape, device: Device, method: Method, floor: Floor) -> Measured:
    """Time one convolution, judging every call.

    Raises
    ------
    VariantError, DeviceError
        The plan or a kernel fails.
    """
    # whoever asks for memory until the batch is done in parts that fit the cache gains nothing by it
    whole = shape.with_batch(method.whole or shape.N)
    floor_ms = floor.ms(whole) * shape.N / whole.N
    rng = np.random.default_rng()  # of the system's entropy: nobody can know these inputs
    module = device.compile(variant.source, variant.defines_for(shape))
    execution = Execution(variant, shape, module, device)
    x, y, back = (np.empty(size, np.float32) for size in (shape.x, shape.y, shape.x))
    samples: list[float] = []
    late: list[float] = []
    before = gpu_state(device)
    try:
        for call in range(method.warm_up + method.repeats):
            w = _draw(x, shape, method.precision, rng)
            ms, late_ms, refused = _call(execution, device, x, w, y, back)
            if call >= method.warm_up:
                samples.append(ms)
                late.append(late_ms)
            refused = refused or _judge(x, w, y, method, rng)
            if not refused and ms < floor_ms:
                refused = (
                    f"{ms:.4f} ms is less than moving its bytes takes on this GPU, {floor_ms:.4f} ms: "
                    "the work was not done in that time"
                )
            if refused:
                return Measured(ms, tuple(samples), floor_ms, (before, gpu_state(device)), refused)
    finally:
        execution.free()
    op_ms, late_ms = statistics.median(samples), statistics.median(late)  # one wait may hit a busy host
    refused = ""
    if late_ms > max(LATE_MS, LATE_PART * op_ms):
        refused = f"the device went on working for {late_ms:.2f} ms after the clock had stopped"
    return Measured(op_ms, tuple(samples), floor_ms, (before, gpu_state(device)), refused)


def _draw(x: np.ndarray, shape: ConvShape, precision: str, rng: np.random.Generator) -> np.ndarray:
    """Fresh inputs: fills x, and returns w."""
    rng.random(dtype=np.float32, out=x)  # a quarter of the time that normal ones take
    w = rng.standard_normal(shape.w, np.float32)
    if precision in ROUNDED_OPERANDS:
        return np.abs(w)  # sums that grow and grow tell those that are kept in half
    x -= 0.5
    return w


def _call(
    execution: Execution, device: Device, x: np.ndarray, w: np.ndarray, y: np.ndarray, back: np.ndarray
) -> tuple[float, float, str]:
    """One timed call; fills y. Milliseconds, those of a whole-device wait after it, and what was wrong.

    ``back`` has room for x as it is afterwards.
    """
    execution.fill()
    device.copy_in(execution.buffers["x"], x)
    device.copy_in(execution.buffers["w"], w)
    device.synchronize()
    device.flush_cache()
    start = device.record()
    execution.kernels()
    ms = device.elapsed_ms(start, device.record())
    since = time.perf_counter()
    device.synchronize()
    late_ms = (time.perf_counter() - since) * 1e3
    device.copy_out(execution.buffers["y"], y)
    for name, given, found in (("x", x, back), ("w", w, np.empty_like(w))):
        device.copy_out(execution.buffers[name], found)
        if not np.array_equal(found.view(np.uint32), given.view(np.uint32)):
            return ms, late_ms, f"a kernel changed the input {name}; inputs are read only"
    return ms, late_ms, ""


def _judge(x: np.ndarray, w: np.ndarray, y: np.ndarray, method: Method, rng: np.random.Generator) -> str:
    """What is wrong with the output of a timed call, if anything."""
    chosen = rng.choice(len(x), min(len(x), method.images), replace=False)
    result = check_conv2d(x[chosen], w, y[chosen], method.precision)
    if not result.ok:
        return f"the output of a timed call is wrong: {result}"
    signs = rng.choice(np.array([-1, 1], np.float32), len(x))
    found, combined = np.zeros(y.shape[1:]), np.zeros((1, *x.shape[1:]))
    for first in range(0, len(x), PART_IMAGES):
        part = slice(first, first + PART_IMAGES)
        with np.errstate(invalid="ignore", over="ignore"):
            found += np.tensordot(signs[part], y[part], 1)
        combined[0] += np.tensordot(signs[part].astype(np.float64), x[part], 1)
    # the errors of N images with random signs add up like a random walk; then those of our own sum
    bound = 2 * np.sqrt(len(x)) * conv2d_bound(x[chosen], w, method.precision).max(axis=0)
    parts = -(-len(x) // PART_IMAGES)
    bound += 2.0**-24 * PART_IMAGES * np.sqrt(parts) * np.abs(y[chosen]).max(axis=0)
    wrong = ~(np.abs(found - conv2d_float64(combined, w)[0]) <= bound)
    if wrong.any():
        return f"the output of a timed call is wrong: {wrong.sum()} sums over its images differ from float64"
    return ""
