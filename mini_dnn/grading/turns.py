"""Who runs beside whom: hidden tests run while no process of another submission does.

Processes on one machine can always tell each other a little, by how busy processors and memory are. So what
has seen a hidden test runs alone, and what could hear it ended before.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turn:
    """One variant's: first beside others, then alone."""

    def __init__(self, file: int) -> None:
        self._file = file

    def alone(self) -> None:
        """Wait until no other turn is under way; from now on none begins."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        fcntl.flock(self._file, fcntl.LOCK_EX)


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Wait until no other thread or process of this machine is within; the file is that of all of them."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)


@contextmanager
def turn(path: Path) -> Iterator[Turn]:
    """A turn beside others, as soon as nobody is alone; the file is that of all of them."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_SH)
        yield Turn(file)
    finally:
        os.close(file)
