"""The host code of every variant: compile, allocate, copy, launch, time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mini_dnn.device import check_name, open_device
from mini_dnn.device.base import GRID_LIMIT, Device, Module
from mini_dnn.errors import DeviceError, UsageError, VariantError
from mini_dnn.ops.shapes import FLOAT_BYTES, ConvShape, LenetBatch, conv_arrays
from mini_dnn.running.execute import Execution, Span, buffer_shapes
from mini_dnn.running.timing import NO_TIMING, Timing, time_on_host, time_op
from mini_dnn.variant import Launch, Variant, ceil_div, find

OVERLAPPED_RUNS = 5  # of which the median is the layer time

Progress = Callable[[int], None]  # images done so far


@dataclass(frozen=True)
class ConvResult:
    """What one convolution gave, and how long it took."""

    y: np.ndarray  # (N,M,P,Q) float32
    op_ms: float | None  # the launches alone: median of the timed runs; None where none was timed
    layer_ms: float  # allocation, both copies and one op, by the wall clock
    compile_ms: float  # compiling and loading, or taking from the cache
    steps: int  # parts that the batch was split into to fit the device
    op_samples_ms: tuple[float, ...] = ()  # one a timed run; empty for a batch in several parts
    spans: tuple[Span, ...] = ()  # of a plan that overlaps copies with kernels


def conv2d(
    x: np.ndarray, w: np.ndarray, impl: str | Path | Variant = "m3", device: str | Device = "auto"
) -> np.ndarray:
    """Convolve, valid and with stride 1.

    Parameters
    ----------
    x
        Input, ``(N, C, H, W) float32``. What float32 holds exactly is converted.
    w
        Filters, ``(M, C, R, S) float32``.
    impl
        A variant: ``"cpu"``, ``"m1"``, ``"m2"``, ``"m3"``, a name that ``run.py list`` shows, or a path.
    device
        ``"auto"``, ``"cuda"``, ``"emulator"``, or an open device, which saves opening one for each call.

    Returns
    -------
    y : (N, M, P, Q) float32
        ``P = H - R + 1``, ``Q = W - S + 1``.

    Raises
    ------
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    variant = impl if isinstance(impl, Variant) else find(impl)
    if isinstance(device, str):
        check_name(device)
    if variant.host is not None or not isinstance(device, str):
        return run(x, w, variant, None if isinstance(device, str) else device).y
    with closing(open_device(device)) as opened:
        return run(x, w, variant, opened).y


def run(
    x: np.ndarray,
    w: np.ndarray,
    variant: Variant,
    device: Device | None,
    timing: Timing = NO_TIMING,
    max_images: int | None = None,
    progress: Progress | None = None,
) -> ConvResult:
    """Run a variant: its plan on a device, or its NumPy function on the host.

    Parameters
    ----------
    device
        Not used by a variant that runs on the host.
    timing
        How the launches are timed; without a clock on the device there is no op time.
    max_images
        Split the batch into parts of at most so many images, even where more would fit.
    progress
        Called after each part.

    Raises
    ------
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    x, w, shape = conv_arrays(x, w)
    limit = variant.as_convolution().limit_for(shape)
    if limit:
        raise VariantError(f"{variant.name} does not take {shape}: {limit}")
    if variant.host is not None:
        return _run_host(x, w, variant, timing, max_images or shape.N, progress)
    if device is None:
        raise UsageError(f"{variant.name} has kernels and needs a device; pass device='auto', or an open one")
    check_runnable(variant, device)
    variant = fitting(variant, shape, device.max_shared_bytes)
    module = device.compile(variant.source, variant.defines_for(shape))
    y = np.empty(shape.y, np.float32)
    images = largest_part(variant, shape, device.free_bytes(), max_images)
    steps = ceil_div(shape.N, images)
    layer_ms, op_ms = 0.0, 0.0
    samples: list[float] = []
    spans: tuple[Span, ...] = ()
    for step in range(steps):
        part = slice(step * shape.N // steps, (step + 1) * shape.N // steps)  # sizes differ by one at most
        ms, samples, spans = _run_part(x[part], w, y[part], variant, module, device, timing)
        layer_ms += ms
        op_ms += statistics.median(samples) if samples else 0.0
        if progress:
            progress(part.stop)
    return ConvResult(
        y=y,
        op_ms=op_ms if samples else None,
        layer_ms=layer_ms,
        compile_ms=module.compile_ms,
        steps=steps,
        op_samples_ms=tuple(samples) if steps == 1 else (),
        spans=spans if steps == 1 else (),
    )


def check_runnable(variant: Variant, device: Device) -> None:
    """Check that a device can run a variant at all, whatever the shape.

    Raises
    ------
    DeviceError
        It cannot; the message says what it would take.
    """
    if variant.host is not None:
        return
    if variant.needs_gpu and not device.has_clock:
        raise DeviceError(
            f"{variant.name} needs a GPU: {variant.needs_gpu}. On the emulator, leave it out or take another"
        )
    if device.arch < variant.min_arch:
        raise DeviceError(
            f"{variant.name} needs a GPU of sm_{variant.min_arch} or newer; this one is sm_{device.arch}. "
            "Take another variant, or --device emulator"
        )


def fitting(variant: Variant, shape: ConvShape | LenetBatch, max_shared_bytes: int) -> Variant:
    """The variant itself, or `Variant.compact` where a block would need more shared memory than it may have.

    Parameters
    ----------
    max_shared_bytes
        `Device.max_shared_bytes`. Where not even the compact one keeps to it, the launch says so. Arrays of
        a fixed size in the kernel come on top of what a launch asks for, and a variant leaves room for them.

    Raises
    ------
    VariantError
        The plan fails, or ``compact`` is no variant with a plan.
    """
    if variant.compact is None:
        return variant
    if not isinstance(variant.compact, Variant) or variant.compact.plan is None:
        raise VariantError(
            f"{variant.name}: compact is {variant.compact!r}; expected a Variant with a plan, which launches "
            "the same kernels in smaller blocks"
        )
    launches = [step for step in variant.steps(shape) if isinstance(step, Launch)]
    if all(launch.shared_bytes <= max_shared_bytes for launch in launches):
        return variant
    return replace(variant.compact, name=variant.name, folder=variant.folder)


def _run_host(
    x: np.ndarray,
    w: np.ndarray,
    variant: Variant,
    timing: Timing,
    images: int,
    progress: Progress | None,
) -> ConvResult:
    """The host's op time is its wall clock's."""
    shape = ConvShape.of(x, w)
    y = np.empty(shape.y, np.float32)

    def op() -> None:
        for n in range(0, shape.N, images):
            y[n : n + images] = variant.run_host(x[n : n + images], w)
            if progress:
                progress(min(n + images, shape.N))

    samples = time_on_host(op, timing)
    ms = statistics.median(samples)
    return ConvResult(
        y, ms, ms, compile_ms=0.0, steps=ceil_div(shape.N, images), op_samples_ms=tuple(samples)
    )


def largest_part(
    variant: Variant, shape: ConvShape | LenetBatch, free: int, max_images: int | None = None
) -> int:
    """Most images that one part may have: its buffers fit ``free`` bytes and its grids the limits of CUDA.

    Raises
    ------
    DeviceError
        Not even one image fits.
    """

    def fits(n: int) -> bool:
        part = shape.with_batch(n)
        grids = [step.grid for step in variant.steps(part) if isinstance(step, Launch)]
        within = all(g <= limit for grid in grids for g, limit in zip(grid, GRID_LIMIT, strict=False))
        return within and _bytes(variant, part) <= free

    most = min(shape.N, max_images or shape.N)
    if fits(most):
        return most
    if not fits(1):
        raise DeviceError(
            f"{variant.name} needs {_bytes(variant, shape.with_batch(1)) / 1e6:.1f} MB for one image "
            f"of {shape}; the device has {free / 1e6:.1f} MB free, and a grid at most {GRID_LIMIT} blocks. "
            "Free memory, or take a variant that needs less"
        )
    low, high = 1, most  # low fits, high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _run_part(
    x: np.ndarray,
    w: np.ndarray,
    y: np.ndarray,
    variant: Variant,
    module: Module,
    device: Device,
    timing: Timing,
) -> tuple[float, list[float], tuple[Span, ...]]:
    """One part of a batch: fills ``y``; layer time in ms, the op times of the timed runs, the trace."""
    start = time.perf_counter()
    execution = Execution(variant, ConvShape.of(x, w), module, device)
    allocated = time.perf_counter()
    try:
        execution.fill()  # a check of ours, in no layer time
        filled = time.perf_counter()
        device.copy_in(execution.buffers["w"], w)
        if not execution.copies_itself:
            device.copy_in(execution.buffers["x"], x)
        device.synchronize()
        before_s = allocated - start + time.perf_counter() - filled
        if execution.copies_itself:
            return _run_overlapped(x, y, execution, device, timing, before_s)
        samples = time_op(execution.kernels, device, timing)
        again = time.perf_counter()
        execution.kernels()
        device.copy_out(execution.buffers["y"], y)
        device.synchronize()
        return (before_s + time.perf_counter() - again) * 1e3, samples, ()
    finally:
        execution.free()


def _run_overlapped(
    x: np.ndarray, y: np.ndarray, execution: Execution, device: Device, timing: Timing, before_s: float
) -> tuple[float, list[float], tuple[Span, ...]]:
    """The same for a plan that copies by itself; its layer time is from pinned memory to pinned memory."""
    x_pinned, y_pinned = device.pinned(x.shape), device.pinned(y.shape)
    x_pinned[:] = x
    layer_s = []
    for _ in range(OVERLAPPED_RUNS if timing.repeats and device.has_clock else 1):
        again = time.perf_counter()
        execution.everything(x_pinned, y_pinned)
        device.synchronize()
        layer_s.append(time.perf_counter() - again)
    y[:] = y_pinned
    samples = time_op(execution.kernels, device, timing)
    spans = tuple(execution.trace(x_pinned, y_pinned)) if samples else ()
    return (before_s + statistics.median(layer_s)) * 1e3, samples, spans


def _bytes(variant: Variant, shape: ConvShape | LenetBatch) -> int:
    sizes = buffer_shapes(variant, shape).values()
    return FLOAT_BYTES * sum(int(np.prod(size, dtype=np.int64)) for size in sizes)
