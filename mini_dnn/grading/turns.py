"""Schedule hidden tests, which run only while no process of another submission runs.

Processes on one machine can always exchange some information through the load on processors and memory.
Therefore, processes that have seen a hidden test run alone, and processes that could listen end before that.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


class Turn:
    """The turn of one variant: first together with others, then alone."""

    def __init__(self, file: int) -> None:
        self._file = file

    def alone(self) -> None:
        """Wait until no other turn is in progress. From then on, none begins."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        fcntl.flock(self._file, fcntl.LOCK_EX)


@contextmanager
def turn(path: Path, how: int = fcntl.LOCK_SH) -> Iterator[Turn]:
    """Begin a turn together with others, as soon as nobody is alone. All of them share the file."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, how)
        yield Turn(file)
    finally:
        os.close(file)


def alone_with(path: Path) -> AbstractContextManager[Turn]:
    """Wait until no other thread or process of this machine is inside. All of them share the file."""
    return turn(path, fcntl.LOCK_EX)
