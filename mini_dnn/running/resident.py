"""LeNet with every layer on one device: images in, probabilities out.

Images cross to the device once, and ten numbers an image come back. All that a batch takes, its copies and
kernels, is recorded when the network is opened, and replayed as one for each batch. Batches that follow each
other overlap: while one is computed, the next one is copied in (`ResidentLenet.serve`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import cycle

import numpy as np

from mini_dnn.device.base import Device
from mini_dnn.errors import ShapeError, VariantError
from mini_dnn.nn.network import Network
from mini_dnn.ops.shapes import LenetBatch
from mini_dnn.running.execute import Execution
from mini_dnn.running.runner import Progress, check_runnable, fitting, largest_part
from mini_dnn.running.timing import Timing, time_op
from mini_dnn.variant import Variant, find

STEPS = {"layers": "layer_by_layer", "fused": "fused_pool", "whole": "whole", "tensor": "tensor_cores"}
SLOTS = 4  # batches under way at once: copied, computed, its last kernel waiting for room, on the host

Fill = Callable[[np.ndarray], int]  # writes images to the front of an array; how many, 0 for no more


def find_step(name: str) -> Variant:
    """The network variant of a short name in `STEPS`, or of any name or path that `find` takes.

    Raises
    ------
    VariantError
        There is none, or it is a convolution.
    """
    try:
        variant = find(f"networks/lenet/{STEPS[name]}" if name in STEPS else name)
    except VariantError as error:
        raise VariantError(f"--resident {name}: {error}; short names are {', '.join(STEPS)}") from error
    if variant.op != "lenet":
        raise VariantError(
            f"{variant.name} computes one {variant.op} and no whole network; --resident takes "
            f"{', '.join(STEPS)}, or a folder whose VARIANT has op='lenet'"
        )
    return variant


class _Slot:
    """One batch under way: a stream, buffers on the device, and pinned arrays on the host."""

    def __init__(
        self,
        variant: Variant,
        shape: LenetBatch,
        device: Device,
        weights: dict[str, np.ndarray],
        stream: int,
        use_graph: bool,
    ) -> None:
        self._device, self._stream = device, stream
        # a module for each slot: the variables of a module (filters in constant memory) are its own
        module = device.compile(variant.source, variant.defines_for(shape))
        self.execution = Execution(variant, shape, module, device, stream)
        self.execution.fill()
        for name, value in weights.items():
            device.copy_in(self.execution.buffers[name], value, stream)
        self.execution.set_up()
        device.synchronize(stream)
        # one image is on the GPU sooner when its kernels fetch it than when a copy engine brings it
        host_array = self._shared if shape.N == 1 else self._pinned
        self.images, self._probabilities = host_array("images", shape), host_array("probabilities", shape)
        self.images[:] = 0
        self._count = 0
        self._work = self.execution.kernels if shape.N == 1 else self._with_copies
        self._graph = device.capture(self._work, stream) if use_graph else None

    def _pinned(self, name: str, shape: LenetBatch) -> np.ndarray:
        """An array to copy a buffer from and to."""
        return self._device.pinned(shape.buffers[name], shape.dtypes.get(name, "float32"))

    def _shared(self, name: str, shape: LenetBatch) -> np.ndarray:
        """A buffer itself, which comes to lie in host memory."""
        buffers, dtype = self.execution.buffers, shape.dtypes.get(name, "float32")
        buffers[name].free()
        buffers[name], array = self._device.shared(name, shape.buffers[name], dtype)
        return array

    def submit(self, count: int) -> None:
        """Give the device the first ``count`` of `images`; what lies behind them is computed and not read."""
        self._count = count
        if self._graph:
            self._graph.replay()
        else:
            self._work()

    def result(self) -> np.ndarray:
        """Wait for the batch: probabilities (n, 10)."""
        self._device.synchronize(self._stream)
        return self._probabilities[: self._count].copy()

    def free(self) -> None:
        """Free what lies on the device."""
        if self._graph:
            self._graph.free()
        self.execution.free()

    def _with_copies(self) -> None:
        """All that the device does for a batch, from pinned images to pinned probabilities."""
        buffers = self.execution.buffers
        self._device.copy_in(buffers["images"], self.images, self._stream)
        self.execution.kernels()
        self._device.copy_out(buffers["probabilities"], self._probabilities, self._stream, wait=False)


class ResidentLenet:
    """The course's network on a device, its weights copied once.

    Parameters
    ----------
    network
        Trained; of `mini_dnn.nn.models.lenet`.
    variant
        A network variant: see `find_step`.
    device
        Where.
    shape
        Most images at a time (fewer where the device's memory is small), and what an image is.
    use_graph
        Whether a batch is one replay of a graph; otherwise each copy and launch is given to the device by
        itself, as when measuring what the graph saves.

    Raises
    ------
    ShapeError
        The network is another one.
    VariantError, DeviceError
        See `mini_dnn.errors`.
    """

    def __init__(
        self,
        network: Network,
        variant: Variant,
        device: Device,
        shape: LenetBatch,
        use_graph: bool = True,
    ) -> None:
        check_runnable(variant, device)
        limit = variant.limit_for(shape)
        if limit:
            raise VariantError(f"{variant.name} does not take {shape}: {limit}")
        variant = fitting(variant, shape, device.max_shared_bytes)
        weights = {name: parameter.value for name, parameter in network.parameters().items()}
        found = {name: value.shape for name, value in weights.items()}
        if found != shape.weights:
            raise ShapeError(f"{variant.name} is for LeNet with {shape.weights}; found a network of {found}")
        weights = {name: np.ascontiguousarray(value, np.float32) for name, value in weights.items()}
        self.shape = shape.with_batch(largest_part(variant, shape, device.free_bytes() // SLOTS))
        self._device = device
        self._slots: list[_Slot] = []
        try:
            for stream in range(SLOTS):
                self._slots.append(_Slot(variant, self.shape, device, weights, stream, use_graph))
        except BaseException:
            self.close()
            raise

    def serve(self, batches: Iterable[np.ndarray]) -> Iterator[np.ndarray]:
        """Probabilities (n, 10) float32 of each batch, in order; batch i + 1 is copied while i is computed.

        Until all of them are there, nothing else is asked of this network.

        Parameters
        ----------
        batches
            Each (n, 1, side, side) of the promised kind, n at most ``shape.N``.

        Raises
        ------
        ShapeError
            A batch is larger, or of another kind.
        """
        source = iter(batches)

        def fill(images: np.ndarray) -> int:
            batch = next(source, None)
            return 0 if batch is None else self._put(batch, images)

        return self.serve_in_place(fill)

    def serve_in_place(self, fill: Fill) -> Iterator[np.ndarray]:
        """Like `serve`, of images that come to pinned memory straight away: the host copies nothing.

        Parameters
        ----------
        fill
            Called when there is room for a batch, with a pinned array (``shape.N``, 1, side, side) that the
            device reads from: it writes images to its front and returns how many, or 0 when no more come.
            There are `SLOTS` such arrays, in turn; each still holds what was last written into it.

        Raises
        ------
        ShapeError
            ``fill`` returned more images than the array has room for.
        """
        waiting: deque[_Slot] = deque()
        try:
            for slot in cycle(self._slots):
                if len(waiting) == SLOTS:
                    yield waiting.popleft().result()
                count = fill(slot.images)
                if not 0 <= count <= self.shape.N:
                    raise ShapeError(
                        f"fill returned {count}; expected 0 to {self.shape.N}, the images that it wrote"
                    )
                if count == 0:
                    break
                slot.submit(count)
                waiting.append(slot)
            while waiting:
                yield waiting.popleft().result()
        finally:
            for slot in waiting:  # nobody asked for these; the device reads their images until they are done
                slot.result()

    def respond(self, images: np.ndarray) -> np.ndarray:
        """Probabilities (n, 10) float32 of one batch, as soon as they are there: see `serve`."""
        slot = self._slots[0]
        slot.submit(self._put(images, slot.images))
        return slot.result()

    def predict(self, images: np.ndarray, progress: Progress = lambda images: None) -> np.ndarray:
        """Probabilities (n, 10) float32 of any number of images, in as many batches as they need.

        ``progress`` is called after each batch with the images done so far.
        """
        N = self.shape.N
        parts: list[np.ndarray] = []
        for part in self.serve(images[n : n + N] for n in range(0, len(images), N)):
            parts.append(part)
            progress(min(len(parts) * N, len(images)))
        return np.concatenate(parts)

    def op_samples_ms(self, timing: Timing) -> list[float]:
        """Milliseconds of each timed run of all kernels of a full batch; empty without a clock."""
        return time_op(self._slots[0].execution.kernels, self._device, timing)

    def close(self) -> None:
        """Free what lies on the device."""
        for slot in self._slots:
            slot.free()

    @staticmethod
    def _put(batch: np.ndarray, images: np.ndarray) -> int:
        """Copy a batch to the front of a slot's images; how many they are."""
        kind = batch.shape[1:] == images.shape[1:] and batch.dtype == images.dtype
        if not kind or not 0 < len(batch) <= len(images):
            raise ShapeError(
                f"this network takes 1 to {len(images)} images of {images.shape[1:]} {images.dtype} at a "
                f"time; found {batch.shape} {batch.dtype}"
            )
        images[: len(batch)] = batch
        return len(batch)
