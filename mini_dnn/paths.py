"""Where the project lies, and how files are written safely."""

from __future__ import annotations

import errno
import fcntl
import glob
import os
import shlex
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

PACKAGE = Path(__file__).resolve().parent  # mini_dnn
ROOT = PACKAGE.parent  # the checkout, with run.py and the variants' folders


ABANDONED_S = 60.0  # from then on, what nobody has locked is nobody's; it is locked as soon as it is made
KINDS = {  # of what is no regular file
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def program(*words: str) -> str:
    """The command line that a user can type from the current folder: ``python run.py check ...``."""
    return shlex.join(["python", os.path.relpath(ROOT / "run.py"), *words])


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
        raise OSError(errno.EFBIG, f"it has {found:,} bytes; the limit is {most_bytes:,}", str(path))
    return content


@contextmanager
def workplace(prefix: str) -> Iterator[Path]:
    """A folder for what is made meanwhile, in the system's place for such; locked, and removed at the end."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(handle)
            yield Path(name)
        finally:
            os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file, empty and locked, that takes another one's place at the end, and is removed if that fails.

    What killed processes left of such files is removed, too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent.glob(f"{glob.escape(path.name)}.*.tmp"))
    temporary = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    handle = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o666)
    try:
        _lock(handle)
        yield temporary
        temporary.replace(path)
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def remove_abandoned(paths: Iterable[Path]) -> None:
    """Remove files and folders of this user that nobody has locked any more: their makers were killed."""
    for path in paths:
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                found = os.fstat(handle)
                if found.st_uid != os.getuid() or time.time() - found.st_mtime < ABANDONED_S:
                    continue
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if stat.S_ISDIR(found.st_mode):
                    shutil.rmtree(path, ignore_errors=True)
                elif stat.S_ISREG(found.st_mode):
                    path.unlink()
            finally:
                os.close(handle)


def _lock(handle: int) -> None:
    """Where the file system has locks."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file so that other processes see all of it or none of it; the last writer wins.

    It is locked until it is complete: see `remove_abandoned`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            _lock(handle)
            file.write(data)
            os.fchmod(handle, mode)
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        if isinstance(error, OSError) and not error.filename:  # a full disk does not say whose
            error.filename = str(path)
        raise
