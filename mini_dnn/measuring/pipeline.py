"""Batches of pictures that go through a network on a device, and where the time goes."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, wait
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from mini_dnn.running.resident import Resident

# Bytes of pixels that a thread copies: for fewer, handing over takes longer than copying
PART_BYTES = 8 << 20
SMALL_BYTES = 256 << 10  # this thread has copied this much before another one is awake
LATER = 3  # batches whose results may be computed while outputs of the next one are awaited

Formed = Callable[[np.ndarray, str], np.ndarray]  # pixels -> the network's input of a type
Finish = Callable[[np.ndarray], Any]  # outputs -> results


@dataclass
class Spent:
    """Where the time of pictures went, in seconds."""

    seconds: float = 0.0  # in total, except for the time in which nobody requested results
    waited: float = 0.0  # for pictures that were not decoded yet
    decoding: float = 0.0  # by all decoding workers together
    copying: float = 0.0  # of copies on the host, from decoded pixels to what a device reads
    network: float = 0.0  # of the network: until the device had its work, and until that was complete

    @property
    def results(self) -> float:
        """Everything else: from the network's outputs to the likeliest classes."""
        return max(0.0, self.seconds - self.waited - self.copying - self.network)

    def add(self, other: Spent) -> None:
        """Add the time that was spent elsewhere."""
        for name, value in asdict(other).items():
            setattr(self, name, getattr(self, name) + value)


@dataclass(eq=False)
class Pipeline:
    """Yields results of each batch.

    Threads copy the next batches and compute results while the device computes.

    Parameters
    ----------
    resident
        The network.
    formed
        Converts pixels ``(N, rows, columns, channels) uint8`` to the form that the network accepts.
    finish
        Computes results from outputs.
    pool
        Threads.
    batches
        Batches of pixels.
    spent
        The object to which times are added.
    """

    resident: Resident
    formed: Formed
    finish: Finish
    pool: Executor
    batches: Iterator[np.ndarray]
    spent: Spent
    _copies: deque[list[Future[None]]] = field(default_factory=deque, init=False)  # of the batches in order

    def __iter__(self) -> Iterator[Any]:
        """Yield the results. It can only be called once."""
        served = self.resident.serve_in_place(self._begin, self._written)
        before = self.resident.device_s
        results: deque[Future[Any]] = deque()
        try:
            for outputs in served:
                self.spent.network += self.resident.device_s - before
                before = self.resident.device_s
                results.append(self._started(outputs.nbytes, self.finish, outputs))
                if len(results) > LATER:
                    yield results.popleft().result()
            while results:
                yield results.popleft().result()
        finally:
            served.close()
            # These are the copies of batches whose results nobody requested.
            wait([copy for batch in self._copies for copy in batch])

    def _started(self, nbytes: int, work: Callable[..., Any], *args: Any) -> Future[Any]:
        """Start work on ``nbytes`` bytes in another thread, or do it immediately if it is small."""
        if nbytes >= SMALL_BYTES:
            return self.pool.submit(work, *args)
        done: Future[Any] = Future()
        done.set_result(work(*args))
        return done

    def _begin(self, inputs: np.ndarray) -> int:
        pixels = next(self.batches, None)
        if pixels is None:
            return 0
        # bytes that are not copied contiguously take five times as long
        part_bytes = PART_BYTES if pixels.transpose(0, 3, 1, 2).flags.c_contiguous else PART_BYTES // 2
        n, count = len(pixels), min(len(os.sched_getaffinity(0)), pixels.nbytes // part_bytes + 1)
        parts = [slice(*ab) for ab in pairwise(part * n // count for part in range(count + 1))]
        self._copies.append([self._started(pixels.nbytes, self._put, inputs[ab], pixels[ab]) for ab in parts])
        return n

    def _put(self, inputs: np.ndarray, pixels: np.ndarray) -> None:
        inputs[:] = self.formed(pixels, inputs.dtype.name)

    def _written(self, inputs: np.ndarray) -> None:
        start = time.perf_counter()
        for copy in self._copies.popleft():
            copy.result()
        self.spent.copying += time.perf_counter() - start
