"""Lower bounds from moving the bytes: the driver's copy, and a kernel that only reads and writes."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from peers_common import Case, Prepared
from peers_problems import Subject, spread

from mini_dnn.device.base import Buffer, Device, LaunchConfig, Scalar
from mini_dnn.errors import CheckError, DeviceError, UsageError
from mini_dnn.measuring.bench import SWEEP_TIMING
from mini_dnn.running.timing import time_op

SOURCE = Path(__file__).with_name("floors.cu")
UNIT = 16  # bytes: the granularity of bulk copies
SHARED_BYTES = 224 * 1024  # of all blocks on a multiprocessor
MAX_BUFFERS = 32  # as in the kernel
THREADS = 256  # of a block; only one of them moves data
STREAM_ITEM = 32 * 1024  # bytes of an item that is only read, or only written
STREAM_ITEMS = 3  # per image of the batch: about 1 GB at 10,000

Prepare = Callable[[], AbstractContextManager[Prepared]]


@dataclass(frozen=True)
class Mix:
    """Items with numbers of bytes to read and to write, and their bytes on the host."""

    what: str
    read: int
    write: int
    source: np.ndarray  # (items, read) uint8

    @property
    def items(self) -> int:
        """The number of items."""
        return len(self.source)

    @property
    def bytes(self) -> int:
        """The number of bytes that are moved."""
        return self.items * (self.read + self.write)


@dataclass(frozen=True)
class Cut:
    """How the kernel divides the work."""

    parts: int  # of an item
    blocks: int  # per multiprocessor
    lag: int  # groups of stores that may still read their buffers while the next part is loaded

    def pitch(self, mix: Mix) -> int:
        """Bytes from one buffer to the next: the largest part, rounded up to whole lines."""
        largest = -(-mix.read // UNIT // self.parts) * UNIT if mix.read else mix.write // self.parts
        return -(-largest // 128) * 128

    def buffers(self, mix: Mix) -> int:
        """The number of parts in flight in a block."""
        return min(MAX_BUFFERS, SHARED_BYTES // self.blocks // self.pitch(mix))

    def fits(self, mix: Mix) -> bool:
        """Whether every part reads something, and there are buffers to load into."""
        return self.lag < self.buffers(mix) and self.parts * UNIT <= max(mix.read, UNIT)

    def __str__(self) -> str:
        """A text for a row's setting."""
        return f"{self.parts} parts an item, {self.blocks} blocks a multiprocessor, LAG {self.lag}"


CUTS = (Cut(1, 1, 1), Cut(1, 1, 2), Cut(1, 2, 1), Cut(2, 1, 2), Cut(2, 2, 1), Cut(4, 1, 4), Cut(4, 2, 2))


def cases(subjects: Sequence[Subject], device: Device) -> Iterator[Case]:
    """Yield the driver's copy, reading only, writing only, and the mix of each subject.

    All have the batch size of the first subject.
    """
    batch = subjects[0].problem.batch
    facts = {"batch": batch}
    count = STREAM_ITEMS * batch
    block = np.random.default_rng(0).integers(0, 256, (count, STREAM_ITEM), np.uint8)
    copied = Mix("copy", STREAM_ITEM, STREAM_ITEM, block)
    yield _case(copied, facts, "cuMemcpyDtoD", partial(_copied, copied, device))
    for mix in (Mix("read", STREAM_ITEM, UNIT, block), Mix("write", 0, STREAM_ITEM, block[:, :0])):
        yield _case(mix, facts, "", partial(_moved, mix, device))
    for subject in subjects:
        mix = mix_of(subject)
        yield _case(mix, subject.facts, "", partial(_moved, mix, device))


def mix_of(subject: Subject) -> Mix:
    """The bytes of a subject's images and results. Weights are too small to matter."""
    x, y = subject.input, subject.problem.arrays[subject.output]
    read, write = x[0].nbytes, y.nbytes // y.shape[0]
    images = next(n for n in (1, 2, 4) if n * read % UNIT == 0 and n * write % UNIT == 0)
    whole = len(x) // images * images
    source = x[:whole].reshape(whole // images, -1).view(np.uint8)
    return Mix(subject.what, images * read, images * write, source)


def moved(mix: Mix, cut: Cut, item: int) -> np.ndarray:
    """What the kernel writes for an item: each part of the input, repeated to fill its share."""

    def begin(size: int, part: int) -> int:
        return size // UNIT * part // cut.parts * UNIT

    pattern = np.arange(cut.pitch(mix) // 4, dtype=np.int32).view(np.uint8)
    pieces = []
    for part in range(cut.parts):
        piece = mix.source[item, begin(mix.read, part) : begin(mix.read, part + 1)] if mix.read else pattern
        pieces.append(np.resize(piece, begin(mix.write, part + 1) - begin(mix.write, part)))
    return np.concatenate(pieces)


def _case(mix: Mix, facts: Mapping[str, Any], setting: str, prepare: Prepare) -> Case:
    return Case(
        kind="floor",
        peer="bytes alone",
        what=mix.what,
        precision="",
        order="",
        setting=setting,
        bytes=mix.bytes,
        prepare=prepare,
        check=_check,
        facts=facts,
    )


def _check(differing: np.ndarray) -> dict[str, float]:
    """Report errors. ``differing`` is the number of wrong bytes in each compared item."""
    if differing.any():
        raise CheckError(f"{int(differing.sum())} bytes of {len(differing)} compared items are wrong")
    return {"relative_error": 0.0, "max_error": 0.0}


@contextmanager
def _copied(mix: Mix, device: Device) -> Iterator[Prepared]:
    with _buffers(mix, device) as (source, target, _):
        yield Prepared(
            lambda: device.copy(target, source), lambda: _differing(target, mix, mix.source, device)
        )


@contextmanager
def _moved(mix: Mix, device: Device) -> Iterator[Prepared]:
    """Prepare the fastest cut among those that fit, after a quick measurement of each."""
    if device.arch < 90:
        raise DeviceError(f"bulk copies need sm_90; this GPU is sm_{device.arch}")
    if mix.items == 0:
        raise UsageError("a batch of one image is too small for items of 16 bytes; take an even --batch")
    with _buffers(mix, device) as buffers:
        fitting = [cut for cut in CUTS if cut.fits(mix)]
        quick = {cut: time_op(mover(mix, cut, device, *buffers), device, SWEEP_TIMING) for cut in fitting}
        best = min(fitting, key=lambda cut: statistics.median(quick[cut].samples_ms or [0.0]))
        target = buffers[1]

        def result() -> np.ndarray:
            expected = np.stack([moved(mix, best, int(item)) for item in spread(mix.items)])
            return _differing(target, mix, expected, device)

        device.fill(target)
        setting = f"{best}, the fastest of {len(fitting)}"
        yield Prepared(mover(mix, best, device, *buffers), result, setting)


def mover(
    mix: Mix, cut: Cut, device: Device, source: Buffer, target: Buffer, counters: Buffer
) -> Callable[[], None]:
    """Return a function that launches the kernel once."""
    module = device.compile(SOURCE, {"LAG": cut.lag})
    pitch, buffers = cut.pitch(mix), cut.buffers(mix)
    numbers = (mix.items, mix.read, mix.write, cut.parts, buffers, pitch)
    args: list[Buffer | Scalar] = [source, target, counters, *map(np.int32, numbers)]
    grid = (min(cut.blocks * getattr(device, "multiprocessors", 2), mix.items * cut.parts),)
    return lambda: device.launch(module, "move", LaunchConfig(grid, (THREADS,), buffers * pitch), args)


@contextmanager
def _buffers(mix: Mix, device: Device) -> Iterator[tuple[Buffer, Buffer, Buffer]]:
    """Allocate source, target and counters. The source is copied from the host, and the counters are 0."""
    found: list[Buffer] = []
    try:
        source = mix.source.shape if mix.read else (UNIT,)  # a buffer must not be empty
        shapes = {"source": source, "target": (mix.items, mix.write), "counters": (8,)}
        for name, shape in shapes.items():
            found.append(device.empty(name, shape, np.uint8))
        if mix.read:
            device.copy_in(found[0], np.ascontiguousarray(mix.source))
        device.copy_in(found[2], np.zeros(8, np.uint8))
        device.synchronize()
        yield found[0], found[1], found[2]
    finally:
        for buffer in found:
            buffer.free()


def _differing(target: Buffer, mix: Mix, expected: np.ndarray, device: Device) -> np.ndarray:
    """Count differing bytes in items all over the target. ``expected`` has these items, or all of them."""
    chosen = spread(mix.items)
    if len(expected) == mix.items:
        expected = expected[chosen]
    found = np.empty((len(chosen), mix.write), np.uint8)
    for at, item in enumerate(chosen):
        device.copy_out(device.part(target, int(item), int(item) + 1), found[at : at + 1])
    return (found != expected).sum(axis=1)
