"""What confined processes do: plan, compile, convolve, check. Each prepares, is confined, then answers.

Only `Planner` runs the submission's Python, and nothing else happens in its process. `Executor` and `Checker`
run its kernels: on the emulator these are native code, so both are confined as tightly.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mini_dnn.checking import check
from mini_dnn.device import open_device
from mini_dnn.device.emulator.build import build_kernels
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import build_runtime
from mini_dnn.device.nvcc import build_cubin
from mini_dnn.errors import MiniDnnError
from mini_dnn.grading import decoding, measure, plans
from mini_dnn.grading.confined import imports, sandbox, wire
from mini_dnn.grading.confined.forkserver import REPLIES, REQUESTS
from mini_dnn.grading.plans import Head, Planned
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.paths import ROOT
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find

# Python tells of these before it does them; no plan needs one. What a submission does to silence this does
# not help it: Landlock and seccomp are the wall, and this only gives the refusal its words.
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
HARMLESS = ["/dev", "/etc", "/proc", "/sys"]  # libraries look there; whether they may is Landlock's business
FORBIDDEN_STATUS = 77


class Role(Protocol):
    """One kind of process."""

    def answer(self, message: dict[str, Any], data: bytearray) -> bytes | memoryview:
        """Answer a request; a `MiniDnnError` becomes a reply that says so."""


class Planner:
    """Runs ``variant.py``: its plans, or its NumPy function."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self._known = [str(path) for path in (*sandbox.code_folders(), self._folder, ROOT)] + HARMLESS
        self._variant: Variant | None = None

    def answer(self, message: dict[str, Any], data: bytearray) -> bytes | memoryview:
        """``{"head"}``, ``{"plan": shape, "max_shared_bytes"}`` or ``{"host": shape}`` with x and w."""
        if self._variant is None:
            _watch(self._known)
            self._variant = find(self._folder)
        if "head" in message:
            return plans.encode_head(self._variant).encode()
        if "plan" in message:
            shape = ConvShape(*message["plan"])
            return plans.encode(self._variant, shape, message["max_shared_bytes"]).encode()
        x, w = _arrays(ConvShape(*message["host"]), data)
        return np.ascontiguousarray(self._variant.run_host(x, w), np.float32).data.cast("B")


class Compiler:
    """Compiles the kernels into the submission's cache, and loads none of them."""

    def __init__(self, source: str, arch: str) -> None:
        self._source, self._arch = Path(source), arch

    def answer(self, message: dict[str, Any], data: bytearray) -> bytes:
        """``{"defines", "checked"}``."""
        if self._arch != "emulator":
            build_cubin(self._source, message["defines"], self._arch)
            return b""
        compiler = find_compiler()
        runtime = build_runtime(compiler, False, message["checked"])
        if message["checked"]:
            imports.check_source(self._source, message["defines"], compiler)
        library = build_kernels(self._source, message["defines"], compiler, runtime, message["checked"])
        imports.check(library, message["checked"])
        return b""


class Executor:
    """Runs plans: one request, one convolution."""

    def __init__(self, source: str, device: str) -> None:
        self._source, self._device = Path(source), open_device(device)
        self._floor: measure.Floor | None = None

    def answer(self, message: dict[str, Any], data: bytearray) -> bytes | memoryview:
        """``{"device"}``; ``{"run": plan, "head"}`` with x and w; ``{"time": plan, "head", "method"}``."""
        if "device" in message:
            d = self._device
            facts = [d.description, d.free_bytes(), d.arch, d.has_clock, d.max_shared_bytes, d.reaches_host]
            return json.dumps(facts).encode()
        if "time" in message:
            return self._time(message)
        planned = _planned(message["run"])
        x, w = _arrays(planned.shape, data)
        variant = _variant(self._source, message["head"], [planned])
        return run(x, w, variant, self._device).y.data.cast("B")

    def _time(self, message: dict[str, Any]) -> bytes:
        planned = _planned(message["time"])
        variant = _variant(self._source, message["head"], [planned])
        if self._floor is None:
            self._floor = measure.Floor.of(self._device)
        method = measure.Method(**message["method"])
        return json.dumps(
            asdict(measure.measure(variant, planned.shape, self._device, method, self._floor))
        ).encode()


class Checker:
    """Runs plans on the checked emulator, for the verdict of ``run.py check``.

    The kernel is in this process, so its word is worth less than a comparison: `imports.check_source` refuses
    what would hide from the checks, and a rubric should give few points for them.
    """

    def __init__(self, source: str) -> None:
        self._source = Path(source)

    def answer(self, message: dict[str, Any], data: bytearray) -> bytes:
        """``{"check": plans, "head": ..., "seed"}``."""
        planned = [_planned(values) for values in message["check"]]
        variant = _variant(self._source, message["head"], planned)
        report = check.check(variant, [p.shape for p in planned], message["seed"])
        return json.dumps(report.as_dict(), default=str).encode()


ROLES = {"planner": Planner, "compiler": Compiler, "executor": Executor, "checker": Checker}


def serve(name: str, policy: sandbox.Policy, arguments: Mapping[str, Any]) -> None:
    """Be a role until the grader closes the pipe."""
    if arguments.get("cache"):
        os.environ["MINI_DNN_CACHE"] = os.environ["TMPDIR"] = arguments["cache"]
    if name != "compiler":
        # what runs kernels may be confined less, and a kernel file can include what changes
        os.environ["MINI_DNN_CACHE_ONLY"] = "1"
    role: Role = ROLES[name](**{key: value for key, value in arguments.items() if key != "cache"})
    sandbox.confine(policy)
    while True:
        received = wire.receive(REQUESTS)
        if received is None:
            return
        try:
            answer: bytes | memoryview = role.answer(*received)
            status = wire.OK
        except (MiniDnnError, MemoryError, OSError) as error:
            text = str(error) or "out of memory"
            answer, status = text.encode()[: wire.MAX_ERROR_BYTES], wire.FAILED
        sys.stdout.flush()
        wire.reply(REPLIES, status, answer)


def _watch(known_folders: list[str]) -> None:
    """End this process, with a reason, at the first thing that no plan needs."""

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
        print(f"FORBIDDEN: variant.py {what}; a plan is a pure function of the shape", file=sys.stderr)
        sys.stderr.flush()
        os._exit(FORBIDDEN_STATUS)

    sys.addaudithook(hook)


def _planned(values: dict[str, Any]) -> Planned:
    return decoding.decode_values(values, ConvShape(*values["shape"]))


def _variant(source: Path, head: list[Any], planned: list[Planned]) -> Variant:
    known = {p.shape: p for p in planned}
    return plans.variant_of(Head(*head), source, lambda shape: known[shape])


def _arrays(shape: ConvShape, data: bytearray) -> tuple[np.ndarray, np.ndarray]:
    both = np.frombuffer(data, np.float32)
    split = int(np.prod(shape.x))
    return both[:split].reshape(shape.x), both[split:].reshape(shape.w)
