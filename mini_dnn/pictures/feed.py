"""Pictures in batches: decoded on all cores, ahead of whoever computes, in bounded memory."""

from __future__ import annotations

import multiprocessing as mp
import signal
import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.errors import MiniDnnError, PictureError
from mini_dnn.pictures import decode as decoding
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import File, Source, Stack

AHEAD = 2  # batches that are decoded before they are asked for
MANY = 1_000  # files, from which on processes decode them
SAMPLE, SMALL = 8, 16 << 10  # files that are looked at, and bytes of one that a thread decodes sooner
TOGETHER = 8  # files that a process is given at a time

Decoded = tuple[np.ndarray | str, float]  # pixels, or what is wrong with them; and the seconds that this took


@dataclass(frozen=True, eq=False)
class Batch:
    """Some pictures in their order, and the pixels of those that could be decoded."""

    names: Sequence[str]
    errors: Sequence[str]  # what is wrong with each; empty where nothing is
    pixels: np.ndarray  # (n, rows, columns, channels) uint8, of the n without an error


@dataclass
class Feed:
    """Batches of pictures.

    Workers decode: processes where there are many files that are not small, and threads otherwise. Processes
    take a second or two to start, and some time to hand a picture over. Threads wait for each other, though
    Pillow lets go of the interpreter's lock while it decodes: on a busy machine two were no faster than one.
    Workers are at most some `AHEAD` batches ahead, and of large pictures one at a time is decoded, so that
    memory does not grow with their number.

    Parameters
    ----------
    sources
        See `mini_dnn.pictures.sources`.
    recipe
        What is done to each picture. The last step, normalisation, is left to who computes.
    size
        Most pictures in a batch that can be decoded.
    workers
        How many decode.

    Raises
    ------
    MiniDnnError
        A process ended by itself.
    """

    sources: Sequence[Source]
    recipe: Recipe
    size: int
    workers: int
    decoding_s: float = field(default=0.0, init=False)  # of all workers together
    waited_s: float = field(default=0.0, init=False)  # of who asked for batches

    def __iter__(self) -> Iterator[Batch]:
        """All batches; to be asked for once."""
        batches = self._batches()
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self.waited_s += time.perf_counter() - start
            if batch is None:
                return
            yield batch

    def _batches(self) -> Iterator[Batch]:
        with warnings.catch_warnings():  # here, as all threads share what is ignored
            # of odd metadata; what matters is an error
            warnings.filterwarnings("ignore", module=r"PIL\.")
            files: list[File] = []
            for source in self.sources:
                if isinstance(source, File):
                    files.append(source)
                    continue
                yield from self._decoded(files)
                files = []
                yield from self._of_stack(source)
            yield from self._decoded(files)

    def _of_stack(self, stack: Stack) -> Iterator[Batch]:
        N = len(stack.pixels)
        for first in range(0, N, self.size):
            last = min(first + self.size, N)
            yield Batch(stack.names(first, last), [""] * (last - first), stack.pixels[first:last])

    def _decoded(self, files: Sequence[File]) -> Iterator[Batch]:
        """A batch ends when it is full of pictures that could be decoded, or has as many that could not."""
        names: list[str] = []
        errors: list[str] = []
        pixels = np.empty((self.size, *self.recipe.shape), np.uint8)
        full = 0
        for file, found in self._in_order(files):
            names.append(file.name)
            errors.append(found if isinstance(found, str) else "")
            if not isinstance(found, str):
                pixels[full] = found
                full += 1
            if full == self.size or len(names) - full == self.size:
                yield Batch(names, errors, pixels[:full])
                names, errors, full = [], [], 0
                pixels = np.empty_like(pixels)
        if names:
            yield Batch(names, errors, pixels[:full])

    def _in_order(self, files: Sequence[File]) -> Iterator[tuple[File, np.ndarray | str]]:
        """Each file with its pixels, or with what is wrong."""
        if not files:
            return
        processes = self.workers > 1 and len(files) >= MANY and _bytes_of(files[:SAMPLE]) >= SAMPLE * SMALL
        step = TOGETHER if processes else 1
        waiting: deque[tuple[Sequence[File], Future[list[Decoded]]]] = deque()
        pool = _processes(self.workers) if processes else ThreadPoolExecutor(self.workers)
        try:
            for first in range(0, len(files), step):
                if len(waiting) == -(-AHEAD * self.size // step) + self.workers:
                    yield from self._results(*waiting.popleft())
                some = files[first : first + step]
                waiting.append((some, pool.submit(_decode, some, self.recipe)))
            while waiting:
                yield from self._results(*waiting.popleft())
        except BrokenProcessPool as error:
            raise MiniDnnError(
                "a process that decodes pictures ended by itself, as one does where memory is short or a "
                "picture makes its decoder crash; --workers 1 decodes in this process"
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _results(
        self, files: Sequence[File], future: Future[list[Decoded]]
    ) -> Iterator[tuple[File, np.ndarray | str]]:
        for file, (found, seconds) in zip(files, future.result(), strict=True):
            self.decoding_s += seconds
            yield file, found


def _bytes_of(files: Sequence[File]) -> int:
    found = 0
    for file in files:
        if isinstance(file.source, Path):
            with suppress(OSError):
                found += file.source.stat().st_size
    return found


def _processes(count: int) -> Executor:
    context = mp.get_context("spawn")
    return ProcessPoolExecutor(count, context, _begin, (context.Lock(),))


def _begin(large: Any) -> None:
    """What a process does before it decodes: large pictures are one process's at a time."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asked for batches, who then ends this
    warnings.filterwarnings("ignore", module=r"PIL\.")
    decoding.one_large = large


def _decode(files: Sequence[File], recipe: Recipe) -> list[Decoded]:
    return [_decode_one(file, recipe) for file in files]


def _decode_one(file: File, recipe: Recipe) -> Decoded:
    """Pixels of a file, or what is wrong with it; and the seconds that this took."""
    start = time.perf_counter()
    found: np.ndarray | str
    try:
        if isinstance(file.source, PictureError):
            raise file.source
        found = decoding.decode(file.source, recipe)
    except PictureError as error:
        found = str(error)
    return found, time.perf_counter() - start
