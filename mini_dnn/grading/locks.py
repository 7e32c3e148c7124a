"""Locked files: how a run knows that no other one, on this machine, uses a folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mini_dnn.errors import UsageError


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """A file that this process alone has locked; the system unlocks it, however the process ends.

    Raises
    ------
    UsageError
        Another process has locked it, which ``refusal`` says; or it cannot be written or locked at all.
    """
    try:
        file = path.open("w")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}; choose a folder elsewhere") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(refusal) from error
        except OSError as error:
            raise UsageError(f"{path} cannot be locked ({error}); choose a folder elsewhere") from error
        yield


def is_free(path: Path) -> bool:
    """Whether nobody has locked the file, or it is gone."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        return True
    except BlockingIOError:
        return False
    return True
