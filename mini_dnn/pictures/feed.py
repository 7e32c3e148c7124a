"""Pictures in batches: decoded on all cores, ahead of whoever computes, in bounded memory."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np

from mini_dnn.errors import PictureError
from mini_dnn.pictures.decode import decode
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import File, Source, Stack

AHEAD = 2  # batches that are decoded before they are asked for


@dataclass(frozen=True, eq=False)
class Batch:
    """Some pictures in their order, and the pixels of those that could be decoded."""

    names: Sequence[str]
    errors: Sequence[str]  # what is wrong with each; empty where nothing is
    pixels: np.ndarray  # (n, rows, columns, channels) uint8, of the n without an error


@dataclass
class Feed:
    """Batches of pictures.

    Threads decode, as Pillow lets go of the interpreter's lock meanwhile. They are at most `AHEAD` batches
    ahead, and of large pictures one at a time is decoded, so that memory does not grow with their number.

    Parameters
    ----------
    sources
        See `mini_dnn.pictures.sources`.
    recipe
        What is done to each picture. The last step, normalisation, is left to who computes.
    size
        Most pictures in a batch that can be decoded.
    threads
        That decode.
    """

    sources: Sequence[Source]
    recipe: Recipe
    size: int
    threads: int
    decoding_s: float = field(default=0.0, init=False)  # of all threads together
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
        waiting: deque[tuple[File, Future[tuple[np.ndarray | str, float]]]] = deque()
        pool = ThreadPoolExecutor(self.threads)
        try:
            for file in files:
                if len(waiting) == AHEAD * self.size + self.threads:
                    yield self._result(*waiting.popleft())
                waiting.append((file, pool.submit(self._decode, file)))
            while waiting:
                yield self._result(*waiting.popleft())
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _result(
        self, file: File, future: Future[tuple[np.ndarray | str, float]]
    ) -> tuple[File, np.ndarray | str]:
        found, seconds = future.result()
        self.decoding_s += seconds
        return file, found

    def _decode(self, file: File) -> tuple[np.ndarray | str, float]:
        start = time.perf_counter()
        found: np.ndarray | str
        try:
            if isinstance(file.source, PictureError):
                raise file.source
            found = decode(file.source, self.recipe)
        except PictureError as error:
            found = str(error)
        return found, time.perf_counter() - start
