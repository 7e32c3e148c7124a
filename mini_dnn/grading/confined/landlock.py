"""Which files a confined process may access: Linux's Landlock, which needs no privileges.

References
----------
Linux, Documentation/userspace-api/landlock.rst; include/uapi/linux/landlock.h.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # system call numbers, the same on all machines
VERSION = 1
PATH_BENEATH = 1
SET_NO_NEW_PRIVS = 38

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
REFER, TRUNCATE, IOCTL_DEVICE = 1 << 13, 1 << 14, 1 << 15
# Pairs of a version of Landlock and the rights that it introduced.
RIGHTS = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEVICE))
READ = EXECUTE | READ_FILE | READ_DIR
OF_FILES = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEVICE
NETWORK = (4, 0b11)  # binding and connecting TCP
SCOPED = (6, 0b11)  # abstract sockets and signals to processes outside


class CRuleset(ctypes.Structure):
    """``struct landlock_ruleset_attr``."""

    _fields_ = [("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class CPath(ctypes.Structure):
    """``struct landlock_path_beneath_attr``."""

    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32)]


def version() -> int:
    """Return the version of the kernel's Landlock interface, or 0 if it has none."""
    return max(0, int(ctypes.CDLL(None).syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION)))


def confine(readable: Iterable[Path], writable: Iterable[Path]) -> None:
    """Limit this process, and all processes that it starts, to these files and folders from now on.

    Parameters
    ----------
    readable
        Files and folders that may be read, and programs that may be run. Paths that do not exist are ignored.
    writable
        Folders, and files such as ``/dev/null``, that may also be written.

    Raises
    ------
    OSError
        The kernel has no Landlock or refuses a rule.
    """
    libc, known = ctypes.CDLL(None, use_errno=True), version()
    all_rights = sum(bits for since, bits in RIGHTS if since <= known)
    ruleset = CRuleset(all_rights, NETWORK[1] * (known >= NETWORK[0]), SCOPED[1] * (known >= SCOPED[0]))
    size = 8 if known < NETWORK[0] else 16 if known < SCOPED[0] else 24
    handle = _checked(libc, libc.syscall(CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(size), 0))
    for paths, rights in ((readable, READ), (writable, all_rights)):
        for path in paths:
            if path.exists():
                _allow(libc, handle, path, rights & all_rights)
    _checked(libc, libc.prctl(SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(libc, libc.syscall(RESTRICT_SELF, handle, 0))
    os.close(handle)


def _allow(libc: ctypes.CDLL, handle: int, path: Path, rights: int) -> None:
    opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rule = CPath(rights if path.is_dir() else rights & OF_FILES, opened)
        _checked(libc, libc.syscall(ADD_RULE, handle, PATH_BENEATH, ctypes.byref(rule), 0))
    finally:
        os.close(opened)


def _checked(libc: ctypes.CDLL, result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), "the kernel refuses a Landlock rule")
    return result
