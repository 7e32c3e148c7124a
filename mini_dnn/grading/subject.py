"""A variant under test: its plans, compiled kernels and results, each from a separate confined process."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device.cache import cache_dir
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.emulator.runtime_build import header_flags, header_folder, runtime_path
from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.errors import DeviceError, ShapeError, VariantError
from mini_dnn.grading import decoding, plans
from mini_dnn.grading.confined import wire
from mini_dnn.grading.confined.forkserver import ForkServer
from mini_dnn.grading.confined.process import Answered, Confined, Ended, Limits
from mini_dnn.grading.confined.sandbox import Policy
from mini_dnn.grading.measure import Measured, Method
from mini_dnn.grading.plans import Head
from mini_dnn.ops import Arrays
from mini_dnn.running.parts import cut, empty_outputs, entries, largest_part
from mini_dnn.variant import Planned

LIMIT_BYTES, PLAN_BYTES, REPORT_BYTES = 64 << 10, 4 << 20, 16 << 20
# Bytes of the arrays that are passed to a NumPy function at a time. The function may need ten times as much.
HOST_BYTES = 128 << 20


@dataclass(frozen=True)
class DeviceInfo:
    """Where variants run: what the executor reports about its device, and how the device may be used."""

    name: str  # "cuda" or "emulator"
    description: str
    arch: int
    has_clock: bool
    max_shared_bytes: int
    reaches_host: bool  # whether kernels can address all memory of the executor
    turn: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)  # for jobs that share a GPU


def look(server: ForkServer, device: str) -> DeviceInfo:
    """Open a device in a separate process and describe it.

    Raises
    ------
    DeviceError
        The device cannot be opened.
    """
    limits, arguments = Limits(), {"source": "", "device": device, "cache": str(cache_dir())}
    try:
        with Confined(server, "executor", arguments, Policy(trusted=True), limits) as process:
            facts = json.loads(process.ask({"device": True}))
    except (Answered, Ended) as error:
        # The part of the message about the end of the process is left out.
        why = str(error).partition("DeviceError: ")[2] or error
        raise DeviceError(f"the device '{device}' cannot be opened: {why}") from error
    description, _, arch, has_clock, shared, reaches_host = facts
    name = "cuda" if has_clock else "emulator"
    return DeviceInfo(name, description, arch, has_clock, shared, reaches_host)


class Subject:
    """One variant of a submission, copied to a separate folder.

    Parameters
    ----------
    source
        The folder of the copy.
    private
        The private folder of the submission, for its compiled kernels.
    """

    def __init__(
        self, source: Path, private: Path, server: ForkServer, device: DeviceInfo, limits: Limits
    ) -> None:
        self._source, self._private, self._server = source, private, server
        self._device, self._limits = device, limits
        self._processes: dict[str, Confined] = {}
        self._plans: dict[Any, Planned] = {}  # by problem
        self._compiled: set[tuple[Any, ...]] = set()
        self._free = 0
        self.head: Head = decoding.decode_head(self._process("planner").ask({"head": True}))
        if not self.head.host and not self._kernel.is_file():
            raise VariantError("variant.py has a plan, but there is no kernel.cu in the same folder")

    def limit_for(self, problem: Any) -> str:
        """Return the author's reason why the variant refuses a problem, or an empty string."""
        text = self._process("planner").ask(self._about("limit", problem), most=LIMIT_BYTES)
        return bytes(text).decode(errors="replace")

    def planned(self, problem: Any) -> Planned:
        """Return the plan for a problem. It is requested only once.

        Raises
        ------
        Answered, VariantError
            The variant does not accept the problem, or its answer is not a plan.
        """
        if problem not in self._plans:
            message = self._about("plan", problem) | {"max_shared_bytes": self._device.max_shared_bytes}
            text = self._process("planner").ask(message, most=PLAN_BYTES)
            self._plans[problem] = decoding.decode(text, problem, self.head, self._kernel)
        return self._plans[problem]

    def compile(self, planned: Planned, checked: bool = False) -> None:
        """Compile the kernels with the definitions of a plan, once.

        Raises
        ------
        Answered
            The compilation failed. The message has the compiler's output.
        """
        key = (checked, *sorted(planned.defines.items()))
        if key not in self._compiled:
            role = "checked compiler" if checked else "compiler"
            self._process(role).ask({"defines": dict(planned.defines), "checked": checked})
            self._compiled.add(key)

    def solve(self, problem: Any, arrays: Arrays) -> dict[str, np.ndarray]:
        """Return the variant's outputs exactly as its process returned them."""
        outputs = empty_outputs(problem)
        for first, last in self._parts(problem):
            given = entries(problem, arrays, first, last)
            found = self._part(problem.with_batch(last - first), given)
            for name, out in entries(problem, outputs, first, last).items():
                out[...] = found[name]
        return outputs

    def verdict(self, problems: Sequence[Any], seed: int) -> dict[str, Any]:
        """Return the findings of the checked emulator as by `mini_dnn.checking.results.Report.as_dict`."""
        planned = [self.planned(problem) for problem in problems]
        for one in planned:
            self.compile(one, checked=True)
        message = {"check": [plans.encode_values(one) for one in planned], "seed": seed}
        text = self._process("checker").ask(self._with_head(message), most=REPORT_BYTES)
        try:
            report = json.loads(text)
            assert isinstance(report["findings"], list)
        except (ValueError, TypeError, KeyError, AssertionError, RecursionError) as error:
            raise Ended("the answer of its check is not a verdict") from error
        return dict(report)

    def measure(self, problem: Any, method: Method) -> list[Measured]:
        """Time a problem on a GPU. There is one result for each part if the batch does not fit at once."""
        found: dict[int, Measured] = {}
        sizes = [last - first for first, last in self._parts(problem)]
        for size in sorted(set(sizes)):
            planned = self.planned(problem.with_batch(size))
            self.compile(planned)
            message = {
                "time": plans.encode_values(planned),
                "method": asdict(replace(method, whole=problem.batch)),
            }
            found[size] = Measured(**json.loads(self._execute(message)))
        return [found[size] for size in sizes]

    def _parts(self, problem: Any) -> list[tuple[int, int]]:
        if self.head.host:
            return cut(problem.batch, max(1, HOST_BYTES // problem.with_batch(1).min_bytes))
        self._process("executor")  # the executor reports the free memory
        return cut(
            problem.batch, largest_part(lambda n: self.planned(problem.with_batch(n)), problem, self._free)
        )

    def _part(self, problem: Any, arrays: Arrays) -> dict[str, np.ndarray]:
        given, expected = problem.named("in", "weight"), problem.named("out")
        most = sum(array.nbytes for array in expected.values())
        values = [arrays[name] for name in given]
        if self.head.host:
            data = self._process("planner").ask(self._about("host", problem), *values, most=most)
        else:
            planned = self.planned(problem)
            self.compile(planned)
            data = self._execute({"run": plans.encode_values(planned)}, *values, most=most)
        try:
            return wire.unpacked(data, expected)
        except ShapeError as error:
            raise Ended(f"its answer is not an output: {error}") from error

    def _about(self, request: str, problem: Any) -> dict[str, Any]:
        return {request: problem.numbers, "op": self.head.op}

    def _execute(self, message: dict[str, Any], *arrays: np.ndarray, most: int = REPORT_BYTES) -> bytes:
        """Ask the executor.

        After a failure, the next request starts a new one, because a GPU's context is lost.
        """
        with self._device.turn():
            try:
                return self._process("executor").ask(self._with_head(message), *arrays, most=most)
            except Answered:
                self._processes.pop("executor").close()
                raise

    def _with_head(self, message: dict[str, Any]) -> dict[str, Any]:
        return message | {"head": astuple(self.head)}

    @property
    def _kernel(self) -> Path:
        return self._source / "kernel.cu"

    def _process(self, role: str) -> Confined:
        """Return the process with this role. It is started when first needed."""
        if role in self._processes:
            return self._processes[role]
        kernel, cache = str(self._kernel), self._cache()
        compiles = role.endswith("compiler")  # it also writes; processes that run kernels write nothing
        # Only our own code runs there; the kernels are on the GPU
        gpu = role == "executor" and self._device.has_clock
        arch = nvcc_arch(self._device.arch) if self._device.has_clock and role == "compiler" else "emulator"
        arguments: dict[str, Any] = {
            "planner": {"folder": str(self._source)},
            "executor": {"source": kernel, "device": self._device.name, "cache": str(cache)},
            "checker": {"source": kernel, "cache": str(cache)},
        }.get(role, {"source": kernel, "arch": arch, "cache": str(cache)})
        headers = [str(header) for _, header in _emulator_files()] if compiles else []
        policy = Policy(
            readable=(str(self._source), str(cache), *headers),
            programs=compiles or role == "checker",
            trusted=gpu,
        )
        name = "compiler" if compiles else role
        seconds = self._limits.compile_seconds if compiles else self._limits.seconds
        limits = replace(self._limits, seconds=seconds)
        process = Confined(self._server, name, arguments, policy, limits, cache if compiles else None)
        self._processes[role] = process
        if role == "executor":
            self._free = int(json.loads(process.ask({"device": True}))[1])
        return process

    def _cache(self) -> Path:
        """The folder of the compiled kernels."""
        return self._private if self._private.is_dir() else new_cache(self._private)

    def close(self) -> None:
        """End all processes. Later requests start new ones."""
        for process in self._processes.values():
            process.close()
        self._processes.clear()

    def __enter__(self) -> Subject:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def new_cache(folder: Path) -> Path:
    """Create a cache with the emulator's own libraries and headers alone, which all submissions share."""
    target = folder / "emulator"
    target.mkdir(parents=True)
    for library, header in _emulator_files():
        shutil.copyfile(library, target / library.name)
        if header.is_dir():
            (target / header.name).symlink_to(header)  # its 18 MB are not the submission's
    return folder


def _emulator_files() -> list[tuple[Path, Path]]:
    """The grader's libraries of this version of the emulator, each with the folder of its header."""
    found = []
    with suppress(DeviceError):  # without a compiler, there is no emulator either
        compiler = find_compiler()
        for checked in (False, True):  # only of this version, because they count as files of the submission
            library = runtime_path(compiler, ucontext=False, checked=checked)
            if library.is_file():
                header_flags(compiler, library, checked)  # creates the header
                found.append((library, header_folder(compiler, library, checked)))
    return found
