"""Pictures in batches, decoded in advance on all cores, in bounded memory."""

from __future__ import annotations

import logging
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, cast

import numpy as np

from mini_dnn.errors import MiniDnnError, PictureError
from mini_dnn.pictures import decode as decoding
from mini_dnn.pictures.archives import Member
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import File, Source
from mini_dnn.pictures.stacks import Stack
from mini_dnn.work.children import SPAWN, end_with_parent

AHEAD = 2  # batches that are decoded before they are requested
MANY = 1_000  # from this number of files on, processes decode them
SAMPLE, SMALL = 8, 16 << 10  # files that are inspected, and bytes per file below which threads are faster
TOGETHER = 8  # files that a process receives at a time
PILLOW = logging.getLogger("PIL")

Decoded = tuple[np.ndarray | str, float]  # pixels or an error, and the seconds that it took


@dataclass(frozen=True, eq=False)
class Batch:
    """Some pictures in order, and the pixels of those that could be decoded."""

    names: Sequence[str]
    errors: Sequence[str]  # what is wrong with each; empty if nothing is
    pixels: np.ndarray  # (n, rows, columns, channels) uint8, for the n pictures without an error


class Decoders:
    """Workers that decode, which are kept from one feed to the next.

    They are processes if there are many files that are not small, and threads otherwise. Processes take a
    second or two to start, and some time to transfer a picture. Threads wait for each other, although Pillow
    releases the interpreter's lock while it decodes: on a busy machine, two were no faster than one.

    Parameters
    ----------
    count
        The number of workers.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._threads: Executor | None = None
        self._processes: Executor | None = None

    def of(self, files: Sequence[File], many: bool) -> tuple[Executor, int]:
        """The workers for such files, and the number of files that a worker gets at a time."""
        sample = files[:SAMPLE]
        large = self.count > 1 and many and sum(map(_bytes_of, sample)) >= len(sample) * SMALL
        if self._processes or large:
            self._processes = self._processes or _processes(self.count)
            return self._processes, TOGETHER
        self._threads = self._threads or ThreadPoolExecutor(self.count)
        return self._threads, 1

    def close(self) -> None:
        """End the workers. Files that they have not begun are not decoded."""
        for pool in (self._threads, self._processes):
            if pool:
                pool.shutdown(wait=True, cancel_futures=True)
        self._threads = self._processes = None


@dataclass
class Feed:
    """Batches of pictures.

    Workers are at most `AHEAD` batches ahead, and only one large picture is decoded at a time, so that memory
    does not grow with the number of pictures.

    Parameters
    ----------
    sources
        See `mini_dnn.pictures.sources`; only a few are taken in advance.
    recipe
        The preprocessing. The caller applies the last step, normalisation.
    size
        The maximum number of decoded pictures in a batch.
    workers
        The number of workers, or workers that the caller owns.
    many
        Whether the files are a part of many; otherwise they are counted.

    Raises
    ------
    MiniDnnError
        A process ended unexpectedly.
    """

    sources: Iterable[Source]
    recipe: Recipe
    size: int
    workers: int | Decoders
    many: bool = False
    decoding_s: float = field(default=0.0, init=False)  # of all workers together
    waited_s: float = field(default=0.0, init=False)  # of the caller that requested batches

    def __iter__(self) -> Iterator[Batch]:
        """All batches. It can be iterated once."""
        batches = self._batches()
        try:
            while True:
                start = time.perf_counter()
                batch = next(batches, None)
                self.waited_s += time.perf_counter() - start
                if batch is None:
                    return
                yield batch
        finally:
            batches.close()

    def _batches(self) -> Generator[Batch, None, None]:
        decoders = self.workers if isinstance(self.workers, Decoders) else Decoders(self.workers)
        try:
            with _quiet():  # here, because all threads share the filters
                for kind, some in groupby(self.sources, type):
                    if kind is File:
                        yield from self._decoded(cast(Iterator[File], some), decoders)
                    for stack in cast(Iterator[Stack], some):  # no files are left
                        yield from self._of_stack(stack)
        finally:
            if decoders is not self.workers:
                decoders.close()

    def _of_stack(self, stack: Stack) -> Iterator[Batch]:
        for first, last, pixels in stack.batches(self.size):
            yield Batch(stack.names(first, last), [""] * (last - first), pixels)

    def _decoded(self, files: Iterator[File], decoders: Decoders) -> Iterator[Batch]:
        """A batch ends when it is full of pictures that could be decoded, or has as many that could not."""
        names: list[str] = []
        errors: list[str] = []
        pixels = np.empty((self.size, *self.recipe.shape), np.uint8)
        full = 0
        for name, found in self._in_order(files, decoders):
            names.append(name)
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

    def _in_order(self, files: Iterator[File], decoders: Decoders) -> Iterator[tuple[str, np.ndarray | str]]:
        """The name of each file with its pixels, or with its error."""
        head = list(islice(files, SAMPLE if self.many else MANY))
        pool, step = decoders.of(head, self.many or len(head) == MANY)
        files = chain(head, files)
        waiting: deque[tuple[list[str], Future[list[Decoded]]]] = deque()
        try:
            while some := list(islice(files, step)):
                if len(waiting) == -(-AHEAD * self.size // step) + decoders.count:
                    yield from self._results(*waiting.popleft())
                waiting.append(([file.name for file in some], pool.submit(_decode, some, self.recipe)))
            while waiting:
                yield from self._results(*waiting.popleft())
        except BrokenProcessPool as error:
            raise MiniDnnError(
                "a process that decodes pictures ended unexpectedly, for example because of too little "
                "memory or a crash of the decoder; --workers 1 decodes in this process"
            ) from error
        finally:
            for _, future in waiting:
                future.cancel()

    def _results(
        self, names: Sequence[str], future: Future[list[Decoded]]
    ) -> Iterator[tuple[str, np.ndarray | str]]:
        for name, (found, seconds) in zip(names, future.result(), strict=True):
            self.decoding_s += seconds
            yield name, found


def _bytes_of(file: File) -> int:
    """The bytes of the pictures, as far as known without reading them."""
    match file.source:
        case Member():
            return file.source.size
        case Path():
            with suppress(OSError):
                return file.source.stat().st_size
    return 0


def _hush() -> None:
    """Hide warnings about unusual metadata, which name no file; anything that matters is an error."""
    warnings.filterwarnings("ignore", module=r"PIL\.")
    PILLOW.setLevel(logging.CRITICAL)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide them until the end of the context."""
    level = PILLOW.level
    with warnings.catch_warnings():
        try:
            _hush()
            yield
        finally:
            PILLOW.setLevel(level)


def _processes(count: int) -> Executor:
    return ProcessPoolExecutor(count, SPAWN, _begin, (SPAWN.Lock(),))


def _begin(large: Any) -> None:
    """Called first in a process: only one process decodes a large picture at a time."""
    end_with_parent()
    _hush()
    decoding.one_large = large


def _decode(files: Sequence[File], recipe: Recipe) -> list[Decoded]:
    return [_decode_one(file, recipe) for file in files]


def _decode_one(file: File, recipe: Recipe) -> Decoded:
    """Pixels of a file, or the error, and the seconds that this took."""
    start = time.perf_counter()
    found: np.ndarray | str
    try:
        if isinstance(file.source, PictureError):
            raise file.source
        found = decoding.decode(file.source, recipe)
    except PictureError as error:
        found = str(error)
    return found, time.perf_counter() - start
