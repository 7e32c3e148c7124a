"""A call of a variant for arrays on the device, which is prepared once and then issued many times.

Nothing is copied between host and device, and no call synchronises: it gets the addresses of its arrays, and
issues launches on a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import gcd, lcm
from typing import Any

from mini_dnn.device.base import Buffer, Device, ForeignStream, LentBuffer, Module, Work
from mini_dnn.errors import DeviceError, VariantError
from mini_dnn.running.execute import argument, compile_others, no_buffer
from mini_dnn.running.parts import fits, largest_part
from mini_dnn.running.runnable import check_runnable
from mini_dnn.variant import Planned, Variant
from mini_dnn.variant.plan import (
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
)

ALIGNMENT = 16  # bytes: the largest piece that kernels load and store at once


class Prepared:
    """A call of one variant with one problem on one stream.

    It owns its compiled kernels, with their variables, and its scratch memory. Calls of two objects may
    therefore overlap, and calls of one object must not: one thread issues all of them on its stream.

    Parameters
    ----------
    variant, problem
        The variant, and the problem that it solves.
    device
        The device, which this thread has entered.
    stream
        The stream. All steps of the plan are issued on it, in order: a plan uses other streams only for
        copies from and to the host, and there are none here.

    Raises
    ------
    VariantError, DeviceError
        See `mini_dnn.errors`.
    """

    def __init__(self, variant: Variant, problem: Any, device: Device, stream: ForeignStream) -> None:
        if variant.host is not None:
            raise VariantError(
                f"{variant.name} runs on the host, but the arrays are on a GPU; use a variant with kernels, "
                "or pass NumPy arrays"
            )
        check_runnable(variant, device)
        if stream.is_captured():
            raise DeviceError(
                f"{variant.name} was not called with {problem} on this stream before the capture, but has "
                "to compile and allocate; call it once on the stream, then capture it"
            )
        self.variant, self.problem = variant, problem
        self.names = tuple(problem.arrays)  # the order of a call's addresses
        self.stream = stream
        self._device = device
        self._number = stream.number()
        self._moving: dict[tuple[Any, ...], LentBuffer] = {}  # by an array's name and bytes from its start
        self._scratch: dict[tuple[str, int], Buffer] = {}  # by name, and entries of the batch
        self._modules: list[Module] = []
        try:
            self._work = list(self._made_ready())
        except BaseException:
            self.free()
            raise
        self._places = [(b.lie_at, self.names.index(key[0]), key[1]) for key, b in self._moving.items()]

    def __call__(self, addresses: Sequence[int]) -> None:
        """Issue all work of a call on the stream.

        Parameters
        ----------
        addresses
            The addresses of the arrays on the device, in the order of `names`. Arrays are in C order, at
            multiples of `ALIGNMENT`, and must live until the work is complete.
        """
        if self.stream.is_current():
            self._give(addresses)
        else:
            with self._device.entered():
                self._give(addresses)

    def free(self) -> None:
        """Free the memory on the device, after all work there. The object must not be called again."""
        self._device.synchronize()
        self.stream.free()
        for buffer in self._scratch.values():
            buffer.free()
        self._modules.clear()

    def _give(self, addresses: Sequence[int]) -> None:
        number = self.stream.number()
        if number is not None and number != self._number:
            self._device.synchronize()  # the handle may belong to a new stream, while the old one still works
            self._number = number
        for lie_at, which, offset in self._places:
            lie_at(addresses[which] + offset)
        for give in self._work:
            give()

    def _made_ready(self) -> Iterator[Work]:
        """All work of a call: for each size of its parts the set-up, then the parts."""
        sizes, first = self._sizes(), 0
        for size in dict.fromkeys(sizes):
            planned = self._plan(size)
            for name, array in planned.scratch.items():
                self._scratch[name, size] = self._device.empty(name, array.shape, array.dtype)
            module = self._device.compile(planned.source, planned.defines)
            modules: dict[Code | None, Module] = {None: module}
            for code, other in compile_others(planned, self._device).items():
                modules[code] = other
            self._modules += modules.values()
            yield from self._steps(planned.setup, planned, modules, 0)
            steps = _after_weights(planned)
            for _ in range(sizes.count(size)):
                yield from self._steps(steps, planned, modules, first)
                first += size

    def _plan(self, n: int) -> Planned:
        return self.variant.planned(self.problem.with_batch(n), self._device.max_shared_bytes)

    def _sizes(self) -> list[int]:
        """The entries of each part of the batch: all of them, if scratch memory and grids allow it."""
        batch, free = self.problem.batch, self._device.free_bytes()
        if fits(self._plan, batch, free, scratch_alone=True):
            return [batch]
        free //= 2  # the last part may be smaller, and has scratch memory of its own
        size = largest_part(self._plan, self.problem, free, scratch_alone=True)
        entries = [a.nbytes // a.shape[0] for a in self.problem.arrays.values() if a.split]
        unit = lcm(*(ALIGNMENT // gcd(ALIGNMENT, nbytes) for nbytes in entries))
        size -= size % unit
        if not size:
            raise DeviceError(
                f"{self.variant.name} needs {self._plan(unit).scratch_bytes / 1e6:.1f} MB for {unit} entries "
                f"of the batch of {self.problem}, so that parts begin at multiples of {ALIGNMENT} bytes; the "
                f"device has {free / 1e6:.1f} MB for that. Free memory, or use a variant that needs less"
            )
        full, rest = divmod(batch, size)
        return [size] * full + [rest] * (rest > 0)

    def _steps(
        self, steps: Sequence[Step], planned: Planned, modules: Mapping[Code | None, Module], first: int
    ) -> Iterator[Work]:
        """The prepared steps of a part that begins at entry ``first`` of the batch."""
        for step in steps:
            match step:
                case Launch():
                    named = partial(self._buffer, planned, first, what := f"the launch of {step.kernel}")
                    part = partial(_part, named)
                    args = [argument(value, what, named, part) for value in step.args]
                    yield self.stream.launch(modules[step.code], step.kernel, step.config, args)
                case CopyToSymbol():
                    source = self._buffer(planned, first, f"the copy to {step.symbol}", step.buffer)
                    yield self.stream.copy(self._device.symbol(modules[None], step.symbol), source)
                case Gemm():
                    named = partial(self._buffer, planned, first, "the gemm")
                    yield self.stream.gemm(step.product, named(step.a), named(step.b), named(step.c))
                case CopyIn() | CopyOut() | RoundTrip():
                    pass  # the arrays are on the device
                case Record() | Wait():
                    pass  # one stream does all steps in their order

    def _buffer(
        self, planned: Planned, first: int, what: str, name: str, within: tuple[int, int] | None = None
    ) -> LentBuffer:
        """An array of a part that begins at entry ``first``, or the entries ``within`` it."""
        of = planned.owner(name)
        view = planned.views[name][1] if name in planned.views else planned.arrays.get(name)
        if view is None:
            raise no_buffer(name, planned.arrays, what)
        start, end = within or (0, view.shape[0])
        at = start * (view.nbytes // view.shape[0])
        scratch = self._scratch.get((of, planned.problem.batch))
        if scratch is None and planned.arrays[of].split:
            at += first * (planned.arrays[of].nbytes // planned.arrays[of].shape[0])
        shape = (end - start, *view.shape[1:])
        key = of, at, shape, view.dtype
        buffer = self._moving.get(key) or self._device.lent(name, shape, view.dtype)
        if scratch is None:
            self._moving[key] = buffer
        elif scratch.address is not None:
            buffer.lie_at(scratch.address + at)
        return buffer


def _after_weights(planned: Planned) -> tuple[Step, ...]:
    """The steps of a call. The first launch waits for earlier work, as others may load weights early."""
    first, *others = planned.steps
    if isinstance(first, Launch) and (planned.setup or planned.problem.named("weight")):
        first = replace(first, early=False)
    return (first, *others)


def _part(named: Callable[..., LentBuffer], images: Images) -> LentBuffer:
    return named(images.buffer, (images.first, images.last))
