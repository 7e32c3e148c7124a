"""An operation with weights, such as a whole network, that stays on a device.

Weights are copied once. The copies and kernels of a batch are recorded once, as a graph that is replayed for
each batch. Consecutive batches overlap: while one is computed, the next one is copied (`Resident.serve`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from itertools import cycle
from typing import Any

import numpy as np

from mini_dnn.device.base import Device
from mini_dnn.errors import ShapeError, UsageError, VariantError
from mini_dnn.ops import Arrays
from mini_dnn.ops.problem import exactly, shape_of
from mini_dnn.running.execute import Execution
from mini_dnn.running.parts import largest_part
from mini_dnn.running.runnable import check_runnable
from mini_dnn.running.runner import Progress
from mini_dnn.running.timing import Timed, Timing, time_kernels
from mini_dnn.variant import Planned, Variant

# Batches in flight. One is being copied, one is being computed, the last kernel of one waits for room on the
# multiprocessors, and the host reads the results of one
SLOTS = 4

# Writes entries to the front of an array, and returns their number; 0 at the end
Fill = Callable[[np.ndarray], int]
Served = Generator[np.ndarray, None, None]
Written = Callable[[np.ndarray], None]  # waits until everything has been written to an array


class _Slot:
    """One batch in flight: streams, buffers on the device, and pinned arrays on the host."""

    def __init__(
        self, planned: Planned, device: Device, weights: Arrays, stream: int, use_graph: bool
    ) -> None:
        self._device, self._stream = device, stream
        (self._in, given), (self._out, found) = _ends(planned.problem)
        # a module for each slot: the variables of a module (filters in constant memory) are its own
        module = device.compile(planned.source, planned.defines)
        self.execution = Execution(planned, module, device, stream)
        self.execution.fill()
        for name, value in weights.items():
            device.copy_in(self.execution.buffers[name], value, stream)
        self.execution.set_up()
        # for one entry, loads by its kernels are faster than a copy
        alone = planned.problem.batch == 1
        host_array = self._shared if alone else lambda name, array: device.pinned(array.shape, array.dtype)
        self.inputs, self._outputs = host_array(self._in, given), host_array(self._out, found)
        self.inputs[:] = 0
        self._count = 0
        self._work = self.execution.kernels if alone else self._with_copies
        self._graph = device.capture(self._work, stream) if use_graph else None

    def _shared(self, name: str, array: Any) -> np.ndarray:
        """Move a buffer to host memory that the device can access."""
        buffers = self.execution.buffers
        buffers[name].free()
        buffers[name], found = self._device.shared(name, array.shape, array.dtype)
        return found

    def submit(self, count: int) -> None:
        """Issue the first ``count`` entries of `inputs`. The others are also computed, but not read."""
        self._count = count
        if self._graph:
            self._graph.replay()
        else:
            self._work()

    def wait(self) -> None:
        """Wait for the batch."""
        self._device.synchronize(self._stream)

    def result(self) -> np.ndarray:
        """The outputs of the batch, which must be complete."""
        return self._outputs[: self._count].copy()

    def free(self) -> None:
        """Free the memory on the device, and the pinned memory, for which the device must still be open."""
        if self._graph:
            self._graph.free()
        self.execution.free()
        self.inputs = self._outputs = np.empty(0)

    def _with_copies(self) -> None:
        """The work for a batch, from pinned inputs to pinned outputs."""
        buffers = self.execution.buffers
        self._device.copy_in(buffers[self._in], self.inputs, self._stream)
        self.execution.kernels()
        self._device.copy_out(buffers[self._out], self._outputs, self._stream, wait=False)


class Resident:
    """An operation on a device, whose weights are copied there once.

    Parameters
    ----------
    variant
        The variant that computes it. The operation must have weights, one input and one output.
    problem
        The largest batch at a time, and its sizes. If the device has too little memory, batches are smaller.
    weights
        The arrays with the role "weight", by name. The problem's types must represent their values exactly.
    device
        The device that computes.
    use_graph
        Whether a batch is one replay of a graph. Otherwise, each copy and each launch is issued separately,
        for example to measure the gain of the graph.
    slots
        The number of batches in flight, 1 or more. The host may still be writing half of them.

    Raises
    ------
    ShapeError
        The weights do not fit the problem.
    VariantError, DeviceError
        See `mini_dnn.errors`.
    """

    def __init__(
        self,
        variant: Variant,
        problem: Any,
        weights: Arrays,
        device: Device,
        use_graph: bool = True,
        slots: int = SLOTS,
    ) -> None:
        if variant.host is not None:
            raise VariantError(f"{variant.name} runs on the host, so nothing can stay on a device")
        if slots < 1:
            raise UsageError(f"slots is {slots}; expected the number of batches in flight, 1 or more")
        check_runnable(variant, device)
        _ends(problem)
        expected = {name: array.shape for name, array in problem.named("weight").items()}
        if not isinstance(weights, Mapping):
            raise ShapeError(
                f"weights are a {type(weights).__name__}; expected a dictionary of the arrays {expected}"
            )
        found = {name: None if value is None else shape_of(name, value) for name, value in weights.items()}
        if found != expected:
            raise ShapeError(f"{variant.name} needs the weights {expected}; found {found}")
        weights = {name: exactly(name, v, problem.arrays[name].dtype) for name, v in weights.items()}

        def plan(n: int) -> Planned:
            return variant.planned(problem.with_batch(n), device.max_shared_bytes)

        planned = plan(largest_part(plan, problem, device.free_bytes() // slots))
        self.problem = planned.problem
        self.device_s = 0.0  # the order in which batches were issued, and are waited for
        self._device = device
        self._slots: list[_Slot] = []
        try:
            for slot in range(slots):  # each with streams of its own
                self._slots.append(_Slot(planned, device, weights, slot * planned.streams, use_graph))
        except BaseException:
            self.close()
            raise

    def serve(self, batches: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """The outputs of each batch, in order; batch i + 1 is copied while i is computed.

        Nothing else may be computed with this object until all outputs have been returned.

        Parameters
        ----------
        batches
            Arrays like the input of ``problem``, with at most ``problem.batch`` entries each.

        Raises
        ------
        ShapeError
            A batch is too large, or has another shape or type.
        """
        source = iter(batches)

        def fill(inputs: np.ndarray) -> int:
            batch = next(source, None)
            return 0 if batch is None else self._put(batch, inputs)

        return self.serve_in_place(fill)

    def serve_in_place(self, fill: Fill, written: Written = lambda inputs: None) -> Served:
        """Like `serve`, for inputs that are written directly to pinned memory: the host copies nothing.

        Parameters
        ----------
        fill
            Called when there is room for a batch, with a pinned array that the device will read. It writes
            entries to the front of the array and returns their number, or 0 at the end. There are as many
            arrays as slots, which are used in turn, and each still has its earlier content.
        written
            Called with each array before the device reads it, for a ``fill`` that returns before it has
            written everything: other threads may write a batch while this one waits for the device.

        Raises
        ------
        ShapeError
            ``fill`` returned a number that exceeds the size of the array.
        """
        slots, more, most = cycle(self._slots), True, len(self._slots)
        filling: deque[tuple[_Slot, int]] = deque()
        waiting: deque[_Slot] = deque()
        try:
            while more or filling or waiting:
                while more and len(filling) < max(1, most // 2) and len(filling) + len(waiting) < most:
                    slot = next(slots)
                    count = fill(slot.inputs)
                    if not 0 <= count <= self.problem.batch:
                        raise ShapeError(
                            f"fill returned {count}; expected 0 to {self.problem.batch}: how many it wrote"
                        )
                    more = count > 0
                    if more:
                        filling.append((slot, count))
                if filling:
                    slot, count = filling.popleft()
                    written(slot.inputs)
                    start = time.perf_counter()
                    slot.submit(count)
                    self.device_s += time.perf_counter() - start
                    waiting.append(slot)
                if waiting and (not filling or len(filling) + len(waiting) == most):
                    slot = waiting.popleft()
                    start = time.perf_counter()
                    slot.wait()
                    self.device_s += time.perf_counter() - start
                    yield slot.result()
        finally:
            # Their outputs are not needed, but the device reads their inputs until they are complete.
            for slot in waiting:
                slot.wait()

    def respond(self, batch: np.ndarray) -> np.ndarray:
        """The outputs of one batch, as soon as they are complete: see `serve`."""
        slot = self._slots[0]
        slot.submit(self._put(batch, slot.inputs))
        slot.wait()
        return slot.result()

    def predict(self, inputs: np.ndarray, progress: Progress = lambda done: None) -> np.ndarray:
        """The outputs for any number of entries, in as many batches as necessary.

        ``progress`` is called after each batch with the number of entries that are complete.
        """
        N = self.problem.batch
        parts: list[np.ndarray] = []
        for part in self.serve(inputs[n : n + N] for n in range(0, len(inputs), N)):
            parts.append(part)
            progress(min(len(parts) * N, len(inputs)))
        if not parts:
            return self._slots[0].result()[:0]
        return np.concatenate(parts)

    def time(self, timing: Timing) -> Timed:
        """Time all kernels of a full batch. On a device without a clock, there are no samples."""
        return time_kernels(self._slots[0].execution, self._device, timing)

    def close(self) -> None:
        """Free the memory on the device."""
        for slot in self._slots:
            slot.free()

    @staticmethod
    def _put(batch: np.ndarray, inputs: np.ndarray) -> int:
        """Copy a batch to the front of a slot's inputs, and return the number of its entries."""
        kind = batch.shape[1:] == inputs.shape[1:] and batch.dtype == inputs.dtype
        if not kind or not 0 < len(batch) <= len(inputs):
            raise ShapeError(
                f"expected 1 to {len(inputs)} entries of {inputs.shape[1:]} {inputs.dtype} at a time; "
                f"found {batch.shape} {batch.dtype}"
            )
        inputs[: len(batch)] = batch
        return len(batch)


def _ends(problem: Any) -> tuple[tuple[str, Any], tuple[str, Any]]:
    """The one input and the one output of a problem, each with its name.

    Raises
    ------
    ShapeError
        There are more.
    """
    inputs, outputs = problem.named("in"), problem.named("out")
    if len(inputs) != 1 or len(outputs) != 1:
        raise ShapeError(
            f"{problem} has the inputs {', '.join(inputs)} and the outputs {', '.join(outputs)}; a resident "
            "variant has one of each, and all other arrays are weights"
        )
    return next(iter(inputs.items())), next(iter(outputs.items()))
