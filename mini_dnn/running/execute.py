"""A plan on a device: its buffers, and the ways to run its steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mini_dnn.device.base import Buffer, Device, Module, Scalar
from mini_dnn.errors import VariantError
from mini_dnn.ops.shapes import ConvShape, LenetBatch
from mini_dnn.variant import Variant
from mini_dnn.variant.plan import Argument, CopyIn, CopyOut, CopyToSymbol, Gemm, Images, Launch, Step


@dataclass(frozen=True)
class Span:
    """When one step ran on the device."""

    kind: str  # "copy_in", "kernel" or "copy_out"
    label: str
    stream: int
    start_ms: float
    end_ms: float


class Execution:
    """A variant's plan for one shape, with its buffers allocated but not yet filled.

    Parameters
    ----------
    variant, shape
        What to run.
    module
        The variant's compiled kernels.
    device
        Where.
    stream
        Stands for stream 0 of the plan, and the plan's others follow it. Two executions at once have
        streams of their own, so that neither waits for the other.
    """

    def __init__(
        self, variant: Variant, shape: ConvShape | LenetBatch, module: Module, device: Device, stream: int = 0
    ) -> None:
        self._module, self._device = module, device
        weights = shape.weights if isinstance(shape, LenetBatch) else {}
        steps = [replace(step, stream=step.stream + stream) for step in variant.steps(shape)]
        self._set_up = [s for s in steps if isinstance(s, CopyToSymbol) and s.buffer in weights]
        self._steps = [step for step in steps if step not in self._set_up]
        self._stream = stream
        self._streams = sorted({step.stream for step in self._steps} - {stream})
        self.copies_itself = any(isinstance(step, CopyIn | CopyOut) for step in self._steps)
        self.buffers: dict[str, Buffer] = {}
        try:
            for name, size in buffer_shapes(variant, shape).items():
                self.buffers[name] = device.empty(name, size, shape.dtypes.get(name, "float32"), fill=False)
        except BaseException:
            self.free()
            raise

    def fill(self) -> None:
        """Fill all buffers with NaN, so that an element that nobody wrote is seen."""
        for buffer in self.buffers.values():
            self._device.fill(buffer)

    def free(self) -> None:
        """Free all buffers."""
        for buffer in self.buffers.values():
            buffer.free()

    def set_up(self) -> None:
        """Copy a network's weights into the kernels' variables: once, after they came to their buffers.

        A convolution has nothing to set up: its filters come with its images, and each op copies them.
        """
        for step in self._set_up:
            self._run(step, None, None)

    def kernels(self) -> None:
        """Give the device all steps but the set-up and copies from and to the host: one op.

        Work on further streams starts after what the first one has been given, and that one waits for it.
        """
        self._fork()
        for step in self._steps:
            if not isinstance(step, CopyIn | CopyOut):
                self._run(step, None, None)
        self._join()

    def everything(self, x: np.ndarray, y: np.ndarray) -> None:
        """Give the device all steps, with the copies that the plan makes from pinned x and to pinned y."""
        self._fork()
        for step in self._steps:
            self._run(step, x, y)
        self._join()

    def trace(self, x: np.ndarray, y: np.ndarray) -> list[Span]:
        """Run everything once with an event before and after each step."""
        device = self._device
        base = device.record(self._stream)
        self._fork()
        events: list[tuple[Step, Any, Any]] = []
        for step in self._steps:
            start = device.record(step.stream)
            self._run(step, x, y)
            events.append((step, start, device.record(step.stream)))
        device.synchronize()
        return [
            Span(*_describe(step), step.stream, device.elapsed_ms(base, start), device.elapsed_ms(base, end))
            for step, start, end in events
        ]

    def _fork(self) -> None:
        if self._streams:
            event = self._device.record(self._stream)
            for stream in self._streams:
                self._device.wait(event, stream)

    def _join(self) -> None:
        for stream in self._streams:
            self._device.wait(self._device.record(stream), self._stream)

    def _run(self, step: Step, x: np.ndarray | None, y: np.ndarray | None) -> None:
        device, buffers = self._device, self.buffers
        match step:
            case Launch():
                args = [self._argument(a, f"the launch of {step.kernel}") for a in step.args]
                device.launch(
                    self._module, step.kernel, step.grid, step.block, args, step.shared_bytes, step.stream
                )
            case CopyToSymbol():
                source = _named(step.buffer, buffers, f"the copy to {step.symbol}")
                device.copy(device.symbol(self._module, step.symbol), source, step.stream)
            case Gemm():
                a, b, c = (_named(name, buffers, "the gemm") for name in (step.a, step.b, step.c))
                device.gemm(a, b, c, step.m, step.n, step.k, step.stream)
            case CopyIn():
                assert x is not None, "a plan with copies runs with host arrays"
                images = step.images
                device.copy_in(self._part(images, "a copy"), x[images.first : images.last], step.stream)
            case CopyOut():
                assert y is not None, "a plan with copies runs with host arrays"
                images = step.images
                out = y[images.first : images.last]
                device.copy_out(self._part(images, "a copy"), out, step.stream, wait=False)

    def _part(self, images: Images, what: str) -> Buffer:
        buffer = _named(images.buffer, self.buffers, what)
        return self._device.part(buffer, images.first, images.last)

    def _argument(self, value: Argument, what: str) -> Buffer | Scalar:
        match value:
            case np.generic():
                return value
            case str():
                return _named(value, self.buffers, what)
            case Images():
                return self._part(value, what)
            case int():
                if not -(2**31) <= value < 2**31:
                    raise VariantError(
                        f"{what} passes {value}, which does not fit C's int; "
                        "pass np.int64(...) and declare the parameter long long"
                    )
                return np.int32(value)
            case float():
                return np.float32(value)
        raise VariantError(
            f"{what} passes {value!r}; an argument is a buffer's name, Images(...), an int, a float or a "
            "NumPy scalar"
        )


def buffer_shapes(variant: Variant, shape: ConvShape | LenetBatch) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all buffers that a plan works on."""
    return {**shape.buffers, **variant.scratch_for(shape)}


def hidden_fraction(spans: list[Span]) -> float:
    """How much of the shorter of copies and kernels ran while the other did: 1 is perfect overlap."""
    copies = _union([s for s in spans if s.kind != "kernel"])
    kernels = _union([s for s in spans if s.kind == "kernel"])
    shorter = min(_length(copies), _length(kernels))
    both = sum(max(0.0, min(a[1], b[1]) - max(a[0], b[0])) for a in copies for b in kernels)
    return both / shorter if shorter else 0.0


def _union(spans: list[Span]) -> list[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted((s.start_ms, s.end_ms) for s in spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def _length(intervals: list[tuple[float, float]]) -> float:
    return sum(end - start for start, end in intervals)


def _describe(step: Step) -> tuple[str, str]:
    match step:
        case CopyIn(images) | CopyOut(images):
            kind = "copy_in" if isinstance(step, CopyIn) else "copy_out"
            return kind, f"{images.buffer}[{images.first}:{images.last}]"
        case Launch():
            return "kernel", step.kernel
        case Gemm():
            return "kernel", "gemm"
    return "kernel", f"copy to {step.symbol}"


def _named(name: str, buffers: Mapping[str, Buffer], what: str) -> Buffer:
    if name not in buffers:
        raise VariantError(
            f"{what} names a buffer '{name}'; there are {', '.join(buffers)} "
            "(scratch= in variant.py adds more)"
        )
    return buffers[name]
