"""Processes of this machine."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

from mini_dnn.work.children import SPAWN, end_with_parent
from mini_dnn.work.engine import Engine


class Inside(Executor):
    """Runs each call before `submit` returns."""

    def submit(self, function: Callable[..., Any], /, *args: Any, **words: Any) -> Future[Any]:
        """Call a function."""
        future: Future[Any] = Future()
        try:
            future.set_result(function(*args, **words))
        except Exception as error:
            future.set_exception(error)
        return future


class Local(Engine):
    """Processes of this machine; one worker is this process itself."""

    shares_fate, grace_s = True, 0.0

    def __init__(self, workers: int = 1) -> None:
        self.workers, self.inside, self.keeps = workers, workers == 1, workers > 1
        if self.inside:
            self.most_s = float("inf")  # nobody shares the items
        self._others: set[int | None] = set()

    @property
    def window(self) -> int:
        """One more than there are workers; in this process, one."""
        return 1 if self.inside else self.workers + 1

    def open(self, folder: Path) -> Executor:
        """A pool of processes, which end with this one."""
        if self.inside:
            return Inside()
        self._others = {child.pid for child in multiprocessing.active_children()}
        return ProcessPoolExecutor(self.workers, SPAWN, initializer=end_with_parent)

    def abandon(self, pool: Executor) -> None:
        """Kill the processes."""
        if self.inside:
            return
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            if child.pid not in self._others:
                child.kill()
        pool.shutdown()
