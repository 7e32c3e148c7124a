"""A confined process as the grader sees it: it answers requests, or it ends with a reason."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.errors import MiniDnnError
from mini_dnn.grading.confined import wire
from mini_dnn.grading.confined.forkserver import ForkServer
from mini_dnn.grading.confined.sandbox import Policy

LOOK_SECONDS = 0.1  # the interval at which the size of its files is checked
CHUNK_BYTES = 1 << 20
ANSWERS = 10  # the time for all answers together, as a multiple of the time for one
FORBIDDEN = "FORBIDDEN: "
ENDINGS: dict[int, str] = {
    signal.SIGSYS: "it made a system call that a kernel does not need, for example to start a process, to "
    "use the network, or to signal or inspect another process",
    signal.SIGXCPU: "it used up its processor time",
    signal.SIGXFSZ: "it wrote a file that is too large",
    signal.SIGSEGV: "it crashed: a memory access that is not allowed (SIGSEGV), or no memory left",
    signal.SIGBUS: "it crashed: SIGBUS",
    signal.SIGILL: "it crashed: SIGILL",
    signal.SIGABRT: "it crashed: it called abort, or memory ran out",
    signal.SIGKILL: "it was killed; memory may have run out",
}


@dataclass(frozen=True)
class Limits:
    """The resources that one process of a submission may use."""

    seconds: float = 120.0
    compile_seconds: float = 180.0
    memory_mb: int = 8192
    output_kb: int = 256
    files_mb: int = 256


class SubmissionError(MiniDnnError):
    """An error of the submission. The message is for its author."""


class Answered(SubmissionError):
    """The process reports that a request failed, and why: a compiler's message, an access out of bounds."""


class Ended(SubmissionError):
    """The process ended before it answered: it crashed, exceeded a limit, or did something forbidden."""


class Confined:
    """A process with a role (``roles.py``). Close it, or use it in a ``with`` statement.

    Parameters
    ----------
    limits
        Limits for the time of one answer, memory, output and files.
    private
        A folder that it may write to, if any.
    """

    def __init__(
        self,
        server: ForkServer,
        role: str,
        arguments: dict[str, Any],
        policy: Policy,
        limits: Limits,
        private: Path | None = None,
    ) -> None:
        self._server, self._limits, self._private = server, limits, private
        self._printed = bytearray()
        self._printed_bytes = 0
        self._seconds = ANSWERS * limits.seconds  # what is left for all answers
        cores = len(os.sched_getaffinity(0))  # the emulator's threads may run on all of them
        policy = replace(
            policy,
            memory_bytes=limits.memory_mb << 20,
            # A backstop, because answers have their own limit
            cpu_seconds=cores * (int(ANSWERS * limits.seconds) + 10),
            file_bytes=limits.files_mb << 20 if private else 0,
            writable=(*policy.writable, *([str(private)] if private else [])),
        )
        theirs: list[int] = []
        pipes = [os.pipe() for _ in range(3)]
        (request, self._requests), (self._replies, reply), (self._noise, noise) = pipes
        theirs = [request, reply, noise]
        for file in (self._requests, self._replies, self._noise):
            os.set_blocking(file, False)
        try:
            self._pid: int | None = server.start(role, policy, arguments, theirs)
        except BaseException:
            self._pid = None
            self.close()
            raise
        finally:
            for file in theirs:
                os.close(file)

    def ask(self, message: dict[str, Any], *arrays: np.ndarray, most: int = 1 << 20) -> bytes:
        """Send a request and return the bytes of the answer, at most ``most``.

        Raises
        ------
        Answered, Ended
            There is no answer. The message says why.
        """
        if self._pid is None:
            raise Ended("it has ended")
        with contextlib.suppress(BlockingIOError):
            if os.read(self._replies, 1):
                self._end(f"{FORBIDDEN}it answered before it was asked")
        parts, answer = wire.request(message, *arrays), bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_WRITE)
            selector.register(self._replies, selectors.EVENT_READ)
            selector.register(self._noise, selectors.EVENT_READ)
            since, look = time.monotonic(), 0.0
            deadline = since + min(self._limits.seconds, self._seconds)
            wanted: int | None = None  # bytes of the whole reply, known once its head has arrived
            while wanted is None or len(answer) < wanted:
                now = time.monotonic()
                if now > deadline:
                    self._end(self._late(now - since))
                if self._private and now > look:
                    self._look_at_files(self._private)
                    look = now + LOOK_SECONDS
                for key, _ in selector.select(min(LOOK_SECONDS, max(0.0, deadline - now))):
                    if key.fd == self._requests:
                        self._send(parts)
                        if not parts:
                            selector.unregister(self._requests)
                    elif key.fd == self._noise:
                        if not self._listen():
                            selector.unregister(self._noise)
                    elif not self._read(answer, wanted):
                        self._end()
                if wanted is None and len(answer) >= wire.REPLY.size:
                    wanted = self._wanted(answer, most)
        self._seconds -= time.monotonic() - since
        status, _ = wire.REPLY.unpack_from(answer)
        data = bytes(answer[wire.REPLY.size :])
        if status != wire.OK:
            raise Answered(data.decode(errors="replace"))
        return data

    def _late(self, seconds: float) -> str:
        most = self._limits.seconds
        if seconds > most:
            return (
                f"it did not answer within {most:g} s: an endless loop, or a barrier that not all threads "
                "reach? run.py check finds both"
            )
        return f"its answers took more than {ANSWERS * most:g} s in total; the limit for one is {most:g} s"

    def _wanted(self, answer: bytearray, most: int) -> int:
        status, size = wire.REPLY.unpack_from(answer)
        if size > (most if status == wire.OK else wire.MAX_ERROR_BYTES):
            self._end(f"it answered {size} bytes; the limit is {most}")
        return wire.REPLY.size + int(size)

    def _send(self, parts: list[memoryview]) -> None:
        try:
            sent = os.write(self._requests, parts[0][:CHUNK_BYTES])
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._end()
        parts[0] = parts[0][sent:]
        if not parts[0]:
            parts.pop(0)

    def _read(self, answer: bytearray, wanted: int | None) -> bool:
        room = wire.REPLY.size if wanted is None else wanted
        data = os.read(self._replies, min(CHUNK_BYTES, room - len(answer)))
        answer += data
        return bool(data)

    def _listen(self) -> bool:
        """Read the output of the process. Return False once it cannot print any more."""
        data = os.read(self._noise, 65536)
        self._printed_bytes += len(data)
        if len(self._printed) < wire.MAX_ERROR_BYTES:
            self._printed += data
        if self._printed_bytes > self._limits.output_kb << 10:
            self._end(f"it printed more than {self._limits.output_kb} kB")
        return bool(data)

    def _look_at_files(self, folder: Path) -> None:
        nbytes = count = 0
        for where, _, names in os.walk(folder):
            for name in names:
                with contextlib.suppress(OSError):
                    nbytes += os.lstat(os.path.join(where, name)).st_blocks * 512  # noqa: PTH118
                count += 1
        if nbytes > self._limits.files_mb << 20 or count > 10_000:
            self._end(f"it wrote more than {self._limits.files_mb} MB of files")

    def _end(self, reason: str = "") -> None:
        """End the process and raise an error with the reason."""
        status = self._server.end(self._pid) if self._pid is not None else 0
        self._pid = None
        with contextlib.suppress(OSError):
            self._printed += os.read(self._noise, 65536)
        self.close()
        text = self._printed.decode(errors="replace")
        if FORBIDDEN in text:
            said = text.partition(FORBIDDEN)[2].partition("\n")[0]
            reason = FORBIDDEN + (said or "it ended at a forbidden operation")
        elif os.WIFSIGNALED(status) and (not reason or os.WTERMSIG(status) == signal.SIGSYS):
            number = os.WTERMSIG(status)
            reason = ENDINGS.get(number, f"it was ended by signal {number}")
            reason = FORBIDDEN * (number == signal.SIGSYS) + reason
        elif not reason:
            reason = f"it ended with status {os.waitstatus_to_exitcode(status)} before it answered"
            reason += f": {text.strip().splitlines()[-1][:300]}" if text.strip() else ""
        raise Ended(reason)

    def close(self) -> None:
        """End the process and all processes that it started."""
        if self._pid is not None:
            self._server.end(self._pid)
            self._pid = None
        for name in ("_requests", "_replies", "_noise"):
            file = getattr(self, name)
            if file >= 0:
                os.close(file)
                setattr(self, name, -1)

    def __enter__(self) -> Confined:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
