"""The process from which confined processes are forked, so that each starts within milliseconds.

It has imported NumPy and mini_dnn, and nothing else happens in it. It never sees a rubric, a reference or a
submission, so its children inherit none of these. It receives JSON messages over a socket, one per datagram:

- ``{"start": role, "policy": ..., "arguments": ...}`` with three file descriptors (requests, replies,
  output); the answer is ``{"pid": ...}``;
- ``{"end": pid}``: it kills the process group of this child and answers ``{"status": ...}``, the status of
  ``os.waitpid``.

Each child leads a process group. Its seccomp filter does not let it leave the group, so killing the group
ends all processes that the child started.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from mini_dnn import ops
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.sources import host_halves
from mini_dnn.errors import MiniDnnError
from mini_dnn.grading.confined import sandbox
from mini_dnn.grading.confined.wire import REPLIES, REQUESTS
from mini_dnn.paths import ROOT

START = (
    "import sys; sys.path[:] = sys.argv[3:]; from mini_dnn.grading.confined import forkserver; "
    "forkserver.main(int(sys.argv[1]), sys.argv[2] == 'apart')"
)
MESSAGE_BYTES = 1 << 20
ANSWER_SECONDS = 600.0  # far above the time that Python and NumPy need to start on a busy machine
CUDA_PLACES = ("CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_VISIBLE_DEVICES")
ENVIRONMENT = ("PATH", "CXX", "TZ", *CUDA_PLACES, *sandbox.SEARCHED)


class ForkServer:
    """Starts confined processes. Use it only in the thread that created it.

    Parameters
    ----------
    folder
        A private folder for its home and temporary files.
    apart
        Whether to run in namespaces, if the system lets users create them.
    """

    def __init__(self, folder: Path, apart: bool = True) -> None:
        self.folder = folder
        self._ours: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._apart = apart
        self.apart = False  # whether it runs in namespaces, known once it has started
        self.hides_files = False  # whether its children see no other files
        self._closed = False

    def start(self, role: str, policy: sandbox.Policy, arguments: dict[str, Any], files: list[int]) -> int:
        """Start a child with this role and return its process id, for `end`."""
        message = {"start": role, "policy": policy.as_dict(), "arguments": arguments}
        return int(self._ask(message, files)["pid"])

    def end(self, pid: int) -> int:
        """Kill what is left of a child and return its status as from ``os.waitpid``."""
        return int(self._ask({"end": pid}, [])["status"])

    def close(self) -> None:
        """End the process and all of its children for good. Any thread may call this."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        if self._ours is not None:
            self._ours.close()
            self._ours = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _ask(self, message: dict[str, Any], files: list[int]) -> dict[str, Any]:
        for _ in range(2):
            if self._closed:
                raise MiniDnnError("grading was interrupted")
            try:
                ours = self._ours or self._open()
                socket.send_fds(ours, [json.dumps(message).encode()], files)
                answer = ours.recv(MESSAGE_BYTES)
            except OSError:
                answer = b""
            if answer:
                found: dict[str, Any] = json.loads(answer)
                return found
            self._drop()
            if "end" in message:  # the child died with the fork server
                return {"status": signal.SIGKILL}
            self._apart = self.apart  # the second try is without namespaces unless they worked before
        raise MiniDnnError(
            "the process that starts submissions ended twice, or did not answer for "
            f"{ANSWER_SECONDS:g} s; the machine may be out of memory"
        )

    def _open(self) -> socket.socket:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.settimeout(ANSWER_SECONDS)
        # -B: byte code written by an import would count as a file that the submission writes
        words = [
            "-I",
            "-B",
            "-c",
            START,
            str(theirs.fileno()),
            "apart" if self._apart else "beside",
            str(ROOT),
            *sandbox.search_path(),  # -I drops the folders of PYTHONPATH, and PyCUDA may be in one of them
        ]
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        private = {"HOME": str(self.folder), "TMPDIR": str(self.folder), "LC_ALL": "C.UTF-8"}
        # malloc's arenas, one for each thread of the emulator, would use up the address space of children
        few = {"OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
        self._process = subprocess.Popen(
            [sys.executable, *words],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env=kept | private | few | {"MINI_DNN_CACHE": str(self.folder)},
            start_new_session=True,
        )
        theirs.close()
        greeting = self._ours.recv(MESSAGE_BYTES)
        if not greeting:
            raise OSError("it ended immediately after its start")
        found = json.loads(greeting)
        self.apart, self.hides_files = bool(found["apart"]), bool(found["hides_files"])
        return self._ours


def main(control: int, apart: bool) -> None:
    """Serve requests until the other end of the socket is closed."""
    sandbox.die_with_parent()
    apart = apart and _go_apart()  # while there is only one thread, which OPENBLAS_NUM_THREADS ensures
    found = {"apart": apart, "hides_files": sandbox.can_hide_files()}
    # Load everything that children need before any of them is forked: they may not even list mini_dnn's files
    from mini_dnn.grading.confined import roles

    ops.names()  # this imports the operations
    for name in host_halves():
        import_module(name)
    with contextlib.suppress(MiniDnnError):
        find_compiler()  # children then need not ask for its version again

    with socket.socket(fileno=control) as connection, contextlib.suppress(BrokenPipeError):
        _serve(connection, roles, found)


def _serve(connection: socket.socket, roles: Any, found: dict[str, bool]) -> None:
    """Answer messages until there are no more. BrokenPipeError is raised if nobody reads the answer."""
    connection.send(json.dumps(found).encode())
    ended: dict[int, int] = {}  # by process id: the statuses of children that nobody has asked about yet
    while True:
        data, files, _, _ = socket.recv_fds(connection, MESSAGE_BYTES, 3)
        if not data:
            return
        message = json.loads(data)
        if "end" in message:
            answer = {"status": _end(message["end"], ended)}
        else:
            pid = os.fork()
            if pid == 0:
                connection.close()
                message["policy"] |= {"own_root": found["hides_files"], "apart": found["apart"]}
                _child(roles, message, files)
            for file in files:
                os.close(file)
            ended.pop(pid, None)  # of an earlier process with this id
            answer = {"pid": pid}
        connection.send(json.dumps(answer).encode())


def _go_apart() -> bool:
    """Continue as the first process of new namespaces. When it ends, all processes in them end."""
    if not sandbox.enter_namespaces():
        return False
    sandbox.die_with_parent()  # again, because new credentials have cleared it
    pid = os.fork()
    if pid:
        os.closerange(REQUESTS, 1024)
        os.waitpid(pid, 0)
        os._exit(0)
    sandbox.die_with_parent()
    return True


def _end(pid: int, ended: dict[int, int]) -> int:
    """Kill a process group and return the status of its leader."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    if pid not in ended:
        os.kill(pid, signal.SIGKILL)  # it may not lead a group yet; nobody else has its process id
    while pid not in ended:
        # This also reaps orphans if this is the first process of a namespace
        other, status = os.waitpid(-1, 0)
        ended[other] = status
    return ended.pop(pid)


def _child(roles: Any, message: dict[str, Any], files: list[int]) -> None:
    """Run in the forked process: keep three pipes only, confine the process, and play the role."""
    status = 1
    try:
        os.setsid()
        sandbox.die_with_parent()
        high = [os.dup2(file, 100 + i) for i, file in enumerate(files)]
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in (
            (null, 0),
            (high[2], 1),
            (high[2], 2),
            (high[0], REQUESTS),
            (high[1], REPLIES),
        ):
            os.dup2(source, target, inheritable=target < REQUESTS)
        os.closerange(REPLIES + 1, 1024)
        roles.serve(message["start"], sandbox.Policy.of(message["policy"]), message["arguments"])
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
