"""Linux's namespaces: users of one's own, and a root folder in which no file exists but those that are named.

Landlock keeps a process from reading other files, but ``stat`` and the error of ``open`` still tell whether a
file exists, and how large it is. Where it does not exist, there is nothing to tell.

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
NO_SETUID, NO_DEVICES, BIND, RECURSIVE, SLAVE = 2, 4, 0x1000, 0x4000, 0x80000  # of mount
PROCESSES = Path("/proc")  # whole, as /proc/self is another folder in each process
COVERED = "/dev"  # exists everywhere, and is not itself seen; the new root is put together over it


def enter(kinds: int) -> bool:
    """Continue in namespaces of these kinds and in one for users, where this user keeps its number.

    Returns
    -------
    Whether the system lets this process make them.

    Raises
    ------
    DeviceError
        They can be made but not used.
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
    """Continue with a root folder that holds only these files and folders, under the names that they have.

    Parameters
    ----------
    paths
        Absolute; those that do not exist are left out. Links on the way to them are kept.

    Returns
    -------
    Whether the system lets this process make a mount namespace.

    Raises
    ------
    OSError, DeviceError
        It does, and then refuses to mount something.
    """
    if ctypes.CDLL(None).unshare(NEW_MOUNTS) and not enter(NEW_MOUNTS):
        return False
    _mount("", "/", SLAVE | RECURSIVE)  # nobody else sees what follows
    links: dict[Path, str] = {}
    found = {PROCESSES if path.is_relative_to(PROCESSES) else path for path in paths if path.exists()}
    real = _outermost({_real(path, links) for path in found})
    opened = {path: os.open(path, os.O_PATH | os.O_CLOEXEC) for path in real}  # before they are covered
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
    os.chroot(COVERED)  # without capabilities, and with no folder open outside, there is no way back
    os.chdir("/")
    return True


def _mount(source: str, target: str, flags: int, kind: str = "") -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), None):
        raise OSError(ctypes.get_errno(), f"{target} cannot be mounted for a submission")


def _real(path: Path, links: dict[Path, str]) -> Path:
    """The path without links; notes those on the way, and what they say."""
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
    """Those that lie in no other, in order."""
    return sorted(path for path in paths if not any(other in path.parents for other in paths))


def _below(path: Path) -> Path:
    """Where it lies while the new root is put together."""
    return Path(COVERED) / path.relative_to("/")
