"""The loop that submits chunks of items to an executor until every item has a result.

The executor schedules the chunks. This loop divides the list into chunks, reads results, and gives the
unfinished items of a dead worker to another one.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any
from uuid import uuid4

from mini_dnn import errors
from mini_dnn.work import chunk
from mini_dnn.work.engine import Engine
from mini_dnn.work.items import Item, Record, Work, short_hash
from mini_dnn.work.locks import locked

MOST_DEATHS = 3  # workers that may die with one item before it is given up
MOST_REASONS = 3
SETUPS = 10  # a chunk takes at most this many times its set-up, if the engine's limit is lower

Heard = Callable[[str, Record, bool], None]  # an item's name, its result, and whether it already existed


@dataclass
class Found:
    """The outcome of a run: a result or a failure for each item, by name."""

    results: dict[str, Record] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> str:
        """Why items have no result: up to three different reasons."""
        return "; ".join(list(dict.fromkeys(self.failures.values()))[:MOST_REASONS])


@dataclass
class _Chunk:
    name: str
    items: dict[str, Item]
    future: Future[None]
    apart: bool = False  # it runs without others next to it
    gone: float | None = None  # when its worker was found to have stopped


def run_items(
    work: Work, engine: Engine, folder: Path, heard: Heard = lambda name, record, known: None
) -> Found:
    """Compute every item that has no result yet.

    Parameters
    ----------
    folder
        The folder for descriptions of chunks, and for logs. All workers must be able to access it. It is
        created if it does not exist.
    heard
        Called once for each result, as soon as it is complete.

    Returns
    -------
    Found
        Failures are errors of the function, and items whose workers died repeatedly. The next run tries them
        again.

    Raises
    ------
    UsageError
        The engine cannot be used here, or another run uses the folder.
    MiniDnnError
        The set-up of the function failed, so nothing can be computed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / "lock", f"another run is using {folder}; wait for it, or end it"):
        run = _Run(work, engine, folder.resolve(), heard)
        run.look()
        if run.left:
            run.finish(chunk.describe(folder, work))
    return run.found


class _Run:
    def __init__(self, work: Work, engine: Engine, folder: Path, heard: Heard) -> None:
        self._work, self._engine, self._folder, self._heard = work, engine, folder, heard
        self.found = Found()
        self.left: deque[Item] = deque()
        self._apart: deque[Item] = deque()  # items that may have killed a worker which others shared
        self._flight: list[_Chunk] = []
        self._deaths: Counter[str] = Counter()
        self._faults = self._unbegun = 0
        self._setup_s = 0.0
        self._spent_s = self._spent_on = 0.0

    def look(self) -> None:
        """Collect the existing results."""
        for item in self._work.items:
            if not self._take(item, known=True):
                self.left.append(item)

    def finish(self, shared: str) -> None:
        """Compute all remaining items; ``shared`` is the file with the description that chunks share."""
        self._shared = shared
        if self._engine.by_hand:
            self._write()
            return
        pool = self._engine.open(self._folder)
        try:
            self._adopt()
            while self.left or self._apart or self._flight:
                self._submit(pool)
                if self._await():
                    self._engine.abandon(pool)
                    pool = self._engine.open(self._folder)
        except BaseException:
            self._engine.abandon(pool)
            raise
        self._engine.close(pool)

    def _write(self) -> None:
        """Write chunks and a script for all remaining items, to be submitted by hand.

        The same items give the same files, so that repeating the command does not lead to a second job. What
        failed in an earlier job is only reported. The next run tries it again.
        """
        failed = chunk.take_failures(self._folder)
        for item in list(self.left):
            if why := failed.get((item.name, self._work.keys[item.name])):
                self.found.failures[item.name] = why
                self.left.remove(item)
        items, names = list(self.left), []
        most = self._engine.window if self._item_s() else 2 * self._engine.workers
        least = -(-len(items) // most)  # items per chunk
        while self.left:
            cut = self._cut() if self._item_s() else []
            cut += [self.left.popleft() for _ in range(min(least - len(cut), len(self.left)))]
            which = [word for item in cut for word in (item.name, self._work.keys[item.name])]
            names.append(short_hash(self._shared, *which))
            chunk.write_chunk(self._folder, names[-1], self._work, self._shared, cut, self._engine.most_s)
        if names:
            script = self._engine.write(self._folder, names)
            command = f"sbatch {quote(str(script))}"
            words = f"it waits for `{command}`; use the same command after that job to collect its result"
            self.found.failures |= {item.name: words for item in items}

    def _adopt(self) -> None:
        """Wait for chunks of an earlier run, whose items are not submitted again."""
        waiting = {item.name: item for item in self.left}
        for name, future in self._engine.adopted().items():
            mine = {item: waiting.pop(item) for item in chunk.keys_in(self._folder, name) if item in waiting}
            self._flight.append(_Chunk(name, mine, future))
        self.left = deque(waiting.values())

    def _submit(self, pool: Executor) -> None:
        while self.left and len(self._flight) < self._window():
            self._give(pool, self._cut())
        if self._apart and not self.left and not self._flight:
            self._give(pool, [self._apart.popleft()], apart=True)

    def _window(self) -> int:
        """The number of chunks in flight: one per worker until the first items have been measured."""
        return self._engine.window if self._item_s() is not None else self._engine.workers

    def _item_s(self) -> float | None:
        return self._spent_s / self._spent_on if self._spent_on else self._engine.item_s

    def _cut(self) -> list[Item]:
        """The next chunk: long enough to be worth its overhead, short enough to share the rest evenly."""
        item_s = self._item_s()
        count = len(self.left) if self._engine.inside else 1
        if item_s is not None and not self._engine.inside:
            even_s = item_s * len(self.left) / (2 * self._engine.workers)
            count = int(self._bounded(even_s) / max(item_s, 1e-9))
        return [self.left.popleft() for _ in range(min(max(1, count), len(self.left)))]

    def _bounded(self, chunk_s: float) -> float:
        most_s = max(self._engine.most_s, SETUPS * self._setup_s)
        return min(max(chunk_s, self._engine.least_s, self._setup_s), most_s)

    def _give(self, pool: Executor, items: list[Item], apart: bool = False) -> None:
        name = uuid4().hex[:12]
        most_s = max(self._engine.most_s, 2 * SETUPS * self._setup_s)
        chunk.write_chunk(self._folder, name, self._work, self._shared, items, most_s)
        more: dict[str, Any] = {"each": self._collect_all} if self._engine.inside else {}
        more |= {"keeps": True} if self._engine.keeps else {}
        given = _Chunk(name, {item.name: item for item in items}, Future(), apart)
        self._flight.append(given)  # first, because it may be complete when `submit` returns
        try:
            given.future = pool.submit(chunk.run_chunk, str(self._folder), name, **more)
        except BrokenExecutor as error:
            given.future.set_exception(error)

    def _await(self) -> bool:
        """Wait for a change, handle it, and return whether the executor is broken."""
        running = [one.future for one in self._flight if one.gone is None]
        if running:
            wait(running, self._engine.poll_s, FIRST_COMPLETED)
        elif self._flight:
            time.sleep(min(self._engine.poll_s, self._engine.grace_s))
        self._collect_all()
        broken = False
        for one in list(self._flight):
            if one.future.done():
                error = one.future.exception()
                if isinstance(error, errors.MiniDnnError):  # an error of the engine, not of the worker
                    raise error
                broken |= isinstance(error, BrokenExecutor)
                self._end(one)
            # The chunk is complete, even if the engine cannot know it: Slurm's controller may not answer
            elif not one.items and chunk.ended(self._folder, one.name):
                self._end(one)
        return broken

    def _collect_all(self) -> None:
        for one in self._flight:
            self._collect(one)

    def _collect(self, one: _Chunk) -> None:
        """Collect the results of a chunk. Its items are in order, so there are none after the first gap."""
        for name, item in list(one.items.items()):
            if not self._take(item, known=False):
                break
            del one.items[name]

    def _take(self, item: Item, known: bool) -> bool:
        record = self._work.result(item.name)
        if record is None:
            return False
        self._unbegun = 0
        self._spent_s, self._spent_on = self._spent_s + record.seconds, self._spent_on + 1
        self.found.results[item.name] = record
        self._heard(item.name, record, known)
        return True

    def _end(self, one: _Chunk) -> None:
        """Handle the end of a chunk: its results, its errors, and its remaining items."""
        how = chunk.ended(self._folder, one.name)
        if how is None and one.gone is None:
            one.gone = time.monotonic()
        if how is None and one.gone is not None and time.monotonic() - one.gone < self._engine.grace_s:
            return  # a network file system may show its files a little later
        self._flight.remove(one)
        errors_of = how.errors if how else {}
        for name, item in list(one.items.items()):
            if name in errors_of:
                self.found.failures[name] = errors_of[name]
                del one.items[name]
            elif self._take(item, known=False):
                del one.items[name]
        if how:
            if not self._engine.keeps:  # each chunk has its own set-up
                self._setup_s = max(self._setup_s, how.setup_s)
            self._fault(how)
            self.left.extendleft(reversed(one.items.values()))
        else:
            self._bury(one)
        chunk.forget(self._folder, one.name)

    def _fault(self, how: chunk.Ended) -> None:
        """An error of the set-up: it ends the run at once on one machine, otherwise after the third node."""
        if how.fault:
            self._faults += 1
            if self._faults >= (1 if self._engine.shares_fate else MOST_DEATHS):
                kind, words = how.fault
                raise getattr(errors, kind, errors.MiniDnnError)(words)

    def _bury(self, one: _Chunk) -> None:
        """Handle the death of a worker: its current item may be the cause, but not later ones."""
        words = str(one.future.exception() or "its worker ended without a message")
        items = list(one.items.values())
        if self._engine.is_final(words):
            self.found.failures |= {item.name: words for item in items}
            return
        if not chunk.has_begun(self._folder, one.name):
            self._unbegun += 1
            if self._unbegun > MOST_DEATHS * (self._engine.workers + 1):
                raise errors.DeviceError(f"workers end before they start an item: {words}")
        elif items:
            first = items[0]
            self._deaths[first.name] += 1
            if self._deaths[first.name] >= MOST_DEATHS:
                items.pop(0)
                if one.apart or not self._engine.shares_fate:
                    told = f"its worker died {self._deaths[first.name]} times, the last time: {words}"
                    self.found.failures[first.name] = told
                else:
                    self._apart.append(first)
        self.left.extendleft(reversed(items))
