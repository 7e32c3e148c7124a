"""What a terminal shows while work is slow.

Rich is imported where something is shown: the many processes that show nothing start sooner.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Event, Thread
from types import TracebackType
from typing import Any

PATIENCE_S = 1.0  # work that ends sooner shows no bar
SILENCE_S = 60.0  # after which a person wonders whether a kernel will ever end

_running: list[tuple[float, Callable[[], str]]] = []  # since when kernels run, and what is said of them


def busy(what: str) -> AbstractContextManager[object]:
    """Say on a terminal's stderr what is going on, for work whose length nobody knows."""
    if not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    console = Console(stderr=True)
    return console.status(what) if console.is_terminal else nullcontext()


@contextmanager
def running(what: Callable[[], str]) -> Iterator[None]:
    """While kernels run: what ``what`` gives is said of them if they take long, see `told_of_silence`."""
    entry = (time.monotonic(), what)
    _running.append(entry)
    try:
        yield
    finally:
        _running.remove(entry)


def overdue(now: float) -> str:
    """What is said of kernels that have run for `SILENCE_S` at that time; empty if there are none."""
    since, what = _running[0] if _running else (now, str)
    return what() if now - since >= SILENCE_S else ""


@contextmanager
def told_of_silence() -> Iterator[None]:
    """Say once on stderr which kernels have run for `SILENCE_S` without an end."""
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
        """How many are done a second."""

        def render(self, task: Task) -> Text:
            """As text."""
            return Text(f"{task.speed:,.0f}/s" if task.speed else "")

    return (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(),
        TimeRemainingColumn(),
    )


class Bar:
    """A bar with the rate and the time left, on a terminal's stderr, from the first second on.

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
            redirect_stdout=sys.stdout.isatty(),  # what goes to a file stays out of the terminal
        )
        self._task = self._progress.add_task(what, total=total)
        self._since = time.monotonic()

    def update(self, done: int, total: int | None = None) -> None:
        """Show that so many of all are done, and how many these are if that has changed."""
        self._progress.update(self._task, completed=done, total=total)
        if time.monotonic() - self._since > PATIENCE_S:
            self._progress.start()  # harmless when it has started

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
