"""Confine a process that runs the code of a submission: files, system calls, memory, time.

No privileges are needed. Landlock limits files (Linux 5.13 or newer). A seccomp filter limits everything else
that a process could reach: network, signals, other processes, new programs. There are resource limits, and
all capabilities are dropped. If the system lets users create namespaces, processes, network and shared memory
are separate as well, and no other files exist.
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
STATE = ("/proc/cpuinfo", "/proc/self", "/sys/devices/system/cpu")  # nothing that other processes change
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
PACKAGE_RECORDS = ("*.dist-info", "*.egg-info")  # installers leave one of these next to each package
SEARCHED = ("LD_LIBRARY_PATH", "LIBRARY_PATH", "CPATH")  # a cluster's modules put their libraries there
FILES_SHOW = "NO mount namespaces: a submission that guesses a path sees whether a file exists, and its size"
MAX_OPEN_FILES = 64
MAX_TASKS = 1024  # processes and threads of one fork server: one per core, and those of compilers
SET_DEATH_SIGNAL, DROP_BOUND = 1, 24  # prctl
CAPABILITY_VERSION = 0x20080522
NEW_PROCESSES, NEW_NETWORK, NEW_IPC = 0x20000000, 0x40000000, 0x08000000


@dataclass(frozen=True)
class Policy:
    """What a process may do.

    Parameters
    ----------
    readable, writable
        Files and folders in addition to those that Python and the compilers need.
    memory_bytes, cpu_seconds, file_bytes
        The largest address space, processor time, and size of one file.
    programs
        Whether it may start programs (compilers).
    trusted
        The process runs only our own code (the kernels run on a GPU). Nothing is applied.
    own_root
        Whether no other files exist for it; see `can_hide_files`.
    apart
        Whether it is in namespaces, where the number of its processes and threads can be limited.
    """

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    memory_bytes: int = 4 << 30
    cpu_seconds: int = 600
    file_bytes: int = 0
    programs: bool = False
    trusted: bool = False
    own_root: bool = False
    apart: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The policy as plain values, for a message."""
        return asdict(self)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Policy:
        """Create a policy from the values in a message."""
        paths = {key: tuple(values[key]) for key in ("readable", "writable")}
        return cls(**(values | paths))


@dataclass(frozen=True)
class Isolation:
    """The means of isolation that this system offers."""

    landlock: int = field(default_factory=lambda: landlock.version())
    seccomp: bool = field(default_factory=lambda: seccomp.supported())

    @property
    def full(self) -> bool:
        """Whether submissions can be kept from everything that does not belong to them."""
        return self.landlock > 0 and self.seccomp

    def __str__(self) -> str:
        """Describe what is available, and what is missing."""
        files = f"Landlock {self.landlock}" if self.landlock else "NO Landlock (Linux 5.13 or newer has it)"
        calls = "seccomp" if self.seccomp else "NO seccomp (x86-64 and AArch64 have it)"
        return f"{files}, {calls}, resource limits"


def code_folders() -> list[Path]:
    """Return the folders of Python, compilers and mini_dnn that confined processes may read.

    The grading package is left out, because rubrics are there.
    """
    python = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
    found = [find_nvcc(), shutil.which(os.environ.get("CXX", "g++")), shutil.which("readelf")]
    # The programs are also needed under the names by which they are called.
    programs = [Path(program).absolute() for program in found if program]
    compilers = [*programs, *(program.resolve().parents[1] for program in programs)]
    compilers += [Path(p) for name in SEARCHED for p in os.environ.get(name, "").split(":") if p[:1] == "/"]
    own = [path for path in PACKAGE.iterdir() if path.name not in ("grading", "__pycache__")]
    folders = [Path(name) for name in (*SYSTEM, *python)] + compilers + own
    return [folder for folder in folders if folder.exists()] + package_folders()


def package_folders() -> list[Path]:
    """Return the package folders in which this process looks for modules, such as those of ``PYTHONPATH``.

    A folder counts only if it has the records of an installer, because other folders may hold private files.
    Folders that contain mini_dnn are left out, because rubrics are there.
    """
    folders = [Path(entry) for entry in sys.path if Path(entry).is_absolute()]
    return [
        folder
        for folder in folders
        if not PACKAGE.is_relative_to(folder.resolve())
        and any(True for records in PACKAGE_RECORDS for _ in folder.glob(records))
    ]


def search_path() -> list[str]:
    """Return this process's search path for modules, limited to what confined processes can read."""
    readable = code_folders()
    return [entry for entry in sys.path if any(Path(entry).is_relative_to(folder) for folder in readable)]


def die_with_parent() -> None:
    """Let the kernel end this process when its parent ends, for whatever reason."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)


def enter_namespaces() -> bool:
    """Put the children of this process into separate namespaces (processes, network, shared memory).

    Return whether the system allowed it.
    """
    return namespaces.enter(NEW_PROCESSES | NEW_NETWORK | NEW_IPC)


def can_hide_files() -> bool:
    """Whether a process can get a root folder of its own.

    A child tries it, while there is only one thread.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        with contextlib.suppress(OSError, DeviceError):
            status = 0 if namespaces.see_only(map(Path, SYSTEM)) else 1
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def confine(policy: Policy) -> None:
    """Confine this process, and all that it starts, permanently, with the means that the system offers.

    Raises
    ------
    OSError, DeviceError
        The kernel refuses a part of it.
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
    if policy.apart:  # outside a namespace, all processes of this user would count
        _limit(resource.RLIMIT_NPROC, MAX_TASKS)  # not for the fork server, which must be able to go on
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
    """Give up the capabilities of root. For other users, this does nothing."""
    libc = ctypes.CDLL(None, use_errno=True)
    capability = 0
    while libc.prctl(DROP_BOUND, capability, 0, 0, 0) == 0:
        capability += 1
    header, none = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    if libc.capset(header, none):
        raise OSError(ctypes.get_errno(), "capabilities cannot be dropped")
