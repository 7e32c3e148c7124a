"""Where compiled kernels are kept, and how files get there safely."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from mini_dnn.errors import DeviceError
from mini_dnn.paths import write_atomically

CHECKSUM_BYTES = hashlib.sha256().digest_size


def cache_dir() -> Path:
    """The folder for compiled kernels, created if need be; safe to delete at any time.

    ``MINI_DNN_CACHE`` if set, else ``$XDG_CACHE_HOME/mini_dnn``, else ``~/.cache/mini_dnn``. Where that
    cannot be written (a read-only home), a folder of this user's in the temporary directory serves instead.

    Raises
    ------
    DeviceError
        ``MINI_DNN_CACHE`` names a folder that cannot be written, or no folder can.
    """
    asked = os.environ.get("MINI_DNN_CACHE")
    if asked:
        if not _usable(Path(asked)):
            raise DeviceError(
                f"MINI_DNN_CACHE is {asked!r}, and files cannot be written there; name a folder of your own, "
                "or unset it to use ~/.cache/mini_dnn"
            )
        return Path(asked).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    home = Path(base, "mini_dnn")
    if _usable(home):
        return home
    private = Path(tempfile.gettempdir()) / f"mini_dnn-{os.getuid()}"
    if _usable(private) and private.stat().st_uid == os.getuid():  # what lies there is loaded as code
        return private
    raise DeviceError(
        f"neither {home} nor {private} can be written, so compiled kernels have no place; "
        "set MINI_DNN_CACHE to a folder that you own"
    )


def _usable(folder: Path) -> bool:
    """Whether the folder exists, or can be made, and takes files."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK | os.X_OK)


def store(path: Path, data: bytes) -> None:
    """Write a file of the cache, with a checksum behind its content."""
    write_atomically(path, data + hashlib.sha256(data).digest())


def stored(path: Path) -> bytes | None:
    """The content of a file of the cache; None if it is not there, or damaged: then it is to be made anew."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    data, checksum = content[:-CHECKSUM_BYTES], content[-CHECKSUM_BYTES:]
    return data if hashlib.sha256(data).digest() == checksum else None


def may_compile(source: Path) -> None:
    """Refuse to compile a kernel file that is not in the cache, where ``MINI_DNN_CACHE_ONLY`` is set.

    Raises
    ------
    DeviceError
        It is set: this process only loads what another one has compiled.
    """
    if os.environ.get("MINI_DNN_CACHE_ONLY"):
        raise DeviceError(
            f"{source} is not in the cache of compiled kernels, and MINI_DNN_CACHE_ONLY is set, so it is not "
            "compiled; a file that it includes may have changed since it was. Unset that to compile it here"
        )


def key(*parts: str | bytes | float | Path) -> str:
    """One short name (32 hexadecimal digits) for everything that a cached file depends on."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode()
        digest.update(
            len(data).to_bytes(8, "little") + data
        )  # the length keeps ("ab", "c") and ("a", "bc") apart
    return digest.hexdigest()[:32]
