"""The project's folders, and functions that write files safely."""

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
HANDOUT = ROOT / "handout.json"  # only in a handout: what it contains and what was left out

ABANDONED_S = 60.0  # an unlocked file this old is abandoned, because makers lock their files at once
KINDS = {  # names of what is not a regular file
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}


def program(*words: str) -> str:
    """The command line that a user can type from the current folder: ``python run.py check ...``."""
    return shlex.join(["python", os.path.relpath(ROOT / "run.py"), *words])


def loaded_libraries(word: str) -> list[str]:
    """The files of this process's shared libraries with a word in their paths; empty if that is not known."""
    try:
        maps = os.fsdecode(Path("/proc/self/maps").read_bytes())
    except OSError:
        return []
    rows = (line.split(maxsplit=5) for line in maps.split("\n"))
    found = {row[5] for row in rows if len(row) == 6}  # a path may contain spaces
    return sorted(path for path in found if word in path and ".so" in Path(path).name)


def expanded(name: str) -> Path:
    """The path that a user typed. A ``~`` becomes the home folder, unless that is not known."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # no such user, or a container whose user has no home
        return Path(name)


def is_folder(path: Path) -> bool:
    """Whether a path is that of a folder. If the system refuses to say, it is not."""
    try:
        return path.is_dir()
    except OSError:  # the name is too long, or a folder above it may not be searched
        return False


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, without the wait that opening a pipe would cause.

    Raises
    ------
    OSError
        The file does not exist, cannot be read, or is not a regular file but a folder, a pipe or a device.
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
    """Return the content of a regular file, which may have at most ``most_bytes`` bytes.

    Raises
    ------
    OSError
        As in `open_regular`, and if the file is larger.
    """
    with open_regular(path) as file:
        found = os.fstat(file.fileno()).st_size
        content = file.read(most_bytes + 1) if found <= most_bytes else b""
    if max(found, len(content)) > most_bytes:
        raise OSError(errno.EFBIG, f"it has {found:,} bytes; the limit is {most_bytes:,}", str(path))
    return content


@contextmanager
def workplace(prefix: str) -> Iterator[Path]:
    """A temporary folder in the system's usual place. It is locked, and it is removed at the end."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            _lock(handle)
            yield Path(name)
        finally:
            os.close(handle)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A new file, empty and locked, that replaces ``path`` at the end. It is removed if that fails.

    Such files that killed processes have left behind are removed, too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_abandoned(path.parent.glob(f"{glob.escape(path.name)}.{'[0-9a-f]' * 32}.tmp"))
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
    """Remove files and folders of this user whose processes were killed, so that they are unlocked."""
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
    """Lock an open file or folder, if the file system supports locks."""
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file so that other processes see all of it or none of it; the last writer wins.

    The temporary file is locked until it has replaced the other one: see `remove_abandoned`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        _lock(handle)
        # Network file systems may report a full disk only when a file is closed; the lock lasts until all are
        with os.fdopen(os.dup(handle), "wb") as file:
            file.write(data)
            os.fchmod(handle, mode)
        Path(temporary).replace(path)
    except BaseException as error:
        Path(temporary).unlink(missing_ok=True)
        # The error for a full disk does not name the file
        if isinstance(error, OSError) and not error.filename:
            error.filename = str(path)
        raise
    finally:
        os.close(handle)
