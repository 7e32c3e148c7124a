"""The files of a submission: which ones are accepted, and a private copy that cannot change any more."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import NoReturn

from mini_dnn.errors import reason
from mini_dnn.grading.confined.process import SubmissionError

MAX_FILES, MAX_BYTES = 200, 8 << 20  # limits for one variant; folders count as files
MAX_PATH = 200  # characters of a file's path within the variant
NEEDED = ("variant.py",)
LEFT_OUT = ("__pycache__",)


def read(folder: Path) -> dict[str, bytes]:
    """Return the files of a variant, by their names in its folder.

    Raises
    ------
    SubmissionError
        There is a link, something that cannot be read or is not a file, a long path, too much data, or no
        ``variant.py``.
    """
    files: dict[str, bytes] = {}
    size = count = 0
    for where, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in LEFT_OUT)
        for name in sorted([*folders, *(name for name in names if not name.startswith("."))]):
            path = Path(where, name)
            inside = path.relative_to(folder).as_posix()
            if len(inside) > MAX_PATH:
                raise SubmissionError(
                    f"{inside[:50]}... is a path of {len(inside)} characters; at most {MAX_PATH} are allowed"
                )
            if os.path.islink(path):  # noqa: PTH114 - no error if the folder may not be searched
                raise SubmissionError(f"{inside} is a symbolic link; submit the file itself")
            if name not in folders:
                files[inside] = read_file(path, inside)
                size += len(files[inside])
            count += 1
            if count > MAX_FILES or size > MAX_BYTES:
                raise SubmissionError(
                    f"more than {MAX_FILES} files or {MAX_BYTES >> 20} MB in a variant's folder; "
                    "submit variant.py, kernel.cu and what they include"
                )
    missing = [name for name in NEEDED if name not in files]
    if missing:
        raise SubmissionError(
            f"there is no {missing[0]}; a variant is a folder with variant.py and kernel.cu"
        )
    return files


def _refuse(error: OSError) -> NoReturn:
    """Raise an error for a folder of a variant that cannot be read."""
    raise SubmissionError(f"{Path(error.filename).name} cannot be read: {reason(error)}") from error


def read_file(path: Path, name: str) -> bytes:
    """Return the beginning of a file, one byte more than the limit.

    Raises
    ------
    SubmissionError
        It is a link or not a regular file, or cannot be read.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SubmissionError(f"{name} is not a regular file")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SubmissionError(f"{name} cannot be read: {reason(error)}") from error


def write(files: dict[str, bytes], folder: Path) -> None:
    """Write a private copy that processes of the submission may read."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
