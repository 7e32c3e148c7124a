"""Linux's namespaces: separate users, and a root folder that contains only the named files.

Landlock prevents a process from reading other files. However, ``stat`` and the error of ``open`` still reveal
whether a file exists, and how large it is. In a separate root folder, these files do not exist.

References
----------
Linux, man pages user_namespaces(7), mount_namespaces(7), mount(2).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

from mini_dnn.errors import DeviceError

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
NO_SETUID, NO_DEVICES, BIND, RECURSIVE, SLAVE = 2, 4, 0x1000, 0x4000, 0x80000  # flags of mount
PROCESSES = Path("/proc")  # all of it, because /proc/self is a different folder in each process
COVERED = "/dev"  # it exists everywhere and is not itself visible; the new root is built on top of it


def enter(kinds: int) -> bool:
    """Continue in new namespaces of these kinds, and in a user namespace that keeps this user's id.

    Returns
    -------
    Whether the system lets this process create them.

    Raises
    ------
    DeviceError
        They can be created but not used.
    """
    user, group = os.getuid(), os.getgid()
    if ctypes.CDLL(None).unshare(NEW_USER | kinds):
        return False
    try:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError as error:
        raise DeviceError(f"a user namespace can be made but not used: {error}") from error
    return True


def see_only(paths: Iterable[Path]) -> bool:
    """Continue with a root folder that contains only these files and folders, under their present names.

    Parameters
    ----------
    paths
        Absolute paths. Those that do not exist are ignored. Symbolic links on the way to them are kept.

    Returns
    -------
    Whether the system lets this process create a mount namespace.

    Raises
    ------
    OSError, DeviceError
        The namespace was created, but something could not be mounted.
    """
    if ctypes.CDLL(None).unshare(NEW_MOUNTS) and not enter(NEW_MOUNTS):
        return False
    _mount("", "/", SLAVE | RECURSIVE)  # changes from here on are invisible outside
    links: dict[Path, str] = {}
    found = {PROCESSES if path.is_relative_to(PROCESSES) else path for path in paths if path.exists()}
    real = _outermost({_real(path, links) for path in found})
    # Open them before they are covered
    opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in real}
    folders = {path for path in real if path.is_dir()}
    _mount("tmpfs", COVERED, NO_SETUID | NO_DEVICES, "tmpfs")
    for path, file in opened.items():
        target = _below(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.mkdir() if path in folders else target.touch()
        _mount(f"/proc/self/fd/{file}", str(target), BIND | RECURSIVE)
        os.close(file)
    for link, to in links.items():
        if not any(link.is_relative_to(path) for path in real):
            _below(link).parent.mkdir(parents=True, exist_ok=True)
            _below(link).symlink_to(to)
    os.chroot(COVERED)  # without capabilities and without an open folder outside, there is no way back
    os.chdir("/")
    return True


def _mount(source: str, target: str, flags: int, kind: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), f"{target} cannot be mounted for a submission")


def _real(path: Path, links: dict[Path, str]) -> Path:
    """Resolve a path. Note the symbolic links on the way, and their targets."""
    walked = Path("/")
    for part in path.parts[1:]:
        if part == "..":
            walked = walked.parent
            continue
        walked /= part
        if walked.is_symlink():
            links[walked] = os.readlink(walked)  # noqa: PTH115
            walked = _real(walked.parent / links[walked], links)
    return walked


def _outermost(paths: set[Path]) -> list[Path]:
    """Return the paths that are not inside another one, in order."""
    return sorted(path for path in paths if not any(other in path.parents for other in paths))


def _below(path: Path) -> Path:
    """The place of a path while the new root is built."""
    return Path(COVERED) / path.relative_to("/")
