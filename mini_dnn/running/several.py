"""One problem on several GPUs of this host, one part on each, in one process.

Data that all parts need are copied once from the host to the first GPU, and from there to the others by the
driver's peer copies. Data of one part, and its results, are copied directly.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mini_dnn.device import Device
from mini_dnn.device.base import GRID_LIMIT
from mini_dnn.errors import DeviceError, LimitError, UsageError
from mini_dnn.ops import Arrays
from mini_dnn.ops.problem import Share
from mini_dnn.running.execute import Execution, compile_others
from mini_dnn.running.parts import empty_outputs
from mini_dnn.running.runnable import check_runnable
from mini_dnn.running.runner import Result
from mini_dnn.running.timing import NO_TIMING, NOT_TIMED, Timed, Timing, op_of, repeat, warm_up
from mini_dnn.variant import Variant


@dataclass(frozen=True)
class Exchange:
    """The data that one GPU received from another."""

    nbytes: int = 0
    ms: float | None = None  # on a device with a clock

    @property
    def gb_per_s(self) -> float | None:
        """The rate of the copies, one after the other."""
        return self.nbytes / self.ms / 1e6 if self.ms else None


@dataclass(frozen=True)
class Several(Result):
    """The results of several GPUs. The op time is that of the slowest one, while all of them work."""

    each_ms: tuple[float, ...] = ()  # median op time of each GPU
    exchanges: tuple[Exchange, ...] = ()  # what each GPU received from the first one
    shares: tuple[Any, ...] = ()  # the problem of each


@dataclass
class _Member:
    """A GPU with its part."""

    name: str
    device: Device
    share: Share
    execution: Execution
    compile_ms: float
    exchange: Exchange = field(default_factory=Exchange)

    def working(self) -> AbstractContextManager[Device]:
        """A context in which this thread works on the GPU; errors name the GPU."""
        return _entered(self.name, self.device)

    def free(self) -> None:
        """Free its buffers."""
        with self.device.entered():
            self.execution.free()


@contextmanager
def _entered(name: str, device: Device) -> Iterator[Device]:
    """A context in which this thread works on a GPU, and in which the device's errors name it."""
    try:
        with device.entered():
            yield device
    except DeviceError as error:
        error.args = (f"{name}: {error}",)
        raise


def run_on_several(
    variant: Variant,
    problem: Any,
    arrays: Arrays,
    gpus: Sequence[tuple[str, Device]],
    timing: Timing = NO_TIMING,
) -> Several:
    """Run a variant on several devices, a part of the problem on each.

    Parameters
    ----------
    gpus
        The devices, each with the name that messages use.
    variant, problem, arrays, timing
        See `mini_dnn.running.runner.run`.

    Raises
    ------
    UsageError
        The problem is too small, or the plan of the variant contains copies.
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`. The message names the GPU that failed.
    """
    shares = problem.shares(len(gpus))
    if len(shares) < len(gpus):
        raise UsageError(
            f"{problem} cannot be divided among {len(gpus)} GPUs, only {len(shares)}: use fewer GPUs, or a "
            "larger problem"
        )
    outputs = empty_outputs(problem)
    for output in outputs.values():  # gaps between lines belong to no part and keep these bytes
        output.reshape(-1).view(np.uint8).fill(0xFF)
    with ExitStack() as stack:
        members = []
        for (name, device), share in zip(gpus, shares, strict=True):
            members.append(_prepared(variant, device, share, name))
            stack.callback(members[-1].free)
        for member in members:
            with member.working():
                member.execution.fill()
        start = time.perf_counter()
        _send(members, arrays)
        for member in members:
            with member.working():
                member.execution.kernels()
        _collect(members, outputs)
        layer_ms = (time.perf_counter() - start) * 1e3
        timed, each_ms = _timed(members, timing)
    return Several(
        outputs=outputs,
        op_ms=statistics.median(timed.samples_ms) if timed.samples_ms else None,
        layer_ms=layer_ms,
        compile_ms=sum(member.compile_ms for member in members),
        steps=len(members),
        timed=timed,
        each_ms=each_ms,
        exchanges=tuple(member.exchange for member in members),
        shares=tuple(member.share.problem for member in members),
    )


def _prepared(variant: Variant, device: Device, share: Share, name: str) -> _Member:
    """Compile, and allocate buffers. A part is not split again, so it has to fit."""
    if limit := variant.limit_for(share.problem):
        raise LimitError(f"{variant.name} does not support {share.problem}, a part of the problem: {limit}")
    planned = variant.planned(share.problem, device.max_shared_bytes)
    if planned.copies_itself:
        raise UsageError(f"{variant.name} copies its images by itself, so it runs on one GPU: remove --gpus")
    with _entered(name, device):
        check_runnable(variant, device)
        if not planned.fits(free := device.free_bytes()):
            raise DeviceError(
                f"{variant.name} needs {planned.nbytes / 1e6:.1f} MB for {share.problem}, a part of the "
                f"problem; this GPU has {free / 1e6:.1f} MB for that, and a grid at most {GRID_LIMIT} "
                "blocks. Use more GPUs or a smaller batch, or remove --gpus: a single GPU computes a large "
                "batch in several parts, one after the other"
            )
        module = device.compile(planned.source, planned.defines)
        others = compile_others(planned, device)
        execution = Execution(planned, module, device, others=others)
    compile_ms = sum(one.compile_ms for one in (module, *others.values()))
    return _Member(name, device, share, execution, compile_ms)


def _send(members: Sequence[_Member], arrays: Arrays) -> None:
    """Copy all inputs to the GPUs, and run the set-up of the plans."""
    first = members[0]
    for member in members:
        with member.working() as device:
            for name in member.share.problem.named("in", "weight"):
                index = member.share.index.get(name, ())
                if index or member is first:
                    device.copy_in(member.execution.buffers[name], np.ascontiguousarray(arrays[name][index]))
            device.synchronize()
    for member in members[1:]:
        with member.working() as device:
            member.exchange = _received(member, first)
            device.synchronize()
    for member in members:
        with member.working():
            member.execution.set_up()


def _received(member: _Member, first: _Member) -> Exchange:
    """Copy the data that all GPUs need from the first GPU."""
    device = member.device
    names = [n for n in member.share.problem.named("in", "weight") if n not in member.share.index]
    start = device.record()
    for name in names:
        device.receive(member.execution.buffers[name], first.execution.buffers[name], first.device)
    end = device.record()
    nbytes = sum(member.execution.buffers[name].nbytes for name in names)
    return Exchange(nbytes, device.elapsed_ms(start, end) if device.has_clock and names else None)


def _collect(members: Sequence[_Member], outputs: Arrays) -> None:
    """Copy all results to their places."""
    for member in members:
        with member.working() as device:
            for name, array in member.share.problem.named("out").items():
                part = np.empty(array.shape, array.dtype)
                device.copy_out(member.execution.buffers[name], part)
                place = outputs[name][member.share.index[name]]
                place[..., : part.shape[-1]] = part
            device.synchronize()


def _timed(members: Sequence[_Member], timing: Timing) -> tuple[Timed, tuple[float, ...]]:
    """All GPUs at the same time: milliseconds of the slowest one, and the median of each."""
    if timing.repeats == 0 or not all(member.device.has_clock for member in members):
        return NOT_TIMED, ()
    each: list[list[float]] = [[] for _ in members]
    ops: list[Callable[[], None]] = []

    def once() -> float:
        events = []
        for member, op in zip(members, ops, strict=True):
            with member.working() as device:
                if timing.cold_cache:
                    device.flush_cache()
                start = device.record()
                op()
                events.append((start, device.record()))
        for member, samples, (start, end) in zip(members, each, events, strict=True):
            with member.working() as device:
                samples.append(device.elapsed_ms(start, end))
        return max(samples[-1] for samples in each)

    with ExitStack() as stack:
        for member in members:
            with member.working() as device:
                ops.append(stack.enter_context(op_of(member.execution, device, timing)))
        settled = warm_up(once, timing)
        for samples in each:
            samples.clear()
        slowest = repeat(once, timing)
    return Timed(tuple(slowest), settled), tuple(statistics.median(samples) for samples in each)
