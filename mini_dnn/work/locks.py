"""Locked files, which show that no other run on this machine uses a folder."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from mini_dnn.errors import UsageError, reason


@contextmanager
def locked(path: Path, refusal: str, remove: bool = False) -> Iterator[None]:
    """A file that only this process has locked. The system unlocks it, however the process ends.

    Parameters
    ----------
    path, refusal
        The file, and the message if another process has locked it.
    remove
        Whether the file is removed at a normal end.

    Raises
    ------
    UsageError
        Another process has locked it; or it cannot be written or locked at all.
    """
    while True:
        try:
            file = path.open("w")
        except OSError as error:
            raise UsageError(
                f"{path} cannot be written: {reason(error)}; choose a folder elsewhere"
            ) from error
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UsageError(refusal) from error
            except OSError as error:
                raise UsageError(f"{path} cannot be locked ({error}); choose a folder elsewhere") from error
            if not _is_at(file, path):  # the previous owner of the lock has removed it
                continue
            try:
                yield
            finally:
                if remove:
                    path.unlink(missing_ok=True)
            return


def _is_at(file: TextIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
