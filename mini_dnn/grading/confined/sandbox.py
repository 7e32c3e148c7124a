"""Confinement of a process that runs what a submission wrote: files, system calls, memory, time.

It needs no privilege: Landlock for files (Linux 5.13 or newer), seccomp for everything else that a process
could reach (network, signals, other processes, new programs), resource limits, no capabilities. Where the
system lets users make namespaces, processes, network and shared memory are apart as well, and no other files
exist.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import signal
import sys
import sysconfig
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.errors import DeviceError
from mini_dnn.grading.confined import landlock, namespaces, seccomp
from mini_dnn.paths import PACKAGE

SYSTEM = ("/usr", "/lib", "/lib32", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/alternatives")
STATE = ("/proc/cpuinfo", "/proc/self", "/sys/devices/system/cpu")  # nothing that neighbours change
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
PACKAGE_RECORDS = ("*.dist-info", "*.egg-info")  # installers leave one beside each package
SEARCHED = ("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH")  # where a cluster's modules keep their libraries
FILES_SHOW = "NO mount namespaces: a submission that guesses a path sees whether a file exists, and its size"
MAX_OPEN_FILES = 64
MAX_TASKS = 1024  # processes and threads of a fork server's children: one a core, and those of compilers
SET_DEATH_SIGNAL, DROP_BOUND = 1, 24  # prctl
CAPABILITY_VERSION = 0x20080522
NEW_PROCESSES, NEW_NETWORK, NEW_IPC = 0x20000000, 0x40000000, 0x08000000


@dataclass(frozen=True)
class Policy:
    """What one process may do.

    Parameters
    ----------
    readable, writable
        Files and folders beside those that Python and the compilers need.
    memory_bytes, cpu_seconds, file_bytes
        Most address space, processor time, and size of one file.
    programs
        Whether it may start programs (compilers).
    trusted
        It runs our own code alone (a GPU's kernels are not on this processor): nothing is applied.
    own_root
        No other files exist for it; see `can_hide_files`.
    """

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    memory_bytes: int = 4 << 30
    cpu_seconds: int = 600
    file_bytes: int = 0
    programs: bool = False
    trusted: bool = False
    own_root: bool = False

    def as_dict(self) -> dict[str, Any]:
        """For a message."""
        return asdict(self)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Policy:
        """From a message."""
        paths = {key: tuple(values[key]) for key in ("readable", "writable")}
        return cls(**(values | paths))


@dataclass(frozen=True)
class Isolation:
    """What this system offers."""

    landlock: int = field(default_factory=lambda: landlock.version())
    seccomp: bool = field(default_factory=lambda: seccomp.supported())

    @property
    def full(self) -> bool:
        """Whether submissions can be kept from everything that is not theirs."""
        return self.landlock > 0 and self.seccomp

    def __str__(self) -> str:
        """For people: what there is, and what is missing."""
        files = f"Landlock {self.landlock}" if self.landlock else "NO Landlock (Linux 5.13 or newer has it)"
        calls = "seccomp" if self.seccomp else "NO seccomp (x86-64 and AArch64 have it)"
        return f"{files}, {calls}, resource limits"


def code_folders() -> list[Path]:
    """Folders of Python, the compilers and mini_dnn, and the compilers, that confined processes read.

    Of mini_dnn itself, not the grading package: rubrics lie there.
    """
    python = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    found = [find_nvcc(), shutil.which(os.environ.get("CXX", "g++")), shutil.which("readelf")]
    programs = [Path(program).absolute() for program in found if program]  # by the names that are called, too
    compilers = [*programs, *(program.resolve().parents[1] for program in programs)]
    compilers += [Path(p) for name in SEARCHED for p in os.environ.get(name, "").split(":") if p[:1] == "/"]
    own = [path for path in PACKAGE.iterdir() if path.name not in ("grading", "__pycache__")]
    folders = [Path(name) for name in (*SYSTEM, *python)] + compilers + own
    return [folder for folder in folders if folder.exists()] + package_folders()


def package_folders() -> list[Path]:
    """Folders of installed packages where this process looks for modules, such as those of ``PYTHONPATH``.

    Only where an installer has left its records: anybody's files may lie in another folder. And none that
    holds mini_dnn, as rubrics lie there.
    """
    folders = [Path(entry) for entry in sys.path if Path(entry).is_absolute()]
    return [
        folder
        for folder in folders
        if not PACKAGE.is_relative_to(folder.resolve())
        and any(True for records in PACKAGE_RECORDS for _ in folder.glob(records))
    ]


def search_path() -> list[str]:
    """Where confined processes look for modules: where this one does, in its order, if they can read it."""
    readable = code_folders()
    return [entry for entry in sys.path if any(Path(entry).is_relative_to(folder) for folder in readable)]


def die_with_parent() -> None:
    """Let the kernel end this process when the one that started it ends, however that happens."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def enter_namespaces() -> bool:
    """Give this process's children processes, network and shared memory of their own, if that is allowed."""
    if not namespaces.enter(NEW_PROCESSES | NEW_NETWORK | NEW_IPC):
        return False
    _limit(resource.RLIMIT_NPROC, MAX_TASKS)  # elsewhere it would count all that this user runs
    return True


def can_hide_files() -> bool:
    """Whether a process can get a root folder of its own; tried in a child, while there is one thread."""
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(OSError, DeviceError):
            status = 0 if namespaces.see_only(map(Path, SYSTEM)) else 1
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def confine(policy: Policy) -> None:
    """Confine this process, and all that it starts, for good, by what the system offers.

    Raises
    ------
    OSError, DeviceError
        The kernel refuses.
    """
    if policy.trusted:
        return
    readable = [*code_folders(), *map(Path, (*STATE, *policy.readable))]
    writable = [Path(path) for path in (*DEVICES, *policy.writable)]
    if policy.own_root and not namespaces.see_only([*readable, *writable]):
        raise OSError(errno.EPERM, "a mount namespace could be made before, and now it cannot")
    _limit(resource.RLIMIT_AS, policy.memory_bytes)
    _limit(resource.RLIMIT_CPU, policy.cpu_seconds)
    _limit(resource.RLIMIT_FSIZE, policy.file_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, MAX_OPEN_FILES)
    isolation = Isolation()
    if isolation.landlock:
        landlock.confine(readable, writable)
    _drop_capabilities()
    if isolation.seccomp:
        seccomp.confine(policy.programs)


def _limit(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def _drop_capabilities() -> None:
    """Give up what root may do beyond others; harmless for others."""
    libc = ctypes.CDLL(None, use_errno=True)
    capability = 0
    while libc.prctl(DROP_BOUND, capability, 0, 0, 0) == 0:
        capability += 1
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")
