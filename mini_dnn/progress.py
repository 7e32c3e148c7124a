"""Progress bars and notes that a terminal shows during slow work.

Rich is imported only where something is shown, so that the many processes that show nothing start sooner.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from threading import Event, Lock, Thread
from typing import Any

PATIENCE_S = 1.0  # work that takes less time shows no bar
SILENCE_S = 60.0  # after so long a person wonders whether a kernel will ever end

# For running kernels: when they started, and a function that describes them
_running: list[tuple[float, Callable[[], str]]] = []
_shown = Lock()  # held by the `busy` that is shown


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Show on stderr, if it is a terminal, what is going on. This is for work of unknown length.

    Nothing is shown inside another such context or at the same time as one, since two would share a line.
    """
    if not sys.stderr.isatty() or not _shown.acquire(blocking=False):
        yield
        return
    try:
        from rich.console import Console

        console = Console(stderr=True)
        with console.status(what) if console.is_terminal else nullcontext():
            yield
    finally:
        _shown.release()


@contextmanager
def running(what: Callable[[], str]) -> Iterator[None]:
    """Register kernels as running inside this context.

    If they take long, `told_of_silence` prints the text that ``what`` returns.
    """
    entry = (time.monotonic(), what)
    _running.append(entry)
    try:
        yield
    finally:
        _running.remove(entry)


def overdue(now: float) -> str:
    """The text about kernels that have run for `SILENCE_S` at time ``now``; empty if there are none."""
    since, what = next(iter(_running), (now, str))  # another thread may remove the last one at any time
    return what() if now - since >= SILENCE_S else ""


@contextmanager
def told_of_silence() -> Iterator[None]:
    """Print one note on stderr if kernels have run for `SILENCE_S` without an end."""
    done = Event()

    def watch() -> None:
        while not done.wait(SILENCE_S / 60):
            if what := overdue(time.monotonic()):
                print(f"NOTE: {what}", file=sys.stderr, flush=True)
                return

    Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _columns() -> tuple[Any, ...]:
    """The columns of a bar."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        ProgressColumn,
        Task,
        TextColumn,
        TimeRemainingColumn,
    )
    from rich.text import Text

    class Rate(ProgressColumn):
        """A column with the number of units that are done per second."""

        def render(self, task: Task) -> Text:
            """Return the rate as text."""
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    return (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )


class Bar:
    """A bar with the rate and the remaining time on stderr, if it is a terminal, from the first second on.

    >>> with Bar("resizing", 60000) as bar:
    ...     bar.update(1000)
    """

    def __init__(self, what: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._progress = Progress(
            *_columns(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
            redirect_stdout=sys.stdout.isatty(),  # output that goes to a file is not shown on the terminal
        )
        self._task = self._progress.add_task(what, total=total)
        self._since = time.monotonic()

    def update(self, done: int, total: int | None = None) -> None:
        """Show that ``done`` units are done. ``total`` replaces the number of all units if it has changed."""
        self._progress.update(self._task, completed=done, total=total)
        if time.monotonic() - self._since > PATIENCE_S:
            self._progress.start()  # has no effect if it has already started

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *error: object) -> None:
        self._progress.stop()
