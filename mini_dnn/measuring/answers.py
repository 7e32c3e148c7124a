"""Classify pictures shard by shard, in this process or in one for each GPU, and store the results."""

from __future__ import annotations

import io
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from mini_dnn.device import Device
from mini_dnn.errors import UsageError
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.likeliest import top
from mini_dnn.measuring.pictures import Classifier, Serve
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.paths import write_atomically
from mini_dnn.pictures.feed import Batch, Decoders, Feed
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import Shard, Source
from mini_dnn.running.team import Team
from mini_dnn.variant import Variant, find

BATCH, GPU_BATCH = 32, 256  # pictures at a time; a GPU needs more of them
ABOUT = "about"  # an item of work that is not a shard: see `Job`
KEPT, DIGITS = ".npz", 64  # of the names of files with stored answers


@dataclass(frozen=True, eq=False)
class Answers:
    """Some pictures in order, and the most likely classes of those that could be read."""

    names: Sequence[str]
    errors: Sequence[str]  # what is wrong with each; empty if nothing is
    classes: np.ndarray  # (n, k) for the n without an error, the likeliest first
    probabilities: np.ndarray  # (n, k)
    spent: Spent = field(default_factory=Spent)

    def split(self, count: int) -> tuple[Answers, Answers]:
        """Split into the first ``count`` pictures and the others."""
        good = self.errors[:count].count("")
        return (
            Answers(self.names[:count], self.errors[:count], self.classes[:good], self.probabilities[:good]),
            Answers(self.names[count:], self.errors[count:], self.classes[good:], self.probabilities[good:]),
        )

    @classmethod
    def joined(cls, parts: Sequence[Answers], spent: Spent | None = None) -> Answers:
        """Join the answers of several parts."""
        return cls(
            [name for part in parts for name in part.names],
            [error for part in parts for error in part.errors],
            np.concatenate([part.classes for part in parts]),
            np.concatenate([part.probabilities for part in parts]),
            spent or Spent(),
        )


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


class Kept:
    """Stores the answers of complete shards, in one file each, until all shards are complete.

    A file's name is a hash of the pictures' names, sizes and times, and of everything that the answers depend
    on. The same run therefore finds them again, and a different run does not.

    Parameters
    ----------
    folder
        The folder, which is created for the first complete shard. If None, nothing is stored.
    about
        Everything that answers depend on, besides the pictures, in a form that JSON can represent.

    Raises
    ------
    UsageError
        A file has the name of the folder.
    """

    def __init__(self, folder: Path | None, about: object) -> None:
        if folder and folder.exists() and not folder.is_dir():
            raise UsageError(
                f"{folder} is not a folder, but complete shards are stored in a folder of this name until "
                "all are complete; move the file, or give the results another name"
            )
        self._folder, self.about = folder, about
        self._files: dict[int, Path] = {}  # of shards that were requested and are not complete

    def load(self, shard: Shard) -> Answers | None:
        """Return the answers of a shard, or None if it is not complete."""
        if self._folder is None:
            return None
        file = self._folder / f"{shard.key(self.about)}{KEPT}"
        with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile):  # missing or damaged: recompute
            with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as found:
                names, errors = json.loads(found["words"].tobytes())
                answers = Answers(names, errors, found["classes"], found["probabilities"])
            if len(names) == len(errors) == shard.count:
                return answers
        self._files[shard.number] = file
        return None

    def save(self, shard: int, answers: Answers) -> None:
        """Store the answers of the shard with this number."""
        file = self._files.pop(shard, None)
        if file is None:
            return
        words = json.dumps([list(answers.names), list(answers.errors)]).encode()
        content = io.BytesIO()
        np.savez(
            content,
            words=np.frombuffer(words, np.uint8),
            classes=answers.classes,
            probabilities=answers.probabilities,
        )
        write_atomically(file, content.getvalue())

    def remove(self) -> None:
        """Remove all of them, after the results have been written."""
        if self._folder is None:
            return
        for file in self._folder.glob(f"*{KEPT}"):
            if len(file.name) == len(KEPT) + DIGITS:
                file.unlink()
        with suppress(OSError):  # it never existed, or somebody put something else there
            self._folder.rmdir()


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
    ahead: deque[tuple[int, int, Answers | None]] = deque()  # number and size of shards, and stored answers
    remaining: Iterator[Shard] = iter(shards)
    for shard in remaining:  # stored shards at the start do not have to wait in memory for a computed one
        if (stored := kept.load(shard)) is None:
            remaining = chain((shard,), remaining)
            break
        yield stored

    def pending() -> Iterator[Source]:
        for shard in remaining:
            known = kept.load(shard)
            ahead.append((shard.number, shard.count, known))
            if known is None:
                yield from shard.sources

    def known() -> Iterator[Answers]:
        while ahead and (found := ahead[0][2]):
            ahead.popleft()
            yield found

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
