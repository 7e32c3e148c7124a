"""The cache of compiled kernels, and how files get there safely.

A file that cannot be used (damaged, unreadable, of another user) is created anew. A file that cannot be kept
(the disk is full) is used by this process only. In both cases, the logger warns once.
"""

from __future__ import annotations

import atexit
import hashlib
import logging
import os
import re
import tempfile
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cache
from pathlib import Path

from mini_dnn.errors import DeviceError, reason
from mini_dnn.paths import expanded, open_regular, remove_abandoned, workplace, write_atomically

CHECKSUM_BYTES = hashlib.sha256().digest_size
WORK = "mini_dnn-work-"  # prefix of the names of temporary folders
FOLDERS = ("cupy", "emulator", "emulator/header-*", "nvcc")  # of the cache
# Temporary files there: those of `write_atomically`, with a `key` or of a header, and second copies of loaded
# libraries
TEMPORARY = re.compile(r"\.(?:(?:.*[0-9a-f]{32}\.[a-z]+|.+\.h\.gch)\.[a-z0-9_]{8}|loaded-[a-z0-9_]{8}\.so)")
MAKING = threading.Lock()
_log = logging.getLogger(__name__)


def cache_dir() -> Path:
    """Return the folder for compiled kernels, creating it if necessary. It can be deleted at any time.

    It is ``MINI_DNN_CACHE`` if set, otherwise ``$XDG_CACHE_HOME/mini_dnn``, otherwise ``~/.cache/mini_dnn``.
    If that is not writable (a read-only home, or none), a private folder in the temporary directory is used
    instead.

    Raises
    ------
    DeviceError
        ``MINI_DNN_CACHE`` names a folder that is not writable, or no folder is writable.
    """
    asked = os.environ.get("MINI_DNN_CACHE")
    if asked:
        if not _usable(Path(asked)):
            raise DeviceError(
                f"MINI_DNN_CACHE is {asked!r}, but files cannot be written there; name a folder of your own, "
                "or unset it to use ~/.cache/mini_dnn"
            )
        return Path(asked).resolve()
    home = expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "mini_dnn"
    if home.is_absolute() and _usable(home):
        return home
    private = Path(tempfile.gettempdir()) / f"mini_dnn-{os.getuid()}"
    if _usable(private) and private.stat().st_uid == os.getuid():  # its files are loaded as code
        return private
    raise DeviceError(
        f"neither {home} nor {private} is writable, so compiled kernels cannot be stored; "
        "set MINI_DNN_CACHE to a folder that you own"
    )


def _usable(folder: Path) -> bool:
    """Whether the folder exists or can be created, and is writable."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def kept(path: Path, make: Callable[[], bytes]) -> Path:
    """Return the path of a cached file, which ``make`` creates if it is missing or unusable.

    Loaders ignore the checksum at the end of a library.

    Raises
    ------
    DeviceError
        There is no place where it can be written.
    """
    if stored(path) is not None:
        return path
    if _spare.cache_info().currsize and stored(_spare() / path.name) is not None:
        return _spare() / path.name
    data = make()
    if store(path, data):
        return path
    try:
        with MAKING:  # `functools.cache` may call a function once per thread
            folder = _spare()
        write_atomically(folder / path.name, _sealed(data))
    except OSError as error:
        raise DeviceError(
            f"neither {path} nor the folder for temporary files, {tempfile.gettempdir()}, is usable for "
            f"compiled kernels ({reason(error)}); free some space there, or set MINI_DNN_CACHE and "
            f"TMPDIR to other folders"
        ) from error
    return folder / path.name


def store(path: Path, data: bytes) -> bool:
    """Write a file of the cache, with a checksum at its end. Return whether that was possible."""
    root = cache_dir()
    try:
        # Only our own files: MINI_DNN_CACHE may name a folder in which the user has other hidden files
        hidden = (file for folder in FOLDERS for file in root.glob(f"{folder}/.*"))
        remove_abandoned(file for file in hidden if TEMPORARY.fullmatch(file.name) and file.is_file())
        remove_abandoned(Path(tempfile.gettempdir()).glob(f"{WORK}*"))
        write_atomically(path, _sealed(data), 0o644)  # other users may share the folder
    except OSError as error:
        say(f"{path.parent} cannot store the compiled kernel ({reason(error)}), so it is not kept")
        return False
    return True


def stored(path: Path) -> bytes | None:
    """Return the content of a cached file, or None if it is missing or unusable and must be created."""
    try:
        with open_regular(path) as file:
            owner, content = os.fstat(file.fileno()).st_uid, file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return say(f"{path} cannot be read ({reason(error)}), so it is compiled again")
    if owner not in _trusted():
        return say(f"{path} belongs to another user, so it is not used and the kernel is compiled again")
    data = content[:-CHECKSUM_BYTES]
    if hashlib.sha256(data).digest() != content[-CHECKSUM_BYTES:]:
        return say(f"{path} is damaged, so it is compiled again")
    return data


def is_trusted(path: Path) -> bool:
    """Whether a file or folder of the cache exists and may be used. For files, see also `stored`."""
    try:
        owner = path.stat().st_uid
    except OSError:
        return False
    return owner in _trusted() or bool(say(f"{path} belongs to another user, so it is not used"))


def work() -> AbstractContextManager[Path]:
    """A folder for compilation, which is removed eventually, however this process ends."""
    return workplace(WORK)


def _sealed(data: bytes) -> bytes:
    return data + hashlib.sha256(data).digest()


def _trusted() -> set[int]:
    """The users whose files may be loaded as code: this one, root, and the owner of a named folder."""
    found = {os.getuid(), 0}
    if named := os.environ.get("MINI_DNN_CACHE"):
        with suppress(OSError):
            found.add(Path(named).stat().st_uid)
    return found


@cache
def _spare() -> Path:
    """A folder of this process for files that the cache cannot hold."""
    folder, maker = work(), os.getpid()
    atexit.register(lambda: folder.__exit__(None, None, None) if os.getpid() == maker else None)
    return folder.__enter__()


@cache
def say(what: str) -> None:
    """Warn once that the cache cannot be used, and what to do."""
    todo = "Free some space, remove the file, or set MINI_DNN_CACHE to another folder"
    _log.warning("the cache of compiled kernels: %s. %s", what, todo)


def may_compile(source: Path) -> None:
    """Raise an error if a kernel would have to be compiled while ``MINI_DNN_CACHE_ONLY`` is set.

    Raises
    ------
    DeviceError
        The variable is set: this process only loads what another one has compiled.
    """
    if os.environ.get("MINI_DNN_CACHE_ONLY"):
        raise DeviceError(
            f"{source} is not in the cache of compiled kernels, and MINI_DNN_CACHE_ONLY is set, so it is not "
            "compiled; a file that it includes may have changed since it was. Unset that to compile it here"
        )


def key(*parts: str | bytes | float | Path) -> str:
    """Return a short name (32 hexadecimal digits) for everything that a cached file depends on."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        # The length distinguishes ("ab", "c") from ("a", "bc")
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()[:32]
