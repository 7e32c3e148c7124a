"""Where the project lies, and how files are written safely."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

PACKAGE = Path(__file__).resolve().parent  # mini_dnn
ROOT = PACKAGE.parent  # the checkout, with run.py and the variants' folders


KINDS = {  # of what is no regular file
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; never wait, as opening a pipe would.

    Raises
    ------
    OSError
        There is none, it cannot be read, or it is something else: a folder, a pipe, a device.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = KINDS.get(stat.S_IFMT(mode), "something else")
    raise OSError(errno.EINVAL, f"expected a regular file, found {kind}", str(path))


def read_regular(path: Path, most_bytes: int) -> bytes:
    """The content of a regular file of at most so many bytes.

    Raises
    ------
    OSError
        See `open_regular`; or it is larger.
    """
    with open_regular(path) as file:
        found = os.fstat(file.fileno()).st_size
        content = file.read(most_bytes + 1) if found <= most_bytes else b""
    if max(found, len(content)) > most_bytes:
        raise OSError(errno.EFBIG, f"it has {found:,} bytes, and {most_bytes:,} are the most", str(path))
    return content


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that other processes see all of it or none of it; the last writer wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
