"""Classify pictures shard by shard, in this process or in one for each GPU, and store the results."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device import Device
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.kept import Answers, Kept
from mini_dnn.measuring.likeliest import top
from mini_dnn.measuring.pictures import Classifier, Serve
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.pictures.feed import Batch, Decoders, Feed
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import Shard, Source
from mini_dnn.running.team import Team
from mini_dnn.variant import Variant, find

BATCH, GPU_BATCH = 32, 256  # pictures at a time; a GPU needs more of them
ABOUT = "about"  # an item of work that is not a shard: see `Job`


@dataclass(frozen=True)
class Job:
    """The work of each process, without open resources, so that it can be pickled.

    Parameters
    ----------
    network, weights, recipe
        See `Classifier.load`.
    impl
        The name of the variant; if empty, the best one for the device.
    batch
        The maximum number of pictures at a time; if None, a number that suits the device.
    top
        The number of classes per picture.
    workers
        The number of workers that decode, in each process.
    many
        Whether there are enough pictures to start processes that decode.
    few
        The number of pictures if they are few, for batches of equal size.
    """

    network: str
    weights: Path | None
    recipe: Recipe
    impl: str
    batch: int | None
    top: int
    workers: int
    many: bool
    few: int = 0

    @cached_property
    def classifier(self) -> Classifier:
        """The trained network."""
        return Classifier.load(self.network, self.weights, self.recipe)

    @contextmanager
    def __call__(self, device: Device) -> Iterator[Callable[[Any], Any]]:
        """Yield a function with the answers for each shard; for `ABOUT`, the variant and its code's hash."""
        variant = self.variant(device)

        def work(item: Shard | str) -> Any:
            return (variant.name, code_of(variant)) if isinstance(item, str) else answer.shard(item)

        with self.on(device) as answer:
            yield work

    def variant(self, device: Device) -> Variant:
        """The variant that computes the network."""
        return find(self.impl) if self.impl else self.classifier.best(device)

    @contextmanager
    def on(self, device: Device | None) -> Iterator[Answering]:
        """The network on a device, or in NumPy."""
        decoders = Decoders(self.workers)
        try:
            if device is None:
                yield Answering(self, self.classifier.on_host, self._size(BATCH), decoders)
                return
            most = self._size(GPU_BATCH if device.name == "cuda" else BATCH)
            with self.classifier.on_device(self.variant(device), most, device) as (serve, size):
                yield Answering(self, serve, size, decoders)
        finally:
            decoders.close()

    def _size(self, suits: int) -> int:
        most = self.batch or suits
        return -(-self.few // -(-self.few // most)) if self.few else most


@dataclass(frozen=True)
class Answering:
    """A prepared network, and the workers that decode for it."""

    job: Job
    serve: Serve
    size: int
    decoders: Decoders

    def shard(self, shard: Shard) -> Answers:
        """The answers for all pictures of a shard."""
        spent = Spent()
        return Answers.joined(list(self.stream(shard.sources, spent)), spent)

    def stream(self, sources: Iterable[Source], spent: Spent) -> Iterator[Answers]:
        """Yield answers for pictures, a batch at a time, and record where the time goes."""
        feed = Feed(sources, self.job.recipe, self.size, self.decoders, self.job.many)
        parts: deque[Batch] = deque()  # in progress
        since = time.perf_counter()

        def pixels() -> Iterator[np.ndarray]:
            for batch in feed:
                parts.append(batch)
                if len(batch.pixels):
                    yield batch.pixels

        def broken() -> Iterator[Answers]:
            """The next batches, as long as none of their pictures could be read."""
            while parts and not len(parts[0].pixels):
                batch = parts.popleft()
                k = self.job.top
                yield Answers(batch.names, batch.errors, np.empty((0, k), np.int64), np.empty((0, k)))

        def found() -> Iterator[Answers]:
            for chosen, likeliest in self.serve(pixels(), spent, partial(top, count=self.job.top)):
                yield from broken()
                batch = parts.popleft()
                yield Answers(batch.names, batch.errors, chosen, likeliest)
            yield from broken()

        def count() -> None:
            spent.seconds += time.perf_counter() - since
            spent.waited, spent.decoding = feed.waited_s, feed.decoding_s

        for answers in found():
            count()
            yield answers
            since = time.perf_counter()
        count()


def by_team(team: Team, shards: Iterable[Shard], kept: Kept, spent: Spent) -> Iterator[Answers]:
    """Yield the answers of each shard in order, computed by a process for each GPU."""
    for done in team.map(shards, kept.load):
        if done.place:
            kept.save(done.item.number, done.result)
            spent.add(done.result.spent)
        yield done.result


def by_this_process(
    answering: Answering, shards: Iterable[Shard], kept: Kept, spent: Spent
) -> Iterator[Answers]:
    """Yield the answers of each shard in order, as soon as a batch is complete."""
    # Number and size of shards, and files of stored answers, which are read again when it is their turn
    ahead: deque[tuple[int, int, Path | None]] = deque()

    def pending() -> Iterator[Source]:
        for shard in shards:
            stored = kept.find(shard)
            ahead.append((shard.number, shard.count, stored))
            if stored is None:
                yield from shard.sources

    def known() -> Iterator[Answers]:
        while ahead and (file := ahead[0][2]):
            ahead.popleft()
            yield kept.read(file)

    parts: list[Answers] = []  # of the next shard
    for found in answering.stream(pending(), spent):
        rest = found
        while rest.names:
            yield from known()
            number, count, _ = ahead[0]
            part, rest = rest.split(count - sum(len(part.names) for part in parts))
            parts.append(part)
            yield part
            if sum(len(part.names) for part in parts) == count:
                kept.save(number, Answers.joined(parts))
                ahead.popleft()
                parts = []
    yield from known()
