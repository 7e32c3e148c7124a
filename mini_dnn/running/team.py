"""A process for each GPU of this host: they compute items of work, whose results are returned in order.

Each GPU has an executor of `concurrent.futures` with one process, so that it is known which GPU has which
item. If the process of a GPU ends, or its driver reports an error, the GPU is named and gets no more work.
Its items are given to the others.
"""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from mini_dnn.device import Device
from mini_dnn.device.gpus import Place
from mini_dnn.errors import DeviceError
from mini_dnn.work.children import SPAWN, end_with_parent

DEPTH = 2  # items that a process has at a time, so that the second one is ready when the first is complete
AHEAD = 4  # times the number of processes: items that are issued before the oldest one is complete
TRIES = 2  # GPUs that may fail with one item, before the item is thought to be the cause

Work = Callable[[Any], Any]  # done for each item, in a GPU's process
Opener = Callable[[Device], AbstractContextManager[Work]]  # hashable, and can be pickled
FAILURES = (DeviceError, BrokenProcessPool, MemoryError)  # errors of a GPU or its process


@dataclass(frozen=True)
class Done:
    """A complete item: its result, and where it was computed, or an empty place if it was known before."""

    item: Any
    result: Any
    place: Place | None


@dataclass(eq=False)
class _Member:
    """A GPU's process."""

    place: Place
    pool: ProcessPoolExecutor
    pid: int = 0
    items: dict[Future[Any], tuple[int, Any]] = field(default_factory=dict)


class Team:
    """A process for each place, which opens its device once and then computes items.

    Parameters
    ----------
    places
        See `mini_dnn.device.gpus.places`.
    opener
        Called in each process with its open device; returns the function that computes an item. It is
        pickled, and so are items and results.
    told
        Called with a message when a GPU fails.

    Raises
    ------
    DeviceError
        None of the devices can be opened.
    MiniDnnError
        The opener failed.
    """

    def __init__(self, places: Sequence[Place], opener: Opener, told: Callable[[str], None]) -> None:
        self._opener, self._told = opener, told
        self._members = [_Member(p, ProcessPoolExecutor(1, SPAWN, end_with_parent)) for p in places]
        self._descriptions: dict[Place, str] = {}
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> dict[int, Place]:
        """The ids of the processes."""
        return {member.pid: member.place for member in self._members}

    @property
    def kind(self) -> str:
        """The kind of the devices: ``"cuda"`` or ``"emulator"``."""
        return next(iter(self._descriptions)).device

    @property
    def description(self) -> str:
        """A description of the devices."""
        return "; ".join(f"{place}: {text}" for place, text in self._descriptions.items())

    def map(self, items: Iterable[Any], known: Callable[[Any], Any] = lambda item: None) -> Iterator[Done]:
        """The result of each item, in order. Only a few items are taken in advance.

        Parameters
        ----------
        known
            Returns the result of an item that needs no work, and None for other items.

        Raises
        ------
        DeviceError
            All GPUs have failed, or `TRIES` of them with the same item.
        """
        source = enumerate(items)
        again: deque[tuple[int, Any]] = deque()  # items of GPUs that failed
        done: dict[int, Done] = {}
        failed: dict[int, list[str]] = {}
        first, taken = 0, 0  # the oldest item without a result, and how many items were taken

        def following() -> tuple[int, Any] | None:
            nonlocal taken
            while taken < first + AHEAD * len(self._members):
                if (item := next(source, None)) is None:
                    return None
                taken += 1
                if (result := known(item[1])) is None:
                    return item
                done[item[0]] = Done(item[1], result, None)
            return None

        while True:
            self._deal(again, following)
            given = [future for member in self._members for future in member.items]
            if not given and first not in done:
                return
            if first not in done:
                wait(given, return_when=FIRST_COMPLETED)
                for member in list(self._members):
                    self._collect(member, done, again, failed)
            while first in done:
                yield done.pop(first)
                first += 1

    def each(self, item: Any, count: int | None = None) -> list[Any]:
        """Return the results of one item in all processes, or in the first ``count``, concurrently.

        None may fail.
        """
        some = self._members[:count]
        futures = [member.pool.submit(_do, member.place, self._opener, item) for member in some]
        return [future.result() for future in futures]

    def close(self) -> None:
        """End all processes, including those that are working."""
        for member in self._members:
            _end(member, self._opener)
        self._members = []

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _open(self) -> None:
        opened = [(m, m.pool.submit(_open, m.place, self._opener)) for m in self._members]
        errors: list[BaseException] = []
        for member, future in opened:
            try:
                member.pid, self._descriptions[member.place] = future.result()
            except FAILURES as error:
                errors.append(error)
                self._lose(member, f"cannot be opened: {_words(error)}")
        if errors and not self._members:
            raise errors[0]

    def _deal(self, again: deque[tuple[int, Any]], following: Callable[[], tuple[int, Any] | None]) -> None:
        """Give items to each process, beginning with those that failed on other GPUs."""
        for _ in range(DEPTH):
            for member in [m for m in self._members if len(m.items) < DEPTH]:
                item = again.popleft() if again else following()
                if item is None:
                    return
                try:
                    future = member.pool.submit(_do, member.place, self._opener, item[1])
                except BrokenProcessPool as error:  # it has ended since the last call
                    future = Future()
                    future.set_exception(error)
                member.items[future] = item

    def _collect(
        self,
        member: _Member,
        done: dict[int, Done],
        again: deque[tuple[int, Any]],
        failed: dict[int, list[str]],
    ) -> None:
        """Take the results of a GPU's items in the order in which it got them, or detect that it failed.

        The order shows which item the GPU was working on when it failed: the first one without a result.
        """
        while member.items and (future := next(iter(member.items))).done():
            number, item = member.items[future]
            try:
                done[number] = Done(item, future.result(), member.place)
                del member.items[future]
            except FAILURES as error:
                why = failed.setdefault(number, [])
                why.append(f"{member.place}: {_words(error)}")
                again.extend(sorted(member.items.values(), key=lambda entry: entry[0]))
                self._lose(member, f"{_words(error)}; {item} will be repeated by another GPU")
                if not self._members:
                    raise DeviceError(f"no GPU remains: {'; '.join(why)}") from error
                if len(why) == TRIES:
                    raise DeviceError(f"{item} failed on several GPUs: {'; '.join(why)}") from error

    def _lose(self, member: _Member, why: str) -> None:
        self._told(f"{member.place} failed: {why}")
        self._members.remove(member)
        _end(member, self._opener)


def _end(member: _Member, opener: Opener) -> None:
    if member.pid and any(not future.done() for future in member.items):
        with suppress(ProcessLookupError):
            os.kill(member.pid, signal.SIGKILL)  # its result is not needed
    elif member.pid:
        with suppress(Exception):  # it has ended, or cannot close what failed
            member.pool.submit(_close, member.place, opener).result()
    member.items.clear()
    member.pool.shutdown(wait=True, cancel_futures=True)


def _words(error: BaseException) -> str:
    if isinstance(error, BrokenProcessPool):
        return "its process ended unexpectedly; it was killed, or there was too little memory"
    return str(error) or type(error).__name__


@cache
def _opened(place: Place, opener: Opener) -> tuple[Device, Work, ExitStack]:
    """The device and the function of this process, and what closes both. They are created once."""
    place.settle()
    with ExitStack() as stack:
        device = place.open()
        stack.callback(device.close)
        work = stack.enter_context(opener(device))
        return device, work, stack.pop_all()


def _close(place: Place, opener: Opener) -> None:
    """Close both before the process ends. Otherwise Python would wait for processes that the work started."""
    _opened(place, opener)[2].close()


def _open(place: Place, opener: Opener) -> tuple[int, str]:
    return os.getpid(), _opened(place, opener)[0].description


def _do(place: Place, opener: Opener, item: Any) -> Any:
    return _opened(place, opener)[1](item)
