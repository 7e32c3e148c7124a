"""The roles of confined processes: plan, compile, run, check. Each prepares, is confined, then answers.

Only `Planner` runs the Python code of a submission, and nothing else happens in its process. `Executor` and
`Checker` run the kernels. On the emulator these are native code, so both are confined as tightly.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mini_dnn import ops
from mini_dnn.checking.check import check_plans
from mini_dnn.device import open_device
from mini_dnn.device.emulator.build import build_kernels
from mini_dnn.device.emulator.compiler import Compiler as CxxCompiler
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.device.nvcc import build_cubin
from mini_dnn.errors import MiniDnnError, VariantError
from mini_dnn.grading import decoding, measure, plans
from mini_dnn.grading.confined import imports, sandbox, wire
from mini_dnn.grading.plans import Head
from mini_dnn.paths import ROOT
from mini_dnn.running.runnable import check_runnable
from mini_dnn.running.runner import run_planned
from mini_dnn.variant import Planned, Variant, find

# Python announces these events before they happen; no plan needs one of them. A submission gains nothing by
# silencing them: Landlock and seccomp are the barrier, and this only provides a clear message.
FORBIDDEN = (
    "ctypes.",
    "fcntl.",
    "ftplib.",
    "mmap.",
    "os.exec",
    "os.fork",
    "os.kill",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.spawn",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.chmod",
    "pty.",
    "shutil.",
    "signal.",
    "socket.",
    "subprocess.",
    "urllib.",
)
HARMLESS = ["/dev", "/etc", "/proc", "/sys"]  # libraries look there; Landlock decides whether they may
FORBIDDEN_STATUS = 77

Answer = Sequence[bytes | memoryview]  # in several parts


class Role(Protocol):
    """The interface of a role."""

    def answer(self, message: dict[str, Any], data: bytearray) -> Answer:
        """Answer a request. A `MiniDnnError` becomes a reply with its message."""


class Planner:
    """Runs ``variant.py``: it computes plans, or runs the NumPy function."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._known = [str(path) for path in (*sandbox.code_folders(), self._folder, ROOT)] + HARMLESS
        self._variant: Variant | None = None

    def answer(self, message: dict[str, Any], data: bytearray) -> Answer:
        """Answer ``{"head"}``, or ``"op"`` with a problem as ``"limit"``, ``"plan"`` or ``"host"``."""
        if self._variant is None:
            _watch(self._known)
            # The variant must not look up others, because a submission is graded by its own kernels.
            self._variant = replace(find(self._folder), lookup=None)
        if "head" in message:
            return [plans.encode_head(Head.of(self._variant))]
        operation = ops.find(message["op"])
        if "limit" in message:
            return [self._variant.limit_for(operation.decode(message["limit"])).encode()]
        if "plan" in message:
            problem = operation.decode(message["plan"])
            return [plans.encode(self._variant.planned(problem, message["max_shared_bytes"]))]
        return _run_host(self._variant, operation.decode(message["host"]), data)


class Compiler:
    """Compiles the kernels into the submission's cache without loading them."""

    def __init__(self, source: str, arch: str) -> None:
        self._source, self._arch = Path(source), arch

    def answer(self, message: dict[str, Any], data: bytearray) -> Answer:
        """Answer ``{"defines", "checked"}``."""
        if self._arch != "emulator":
            build_cubin(self._source, message["defines"], self._arch)
            return []
        compiler = find_compiler()
        runtime = build_runtime(compiler, False, message["checked"])
        with ThreadPoolExecutor(1) as pool:  # the source is checked while it is compiled
            looked = pool.submit(self._look_at_source, message["defines"], compiler, message["checked"])
            try:
                library = build_kernels(
                    self._source, message["defines"], compiler, runtime, message["checked"]
                )
            finally:
                looked.result()  # its message has precedence
        imports.check_library(library, message["checked"])
        return []

    def _look_at_source(self, defines: Mapping[str, int], compiler: CxxCompiler, checked: bool) -> None:
        if checked:
            imports.check_source(self._source, defines, compiler)


class Executor:
    """Runs plans. Each request is one problem."""

    def __init__(self, source: str, device: str) -> None:
        self._source, self._device = Path(source), open_device(device)
        self._floor: measure.Floor | None = None

    def answer(self, message: dict[str, Any], data: bytearray) -> Answer:
        """Answer ``{"device"}``, ``{"run": plan, "head"}`` or ``{"time": plan, "head", "method"}``."""
        if "device" in message:
            d = self._device
            facts = [d.description, d.free_bytes(), d.arch, d.has_clock, d.max_shared_bytes, d.reaches_host]
            return [json.dumps(facts).encode()]
        head = Head(*message["head"])
        planned = _planned(message["time" if "time" in message else "run"], head, self._source)
        check_runnable(planned, self._device)
        if "time" in message:
            return [self._time(planned, head, measure.Method(**message["method"]))]
        arrays = wire.unpacked(data, planned.problem.named("in", "weight"))
        outputs = run_planned(planned, arrays, self._device).outputs
        return wire.packed(outputs[name] for name in planned.problem.named("out"))

    def _time(self, planned: Planned, head: Head, method: measure.Method) -> bytes:
        if self._floor is None:
            self._floor = measure.Floor.of(self._device)
        found = measure.measure(ops.find(head.op), planned, self._device, method, self._floor)
        return json.dumps(asdict(found)).encode()


class Checker:
    """Runs plans on the checked emulator and returns the verdict of ``run.py check``.

    The kernel runs in this process, so the verdict is weaker evidence than a comparison of outputs.
    `object_code` refuses code with unseen stores or jumps, and each other store is checked before it is made.
    """

    def __init__(self, source: str) -> None:
        self._source = Path(source)

    def answer(self, message: dict[str, Any], data: bytearray) -> Answer:
        """Answer ``{"check": plans, "head", "seed"}``."""
        head = Head(*message["head"])
        planned = [_planned(values, head, self._source) for values in message["check"]]
        report = check_plans(ops.find(head.op), planned, message["seed"])
        return [json.dumps(report.as_dict(), default=str).encode()]


ROLES = {"planner": Planner, "compiler": Compiler, "executor": Executor, "checker": Checker}


def serve(name: str, policy: sandbox.Policy, arguments: Mapping[str, Any]) -> None:
    """Play a role until the grader closes the pipe."""
    if arguments.get("cache"):
        os.environ["MINI_DNN_CACHE"] = os.environ["TMPDIR"] = arguments["cache"]
    if name != "compiler":
        # Processes that run kernels may be confined less, and a kernel file can include what changes
        os.environ["MINI_DNN_CACHE_ONLY"] = "1"
    role: Role = ROLES[name](**{key: value for key, value in arguments.items() if key != "cache"})
    sandbox.confine(policy)
    while True:
        received = wire.receive(wire.REQUESTS)
        if received is None:
            return
        try:
            answer, status = role.answer(*received), wire.OK
        except (MiniDnnError, MemoryError, OSError) as error:
            text = str(error) or "out of memory"
            said = text.encode(errors="backslashreplace")  # a variant's text may contain broken Unicode
            answer, status = [said[: wire.MAX_ERROR_BYTES]], wire.FAILED
        sys.stdout.flush()
        wire.reply(wire.REPLIES, status, answer)


def _watch(known_folders: list[str]) -> None:
    """End this process, with a reason, at the first event that no plan needs."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            if isinstance(path, int) or path is None:
                return
            name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
            known = any(name == k or name.startswith(k + "/") for k in known_folders)
            if (known and not writes) or name.startswith("/dev/"):
                return
            what = f"{'writes' if writes else 'reads'} the file {name}"
        elif event.startswith(FORBIDDEN) or event in ("sys.addaudithook", "os.listdir", "os.scandir"):
            if event == "os.listdir" and "importlib" in sys._getframe(1).f_code.co_filename:
                return
            what = f"calls {event}"
        else:
            return
        print(f"FORBIDDEN: variant.py {what}; a plan is a pure function of the problem", file=sys.stderr)
        sys.stderr.flush()
        os._exit(FORBIDDEN_STATUS)

    sys.addaudithook(hook)


def _planned(values: dict[str, Any], head: Head, source: Path) -> Planned:
    problem = ops.find(head.op).decode(values["problem"])
    return decoding.decode_values(values, problem, head, source)


def _run_host(variant: Variant, problem: Any, data: bytearray) -> Answer:
    """Run a variant's NumPy function and return its outputs.

    Raises
    ------
    VariantError
        The function does not accept the problem, or it fails.
    """
    limit = variant.limit_for(problem)
    if limit:
        raise VariantError(f"{variant.name} does not support {problem}: {limit}")
    found = variant.run_host(problem, wire.unpacked(data, problem.named("in", "weight")))
    return wire.packed(np.asarray(found[name], array.dtype) for name, array in problem.named("out").items())
