"""Worker processes: Ctrl-C does not reach them, and they end with their parent."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess


class _Process(SpawnProcess):
    """A process that leaves Ctrl-C to its parent from its first instruction on."""

    def start(self) -> None:
        """Start the process. Ctrl-C is delayed until the new process has received its data."""
        # Start Python's own helper process first, because Python unblocks signals afterwards
        resource_tracker.ensure_running()
        with _ctrl_c_later():
            super().start()


class _Context(SpawnContext):
    Process = _Process


SPAWN = _Context()  # of `multiprocessing`; starts new interpreters


def end_with_parent() -> None:
    """Let this process end when its parent process has ended. Call this first in a process of `SPAWN`."""
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ctrl_c_later() -> Iterator[None]:
    """Delay Ctrl-C until the end of the context.

    Processes that are started within it inherit the mask, so they never see the signal. If another thread of
    this process receives it, Python calls the handler in the main thread. This handler only notes the signal.
    """
    came: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()  # only it may change handlers
    handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number)) if is_main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, handler)
        if came:
            signal.raise_signal(signal.SIGINT)
