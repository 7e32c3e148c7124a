"""The sandbox: what a confined process can access, and how much it may use."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from grading_helpers import DENIED, GOOD, PATIENCE_S, ROOM, ending

from mini_dnn.device.host_memory import available_bytes
from mini_dnn.grading.confined import sandbox, seccomp
from mini_dnn.grading.confined.sandbox import Isolation, Policy

NOBODY, SET_DUMPABLE, SKIPPED = 65534, 4, 5
NOT_PERMITTED = 1  # EPERM
REMOVE = 0  # IPC_RMID
OPEN_FILE_LOCK = 37  # F_OFD_SETLK
SET_SIGNAL = 10  # F_SETSIG, which Python has from version 3.13 on

pytestmark = pytest.mark.skipif(not Isolation().full, reason=f"no isolation here: {Isolation()}")


def test_files(tmp_path: Path) -> None:
    mine, private, secret = tmp_path / "mine", tmp_path / "private", tmp_path / "secret"
    for folder in (mine, private, secret):
        folder.mkdir()
        (folder / "file").write_text("x")
    policy = Policy((str(mine),), (str(private),), file_bytes=1 << 20, memory_bytes=ROOM)
    assert ending((mine / "file").read_text, policy) == GOOD
    assert ending(lambda: (mine / "file").write_text("y"), policy) == DENIED
    assert ending(lambda: (private / "new").write_text("y"), policy) == GOOD
    assert ending((secret / "file").read_text, policy) == DENIED
    assert ending(lambda: os.listdir(secret), policy) == DENIED  # noqa: PTH208
    assert ending(lambda: (secret / "new").write_text("y"), policy) == DENIED
    assert ending((secret / "file").unlink, policy) == DENIED
    assert ending(lambda: os.rename(secret / "file", private / "stolen"), policy) != GOOD  # noqa: PTH104
    assert ending(lambda: os.link(secret / "file", private / "stolen"), policy) != GOOD
    assert ending((sandbox.PACKAGE / "grading/rubrics/small.toml").read_text, policy) == DENIED
    assert ending((sandbox.PACKAGE / "errors.py").read_text, policy) == GOOD
    assert ending(Path(f"/proc/{os.getpid()}/environ").read_bytes, policy) == DENIED
    (private / "link").symlink_to(secret / "file")
    assert ending((private / "link").read_text, policy) == DENIED


@pytest.mark.parametrize(
    "act",
    [
        os.fork,
        lambda: os.execv("/bin/true", ["true"]),
        lambda: os.kill(os.getppid(), signal.SIGTERM),
        lambda: __import__("socket").socket(),
        os.setsid,
        lambda: os.setpgid(0, 0),
        lambda: os.memfd_create("more"),
        lambda: os.chmod("/tmp/nothing", 0o777),  # noqa: PTH101
        lambda: os.truncate("/tmp/nothing", 0),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
        lambda: fcntl.fcntl(0, fcntl.F_SETLEASE, fcntl.F_WRLCK),
        lambda: fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid()),
        lambda: fcntl.fcntl(0, SET_SIGNAL, signal.SIGKILL),
        lambda: ctypes.CDLL(None).shmctl(0, REMOVE, None),
        lambda: ctypes.CDLL(None).inotify_init1(0),
        lambda: fcntl.lockf(0, fcntl.LOCK_SH | fcntl.LOCK_NB),
        lambda: fcntl.fcntl(0, OPEN_FILE_LOCK, bytes(32)),
        lambda: ctypes.CDLL(None).mincore(None, 0, None),
        lambda: ctypes.CDLL(None).prctl(sandbox.SET_DEATH_SIGNAL, 0, 0, 0, 0),
    ],
)
def test_system_calls(act: Callable[[], object]) -> None:
    import socket  # noqa: F401

    assert ending(act, Policy(memory_bytes=ROOM)) == -signal.SIGSYS


def test_what_neighbours_change_is_not_seen() -> None:
    """The memory, load and disks of the whole machine are hidden."""
    policy = Policy(memory_bytes=ROOM)
    for path in ("/proc/meminfo", "/proc/loadavg", "/proc/stat", "/sys/fs/cgroup/memory.current"):
        if Path(path).exists():
            assert ending(Path(path).read_text, policy) == DENIED
    assert ending(lambda: os.statvfs("/"), policy) == NOT_PERMITTED


def test_how_much_memory_is_left_is_known_without_them() -> None:
    """The process knows its own limit."""

    def act() -> None:
        if not 0 < limit - available_bytes() < limit // 2:
            raise OSError(errno.ENOMEM, "this is not what the limit leaves")

    limit = ROOM
    assert ending(act, Policy(memory_bytes=limit)) == GOOD


@pytest.mark.parametrize("programs", [False, True])
def test_files_are_not_locked(programs: bool) -> None:
    """Other processes that can open a file would notice a lock.

    Functions that write files work without one.
    """
    policy = Policy(memory_bytes=ROOM, programs=programs)
    assert ending(lambda: fcntl.flock(0, fcntl.LOCK_SH | fcntl.LOCK_NB), policy) == NOT_PERMITTED


@pytest.fixture
def folders() -> Iterator[tuple[Path, Path]]:
    """Two folders that every user can list: its own folder, with a link to the other, and another user's."""
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        for path in (top, top / "mine", top / "others"):
            path.mkdir(exist_ok=True)
            path.chmod(0o755)
            (path / "file").write_text("x")
        (top / "link").symlink_to("mine")
        yield top / "link", top / "others"


@pytest.mark.parametrize("user", [os.getuid(), NOBODY])
def test_other_files_do_not_exist(
    user: int, folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither ``stat`` nor an error of ``open`` reveals whether a path exists, for any user."""
    mine, others = folders
    if user != os.getuid() and os.getuid():
        pytest.skip("only root can become another user")
    monkeypatch.setattr(sandbox, "code_folders", lambda: [Path(name) for name in sandbox.SYSTEM])
    policy = Policy(readable=(str(mine),), memory_bytes=ROOM, own_root=True)

    def as_user(act: Callable[[], object]) -> int:
        def become() -> None:
            if user != os.getuid():
                os.setgid(user)
                os.setuid(user)
                ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)  # otherwise /proc/self would belong to root
            if not sandbox.can_hide_files():
                os._exit(SKIPPED)
            sandbox.confine(policy)
            act()

        status = ending(become, Policy(trusted=True))
        if status == SKIPPED:
            pytest.skip("no mount namespaces here")
        return status

    assert as_user((mine / "file").read_text) == GOOD
    assert as_user(lambda: Path("/proc/self/status").read_text()) == GOOD
    assert as_user(lambda: Path("/dev/null").write_text("x")) == GOOD
    assert as_user(lambda: (mine / "file").write_text("y")) == DENIED
    for path in (others / "file", others, others / "none", mine.parent / "file", Path("/etc/passwd")):
        for act in (os.stat, os.lstat, os.listxattr, lambda path: os.open(path, os.O_RDONLY)):
            assert as_user(lambda act=act, path=path: act(path)) == errno.ENOENT, path
    assert as_user(lambda: os.listdir("/")) == DENIED  # noqa: PTH208
    assert as_user(lambda: Path("/new").write_text("y")) == DENIED


def test_a_root_of_its_own_that_cannot_be_made_is_no_reason_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox.namespaces, "see_only", lambda paths: False)
    assert ending(lambda: None, Policy(memory_bytes=ROOM, own_root=True)) == NOT_PERMITTED


def test_threads_and_its_own_signals_are_its_own() -> None:
    import threading

    def act() -> None:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()

    assert ending(act, Policy(memory_bytes=ROOM)) == GOOD
    assert ending(lambda: signal.raise_signal(signal.SIGUSR1), Policy(memory_bytes=ROOM)) == -signal.SIGUSR1


def test_a_compiler_starts_programs_and_nothing_else() -> None:
    def act() -> None:
        assert os.waitstatus_to_exitcode(os.system("g++ --version > /dev/null")) == 0

    assert ending(act, Policy(memory_bytes=ROOM, programs=True)) == GOOD
    assert (
        ending(lambda: __import__("socket").socket(), Policy(memory_bytes=ROOM, programs=True))
        == -signal.SIGSYS
    )


def test_threads_are_limited_in_namespaces(monkeypatch: pytest.MonkeyPatch) -> None:
    """This holds for every user except root, whom the kernel does not limit.

    The limit is not for the process that starts them, which a submission could end with it.
    """
    import threading

    def act() -> None:
        if os.getuid() == 0:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            ctypes.CDLL(None).prctl(SET_DUMPABLE, 1, 0, 0, 0)  # otherwise /proc/self would belong to root
        if not sandbox.enter_namespaces():
            os._exit(SKIPPED)
        pid = os.fork()  # its children are in the namespaces
        if pid:
            os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        most = resource.getrlimit(resource.RLIMIT_NPROC)[0]
        if 0 <= most <= 40:
            os._exit(1)
        sandbox.confine(Policy(memory_bytes=ROOM, apart=True))
        count = 0
        with contextlib.suppress(RuntimeError):
            for count in range(100):  # noqa: B007
                threading.Thread(target=time.sleep, args=(PATIENCE_S,), daemon=True).start()
        os._exit(GOOD if count < 40 else 1)

    monkeypatch.setattr(sandbox, "MAX_TASKS", 40)
    monkeypatch.setattr(sandbox, "code_folders", list)  # they may be root's
    status = ending(act, Policy(trusted=True))
    if status == SKIPPED:
        pytest.skip("no namespaces here")
    assert status == GOOD


def test_limits(tmp_path: Path) -> None:
    policy = Policy(writable=(str(tmp_path),), memory_bytes=1 << 30, cpu_seconds=1, file_bytes=1000)

    def take_memory() -> None:
        try:
            bytearray(2 << 30)
        except MemoryError:
            raise OSError(12, "memory") from None

    def burn() -> None:
        while True:
            pass

    assert ending(take_memory, policy) == 12
    assert ending(burn, policy) in (-signal.SIGXCPU, -signal.SIGKILL)
    assert ending(lambda: (tmp_path / "file").write_bytes(bytes(1001)), policy) in (27, -signal.SIGXFSZ)


def test_filters_of_both_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    """The filter is run by the rules of classic BPF, so that the other machine's filter is tested, too."""

    def action(code: bytes, arch: int, number: int, argument: int = 0, second: int = 0) -> int:
        data, accumulator, at = struct.pack("=IIQQQ", number, arch, 0, argument, second), 0, 0
        while True:
            kind, when_true, when_false, value = struct.unpack_from("=HBBI", code, 8 * at)
            at += 1
            match kind:
                case seccomp.LOAD:
                    accumulator = struct.unpack_from("=I", data, value)[0]
                case seccomp.RETURN:
                    return value
                case seccomp.EQUAL:
                    at += when_true if accumulator == value else when_false
                case seccomp.GREATER_EQUAL:
                    at += when_true if accumulator >= value else when_false
                case seccomp.ANY_BIT:
                    at += when_true if accumulator & value else when_false

    for machine, (column, arch) in seccomp.MACHINES.items():
        monkeypatch.setattr(platform, "machine", lambda machine=machine: machine)
        tight, loose = seccomp.program(False, 7), seccomp.program(True, 7)
        for name, numbers in {**seccomp.CALLS, **seccomp.PROGRAMS, **seccomp.CHMOD}.items():
            if numbers[column] is not None:
                assert action(tight, arch, numbers[column]) == seccomp.KILL
                loosened = name not in seccomp.CALLS
                assert (action(loose, arch, numbers[column]) == seccomp.ALLOW) == loosened
        clone, tgkill, prlimit = seccomp.CLONE[column], seccomp.TGKILL[column], seccomp.PRLIMIT[column]
        assert action(tight, arch, clone, seccomp.CLONE_THREAD | 0x100) == seccomp.ALLOW
        assert action(tight, arch, clone, 17) == seccomp.KILL
        assert action(loose, arch, clone, 17) == seccomp.ALLOW
        assert action(tight, arch, tgkill, 7) == seccomp.ALLOW
        assert action(tight, arch, tgkill, 8) == seccomp.DENY | 1
        assert action(tight, arch, prlimit, 0) == seccomp.ALLOW
        assert action(tight, arch, prlimit, 8) == seccomp.DENY | 1
        prctl, fcntl_ = seccomp.PRCTL[column], seccomp.FCNTL[column]
        for filter_ in (tight, loose):
            assert action(filter_, arch, prctl, 1) == seccomp.KILL
            assert action(filter_, arch, prctl, 15) == seccomp.ALLOW
            assert action(filter_, arch, fcntl_, 0, 1024) == seccomp.KILL
            assert action(filter_, arch, fcntl_, 1024, 3) == seccomp.ALLOW
        assert action(tight, 0x40000003, 1) == seccomp.KILL, "another machine's calls: 32 bits"
        assert action(tight, arch, 39 if column == 0 else 172) == seccomp.ALLOW, "getpid"
    assert action(seccomp.program(False, 7), seccomp.MACHINES["aarch64"][1], 198) == seccomp.KILL
