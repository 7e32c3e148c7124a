"""Which system calls a confined process may make: a seccomp filter for x86-64 and AArch64.

The filter allows all calls that it does not name. The numbers are from Linux's ``unistd.h`` of both machines.

References
----------
Linux, Documentation/userspace-api/seccomp_filter.rst; linux/filter.h for the classic BPF instructions.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable

# name: (x86-64, AArch64); None if the machine has no such call
CALLS: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198),
    "socketpair": (53, 199),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "kill": (62, 129),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "setsid": (112, 157),
    "setpgid": (109, 154),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "inotify_init": (253, None),  # a user, or the machine, has only a few of these for all programs
    "inotify_init1": (294, 26),
    "fanotify_init": (300, 262),
    "mincore": (27, 232),  # processes can pass information by what is in memory, and by locks
    "cachestat": (451, 451),
    "preadv2": (327, 286),
    "io_setup": (206, 0),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "io_uring_setup": (425, 425),
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "fsopen": (430, 430),
    "move_mount": (429, 429),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "truncate": (76, 45),
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "setpriority": (141, 140),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
    "ioprio_set": (251, 30),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
}
CHMOD: dict[str, tuple[int | None, int | None]] = {  # a linker needs these for its output
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
}
PROGRAMS: dict[str, tuple[int | None, int | None]] = {  # a compiler driver starts programs
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
}
CLONE, CLONE3, TGKILL, PRLIMIT = (56, 220), (435, 435), (234, 131), (302, 261)
PRCTL, FCNTL = (157, 167), (72, 25)
SET_DEATH_SIGNAL = 1  # of prctl: with it, a process could outlive its parent
# of fcntl: a pipe that signals another process, a file that makes others wait when they open it
SET_OWNER, SET_SIGNAL, SET_OWNER_EXTENDED, SET_LEASE, NOTIFY = 8, 10, 15, 1024, 1026
LOCKS = (5, 6, 7, 36, 37, 38)  # of fcntl: ask for, set and wait for locks of a process or of an open file
# These reveal the state of the machine: its memory, load and disks
TELLING: dict[str, tuple[int | None, int | None]] = {
    "sysinfo": (99, 179),
    "statfs": (137, 43),
    "fstatfs": (138, 44),
}
LOCK = (73, 32)  # flock: where possible, files that are written are locked
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # the column above, AUDIT_ARCH_*
X32 = 0x40000000  # numbers of x86-64's third set of calls start here
CLONE_THREAD = 0x00010000

LOAD, EQUAL, GREATER_EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF
NUMBER, ARCH, ARGUMENT, SECOND_ARGUMENT = 0, 4, 16, 24  # offsets in struct seccomp_data
ALLOW, KILL, DENY = 0x7FFF0000, 0x80000000, 0x00050000
SET_NO_NEW_PRIVS, SET_SECCOMP, FILTER = 38, 22, 2


class CFilter(ctypes.Structure):
    """``struct sock_fprog``."""

    _fields_ = [("count", ctypes.c_ushort), ("instructions", ctypes.c_char_p)]


def supported() -> bool:
    """Whether this machine's calls are known and its kernel supports filters."""
    return platform.machine() in MACHINES and os.path.exists("/proc/sys/kernel/seccomp/actions_avail")  # noqa: PTH110


def confine(programs: bool) -> None:
    """Forbid all system calls that neither a plan nor a kernel needs, for this process and its children.

    A forbidden call ends the process with SIGSYS, so that its status shows the reason. Calls that libraries
    try but do not need fail with EPERM or ENOSYS.

    Parameters
    ----------
    programs
        Whether the process may start other programs, as a compiler does.

    Raises
    ------
    OSError
        The kernel refuses the filter.
    """
    code = program(programs, os.getpid())
    libc = ctypes.CDLL(None, use_errno=True)
    filter_ = CFilter(len(code) // 8, code)
    for words in ((SET_NO_NEW_PRIVS, 1, 0, 0, 0), (SET_SECCOMP, FILTER, ctypes.byref(filter_), 0, 0)):
        if libc.prctl(*words):
            raise OSError(ctypes.get_errno(), "the kernel refuses the seccomp filter")


def program(programs: bool, pid: int) -> bytes:
    """Return the filter, eight bytes per instruction, for the process with this id."""
    column, arch = MACHINES[platform.machine()]
    code = [_op(LOAD, ARCH), _op(EQUAL, arch, 1, 0), _op(RETURN, KILL), _op(LOAD, NUMBER)]
    if column == 0:
        code += [_op(GREATER_EQUAL, X32, 0, 1), _op(RETURN, KILL)]
    calls = CALLS if programs else CALLS | CHMOD | PROGRAMS
    code += _each((numbers[column] for numbers in calls.values()), KILL)
    code += _with(PRCTL[column], ARGUMENT, [SET_DEATH_SIGNAL])
    code += _with(
        FCNTL[column], SECOND_ARGUMENT, [SET_OWNER, SET_SIGNAL, SET_OWNER_EXTENDED, SET_LEASE, NOTIFY, *LOCKS]
    )
    soft = DENY | errno.EPERM
    code += _each([LOCK[column]], soft)
    # signals within the process (abort, raise) are allowed, and so are changes of its own limits
    code += [_op(EQUAL, TGKILL[column], 0, 3), _op(LOAD, ARGUMENT), _op(EQUAL, pid, 1, 0), _op(RETURN, soft)]
    code += [_op(LOAD, NUMBER)]
    code += [_op(EQUAL, PRLIMIT[column], 0, 3), _op(LOAD, ARGUMENT), _op(EQUAL, 0, 1, 0), _op(RETURN, soft)]
    code += [_op(LOAD, NUMBER)]
    if not programs:
        code += _each((numbers[column] for numbers in TELLING.values()), soft)
    # Threads are allowed, processes are not; glibc falls back from clone3, whose flags are in memory
    if not programs:
        code += _each([CLONE3[column]], DENY | errno.ENOSYS)
        code += [_op(EQUAL, CLONE[column], 0, 3), _op(LOAD, ARGUMENT), _op(ANY_BIT, CLONE_THREAD, 1, 0)]
        code += [_op(RETURN, KILL)]
    return b"".join([*code, _op(RETURN, ALLOW)])


def _each(numbers: Iterable[int | None], action: int) -> list[bytes]:
    return [op for n in numbers if n is not None for op in (_op(EQUAL, n, 0, 1), _op(RETURN, action))]


def _with(number: int, argument: int, values: Iterable[int]) -> list[bytes]:
    """End the process at a call whose argument has one of these values."""
    look = [_op(LOAD, argument), *_each(values, KILL)]
    return [_op(EQUAL, number, 0, len(look)), *look, _op(LOAD, NUMBER)]


def _op(code: int, value: int, when_true: int = 0, when_false: int = 0) -> bytes:
    """Encode one ``struct sock_filter``."""
    return struct.pack("=HBBI", code, when_true, when_false, value)
