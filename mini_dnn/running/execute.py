"""A plan on a device: its buffers, and the ways to run its steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from mini_dnn.device.base import Buffer, Device, KernelArg, MappedBuffer, Module
from mini_dnn.errors import VariantError
from mini_dnn.ops import Array, Arrays
from mini_dnn.running.runnable import check_runnable
from mini_dnn.running.spans import Span
from mini_dnn.variant import TensorMap
from mini_dnn.variant.plan import (
    Argument,
    Code,
    CopyIn,
    CopyOut,
    CopyToSymbol,
    Gemm,
    Images,
    Launch,
    Record,
    RoundTrip,
    Step,
    Wait,
    waits_in_vain,
)
from mini_dnn.variant.planned import Planned


class Execution:
    """A plan with its buffers allocated but not yet filled.

    Parameters
    ----------
    planned
        The plan to run.
    module
        The compiled kernels.
    device
        The device that runs it.
    stream
        The device's stream that serves as stream 0 of the plan; the plan's other streams follow it. Two
        executions at the same time use different streams, so that neither waits for the other.
    others
        The compiled kernels of other variants that the plan needs; compiled here if None.
    """

    def __init__(
        self,
        planned: Planned,
        module: Module,
        device: Device,
        stream: int = 0,
        others: Mapping[Code, Module] | None = None,
    ) -> None:
        for wait in (*waits_in_vain(planned.setup), *waits_in_vain(planned.steps)):
            raise VariantError(
                f"{planned.name}: stream {wait.stream} waits for the event '{wait.event}', which no step "
                f"before it records; put Record('{wait.event}', stream) after the steps that it has to "
                f"wait for"
            )
        self._module, self._device = module, device
        self._events: dict[str, Any] = {}
        self._others = compile_others(planned, device) if others is None else others
        self._views = planned.views
        self._set_up, self._steps = (
            [replace(step, stream=step.stream + stream) for step in steps]
            for steps in (planned.setup, planned.steps)
        )
        self._stream = stream
        self._streams = sorted({step.stream for step in self._steps} - {stream})
        self.buffers: dict[str, Buffer] = {}
        try:
            for name, array in planned.arrays.items():
                self.buffers[name] = self._empty(name, array)
            self._away = {
                step.buffer: self._on_the_host(step.buffer)
                for step in (*planned.setup, *planned.steps)
                if isinstance(step, RoundTrip)
            }
        except BaseException:
            self.free()
            raise

    def _empty(self, name: str, array: Array) -> Buffer:
        """Memory for one of the plan's arrays."""
        return self._device.empty(name, array.shape, array.dtype, fill=False)

    def fill(self) -> None:
        """Fill all buffers with NaN, so that elements that were not written are visible."""
        for buffer in self.buffers.values():
            self._device.fill(buffer)

    def free(self) -> None:
        """Free all buffers."""
        for buffer in self.buffers.values():
            buffer.free()

    def set_up(self) -> None:
        """Run the steps of the set-up, once, after the weights have been copied."""
        self._device.synchronize()  # the weights have been copied, whichever stream a step uses
        for step in self._set_up:
            self._run(step, {})
        if self._set_up:
            self._device.synchronize()

    @property
    def calls(self) -> int:
        """The number of driver calls in one op, which Python issues one by one: launches and tensor maps."""
        launches = [step for step in self._steps if isinstance(step, Launch)]
        return sum(1 + sum(isinstance(arg, TensorMap) for arg in launch.args) for launch in launches)

    def kernels(self) -> None:
        """Issue all steps except the set-up and the copies from and to the host: one op.

        Work on other streams starts after earlier work of the first stream, which waits for them at the end.
        """
        self._fork()
        for step in self._steps:
            if not isinstance(step, CopyIn | CopyOut):
                self._run(step, {})
        self._join()

    def everything(self, host: Arrays) -> None:
        """Issue all steps, including the plan's copies from and to pinned arrays."""
        self._fork()
        for step in self._steps:
            self._run(step, host)
        self._join()

    def trace(self, host: Arrays) -> list[Span]:
        """Run everything once with an event before and after each step."""
        device = self._device
        base = device.record(self._stream)
        self._fork()
        events: list[tuple[Step, Any, Any]] = []
        for step in self._steps:
            start = device.record(step.stream)
            self._run(step, host)
            if not isinstance(step, Record | Wait):
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

    def _run(self, step: Step, host: Arrays) -> None:
        device = self._device
        match step:
            case Launch():
                args = [self._argument(a, f"the launch of {step.kernel}") for a in step.args]
                module = self._others[step.code] if step.code else self._module
                device.launch(module, step.kernel, step.config, args, step.stream)
            case CopyToSymbol():
                source = self._named(step.buffer, f"the copy to {step.symbol}")
                device.copy(device.symbol(self._module, step.symbol), source, step.stream)
            case Gemm():
                a, b, c = (self._named(name, "the gemm") for name in (step.a, step.b, step.c))
                device.gemm(step.product, a, b, c, step.stream)
            case RoundTrip(name):
                buffer = self._named(name, "a round trip")
                device.copy_out(buffer, self._away[name], step.stream, wait=False)
                device.copy_in(buffer, self._away[name], step.stream)
            case CopyIn(images):
                part = _host_part(host, images)
                device.copy_in(self._part(images, "a copy"), part, step.stream)
            case CopyOut(images):
                part = _host_part(host, images)
                device.copy_out(self._part(images, "a copy"), part, step.stream, wait=False)
            case Record():
                self._events[step.event] = device.record(step.stream)
            case Wait():
                device.wait(self._events[step.event], step.stream)

    def _part(self, images: Images, what: str) -> Buffer:
        buffer = self._named(images.buffer, what)
        return self._device.part(buffer, images.first, images.last)

    def _on_the_host(self, name: str) -> np.ndarray:
        """Pinned memory for the round trip of a buffer."""
        buffer = self._named(name, "a round trip")
        return self._device.pinned(buffer.shape, buffer.dtype)

    def _named(self, name: str, what: str) -> Buffer:
        """The buffer with this name, or a view of another buffer, if the plan has such a view."""
        if name in self._views:
            of, array = self._views[name]
            buffer = self._named(of, what)
            same: Any = self._device.part(buffer, 0, buffer.shape[0])
            view: Buffer = replace(same, name=name, shape=array.shape, nbytes=array.nbytes)
            return view
        if name not in self.buffers:
            raise no_buffer(name, self.buffers, what)
        return self.buffers[name]

    def _argument(self, value: Argument, what: str) -> KernelArg:
        def named(name: str) -> Buffer:
            return self._named(name, what)

        return argument(value, what, named, lambda images: self._part(images, what))


def argument(
    value: Argument, what: str, named: Callable[[str], Buffer], part: Callable[[Images], Buffer]
) -> KernelArg:
    """An argument of a launch, in the form that the device expects.

    Parameters
    ----------
    what
        The name of the launch in messages.
    named, part
        Functions that return the buffer of a name, and entries of a buffer.

    Raises
    ------
    VariantError
        It is not a valid argument.
    """
    match value:
        case np.generic():
            return value
        case str():
            return named(value)
        case Images():
            return part(value)
        case TensorMap():
            buffer = named(value.buffer)
            return MappedBuffer(buffer, value.geometry(buffer.shape, buffer.dtype.name, buffer.nbytes))
        case int():
            if not -(2**31) <= value < 2**31:
                raise VariantError(
                    f"{what} passes {value}, which does not fit in C's int; "
                    "pass np.int64(...) and declare the parameter long long"
                )
            return np.int32(value)
        case float():
            return np.float32(value)
    raise VariantError(
        f"{what} passes {value!r}; an argument is a buffer's name, Images(...), TensorMap(...), an int, a "
        "float or a NumPy scalar"
    )


def no_buffer(name: str, known: Iterable[str], what: str) -> VariantError:
    """The message for a step that names a buffer that does not exist."""
    return VariantError(
        f"{what} names a buffer '{name}'; expected one of {', '.join(known)} "
        "(scratch= in variant.py adds more)"
    )


def compile_others(planned: Planned, device: Device) -> dict[Code, Module]:
    """Compile the kernels of other variants that a plan needs. `DeviceError` if the device cannot run one."""
    check_runnable(planned, device)
    return {code: device.compile(code.source, dict(code.defines)) for code in planned.codes}


def _describe(step: Step) -> tuple[str, str]:
    match step:
        case CopyIn(images) | CopyOut(images):
            kind = "copy_in" if isinstance(step, CopyIn) else "copy_out"
            return kind, f"{images.buffer}[{images.first}:{images.last}]"
        case Launch():
            return "kernel", step.kernel
        case RoundTrip():
            return "copy_out", f"{step.buffer} and back"
        case Gemm():
            return "kernel", "cuBLAS"
    return "kernel", f"copy to {getattr(step, 'symbol', '')}"


def _host_part(host: Arrays, images: Images) -> np.ndarray:
    if images.buffer not in host:
        raise VariantError(
            f"the plan copies '{images.buffer}', which is only on the device; it may copy {', '.join(host)}"
        )
    return host[images.buffer][images.first : images.last]
