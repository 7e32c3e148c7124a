"""What several verbs share: exit statuses, and the check of a file that is to be written."""

from __future__ import annotations

from pathlib import Path

from mini_dnn.errors import UsageError

DIFFERS = 1  # the run is complete, and its result is not what was expected
WRONG_USE = 2  # something for the user to put right
INTERRUPTED = 130


def check_output(flag: str, path: Path | None) -> None:
    """Refuse, before the work and not after it, a file that could not be written; None is fine.

    Raises
    ------
    UsageError
        The path is a folder, or lies in one that does not exist.
    """
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{flag} {path} is a folder; name a file in it, such as {path / 'out.json'}")
    if not path.resolve().parent.is_dir():
        raise UsageError(f"{flag} {path}: there is no folder {path.resolve().parent}; make it first")
