"""The sandbox itself: what a confined process can reach, and how much it may use."""

from __future__ import annotations

import ctypes
import fcntl
import os
import platform
import signal
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from grading_helpers import DENIED, GOOD, ROOM, ending, honest

from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.grading import decoding, plans, sandbox, seccomp, wire
from mini_dnn.grading.forkserver import ForkServer
from mini_dnn.grading.process import Answered, Confined, Ended
from mini_dnn.grading.rubric import Limits
from mini_dnn.grading.sandbox import Isolation, Policy
from mini_dnn.grading.subject import new_cache
from mini_dnn.shapes import ConvShape
from mini_dnn.variant import find

SET_SIGNAL = 10  # F_SETSIG, which Python has from 3.13 on

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
    assert ending((sandbox.PACKAGE / "shapes.py").read_text, policy) == GOOD
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
        lambda: os.chmod("/tmp", 0o777),  # noqa: PTH101
        lambda: os.truncate("/tmp/nothing", 0),
        lambda: os.setpriority(os.PRIO_PROCESS, 0, 5),
        lambda: fcntl.fcntl(0, fcntl.F_SETLEASE, fcntl.F_WRLCK),
        lambda: fcntl.fcntl(0, fcntl.F_SETOWN, os.getppid()),
        lambda: fcntl.fcntl(0, SET_SIGNAL, signal.SIGKILL),
        lambda: ctypes.CDLL(None).prctl(sandbox.SET_DEATH_SIGNAL, 0, 0, 0, 0),
    ],
)
def test_system_calls(act: Callable[[], object]) -> None:
    import socket  # noqa: F401

    assert ending(act, Policy(memory_bytes=ROOM)) == -signal.SIGSYS


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
    """The filter by the rules of classic BPF, so that the other machine's is tried too."""

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
        assert action(tight, arch, 0) == seccomp.ALLOW
    assert action(seccomp.program(False, 7), seccomp.MACHINES["aarch64"][1], 198) == seccomp.KILL


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ForkServer]:
    opened = ForkServer(tmp_path)
    yield opened
    opened.close()


def test_a_child_is_ended_however_early(server: ForkServer) -> None:
    """Even before it leads a process group."""
    for _ in range(100):
        pipes = [os.pipe() for _ in range(3)]
        since = time.monotonic()
        pid = server.start("planner", Policy(), {"folder": "/"}, [pipes[0][0], pipes[1][1], pipes[2][1]])
        assert server.end(pid) == signal.SIGKILL
        assert time.monotonic() - since < 10
        for pipe in pipes:
            os.close(pipe[0])
            os.close(pipe[1])


def test_files_that_grow_are_seen(server: ForkServer, tmp_path: Path) -> None:
    source, private = tmp_path / "kernel", tmp_path / "private"
    source.mkdir()
    private.mkdir()
    (source / "variant.py").write_text("while True:\n    pass\n")
    arguments = {"folder": str(source)}
    policy = Policy(readable=(str(source),))
    with Confined(server, "planner", arguments, policy, Limits(30, files_mb=1), private) as process:
        (private / "large").write_bytes(bytes(2 << 20))
        since = time.monotonic()
        with pytest.raises(Ended, match="more than 1 MB of files"):
            process.ask({"head": True})
    assert time.monotonic() - since < 10


def test_an_answer_that_is_cut_short(server: ForkServer, tmp_path: Path) -> None:
    (tmp_path / "variant.py").write_text("import os\nos.write(4, b'\\0\\0\\0')\nos._exit(3)\n")
    policy = Policy(readable=(str(tmp_path),))
    with (
        Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(30)) as process,
        pytest.raises(Ended, match="status 3"),
    ):
        process.ask({"head": True})
    assert wire.REPLY.size == 12


def test_all_end_with_the_fork_server(server: ForkServer, tmp_path: Path) -> None:
    """Also what was forked in between, and although nothing tells them."""
    (tmp_path / "variant.py").write_text("while True:\n    pass\n")
    policy = Policy(readable=(str(tmp_path),))
    process = Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(1))
    assert processes_of(tmp_path)
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while processes_of(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with pytest.raises(Ended):
        process.ask({"head": True})


def processes_of(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"HOME={folder}\0".encode() in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found


def test_without_namespaces(tmp_path: Path) -> None:
    server = ForkServer(tmp_path, apart=False)
    (tmp_path / "variant.py").write_text("while True:\n    pass\n")
    policy = Policy(readable=(str(tmp_path),))
    with (
        Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(1)) as process,
        pytest.raises(Ended, match="within 1 s"),
    ):
        process.ask({"head": True})
    server.close()


@pytest.mark.skipif(find_nvcc() is None, reason="no nvcc")
def test_nvcc_compiles_confined(server: ForkServer, tmp_path: Path) -> None:
    source, private = tmp_path / "kernel", tmp_path / "private"
    source.mkdir()
    private.mkdir()
    (tmp_path / "secret.h").write_text("int secret = 42;")
    (source / "kernel.cu").write_text('extern "C" __global__ void k(float* x) { x[0] = VALUE; }')
    arguments = {"source": str(source / "kernel.cu"), "arch": "sm_90", "cache": str(private)}
    policy = Policy(readable=(str(source),), programs=True)
    with Confined(server, "compiler", arguments, policy, Limits(120), private) as process:
        assert process.ask({"defines": {"VALUE": 3}, "checked": False}) == b""
        assert len(list(private.glob("cubin/*.cubin"))) == 1
        (source / "kernel.cu").write_text('#include "../secret.h"')
        with pytest.raises(Answered, match=r"secret\.h"):
            process.ask({"defines": {}, "checked": False})


def test_a_process_that_is_trusted_compiles_nothing(server: ForkServer, tmp_path: Path) -> None:
    """The one that has the GPU is less confined, and this file is another one each time that it is hashed."""
    folder, cache = honest(tmp_path), tmp_path / "cache"
    kernel = folder / "kernel.cu"
    kernel.write_text(f'#if 0\n#include "/proc/self/stat"\n#endif\n{kernel.read_text()}')
    shape = ConvShape(1, 1, 3, 3, 1, 2, 2)
    planned = decoding.decode(plans.encode(find(folder), shape, 0).encode(), shape)
    message = {"run": plans.encode_planned(planned), "head": ["fp32", 75, "", False]}
    x, w = np.ones(shape.x, np.float32), np.ones(shape.w, np.float32)
    with Confined(
        server,
        "compiler",
        {"source": str(kernel), "arch": "emulator", "cache": str(cache)},
        Policy(readable=(str(folder),), programs=True),
        Limits(60),
        new_cache(cache),
    ) as compiler:
        compiler.ask({"defines": {}, "checked": False})
    arguments = {"source": str(kernel), "device": "emulator", "cache": str(cache)}
    with (
        Confined(server, "executor", arguments, Policy(trusted=True), Limits(60)) as executor,
        pytest.raises(Answered, match="may have changed since"),
    ):
        executor.ask(message, x, w)
    assert len(list(cache.glob("emulator/honest-*.so"))) == 1, "that of the confined compiler"


def test_an_answer_to_no_question(server: ForkServer, tmp_path: Path) -> None:
    answer = b"import os, struct\nos.write(4, struct.pack('<IQ', 0, 1) + b'1')\n"
    (tmp_path / "variant.py").write_bytes(answer)
    policy = Policy(readable=(str(tmp_path),))
    with Confined(server, "planner", {"folder": str(tmp_path)}, policy, Limits(30)) as process:
        assert process.ask({"head": True}) == b"1"
        time.sleep(1.0)  # the true answer comes, and nobody waits for it
        with pytest.raises(Ended, match="before it was asked"):
            process.ask({"plan": [1, 1, 1, 1, 1, 1, 1]})
