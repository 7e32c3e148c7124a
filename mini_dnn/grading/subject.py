"""A variant under test: its plans, compiled kernels and results, each from a confined process of its own."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from mini_dnn.device.cache import cache_dir
from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.errors import DeviceError, VariantError
from mini_dnn.grading import decoding, plans
from mini_dnn.grading.confined.forkserver import ForkServer
from mini_dnn.grading.confined.process import Answered, Confined, Ended
from mini_dnn.grading.confined.sandbox import Policy
from mini_dnn.grading.measure import Measured, Method
from mini_dnn.grading.plans import Head, Planned
from mini_dnn.grading.rubric import Limits
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.running.runner import largest_part
from mini_dnn.variant import Variant, ceil_div

PLAN_BYTES, REPORT_BYTES = 4 << 20, 16 << 20
FLOAT_BYTES = 4
HOST_BYTES = 2 << 30  # free memory of a variant that runs on the host


@dataclass(frozen=True)
class Place:
    """Where variants are run: what the executor says of its device, and how it may be used."""

    device: str  # "cuda" or "emulator"
    description: str
    arch: int
    has_clock: bool
    max_shared_bytes: int
    reaches_host: bool  # kernels can address all memory of the executor
    turn: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)  # of jobs that share a GPU


def look(server: ForkServer, device: str) -> Place:
    """Open a device in a process of its own, and say what it is.

    Raises
    ------
    DeviceError
        It cannot be opened.
    """
    limits, arguments = Limits(), {"source": "", "device": device, "cache": str(cache_dir())}
    try:
        with Confined(server, "executor", arguments, Policy(trusted=True), limits) as process:
            facts = json.loads(process.ask({"device": True}))
    except (Answered, Ended) as error:
        why = str(error).partition("DeviceError: ")[2] or error  # without how its process ended
        raise DeviceError(f"the device '{device}' cannot be opened: {why}") from error
    description, _, arch, has_clock, shared, reaches_host = facts
    return Place("cuda" if has_clock else "emulator", description, arch, has_clock, shared, reaches_host)


class Subject:
    """One variant of a submission, copied to a folder of its own.

    Parameters
    ----------
    source
        The copy's folder.
    private
        Private to the submission: its compiled kernels.
    """

    def __init__(self, source: Path, private: Path, server: ForkServer, place: Place, limits: Limits) -> None:
        self._source, self._private, self._server = source, private, server
        self._place, self._limits = place, limits
        self._processes: dict[str, Confined] = {}
        self._planned: dict[ConvShape, Planned] = {}
        self._compiled: set[tuple[Any, ...]] = set()
        self._free = 0
        self.head: Head = decoding.decode_head(self._process("planner").ask({"head": True}))
        if not self.head.host and not (source / "kernel.cu").is_file():
            raise VariantError("variant.py has a plan and there is no kernel.cu beside it")

    def plan(self, shape: ConvShape) -> Planned:
        """The plan for a shape, asked for once.

        Raises
        ------
        VariantError
            The variant does not take the shape, or what it answers is no plan.
        """
        if shape not in self._planned:
            message = {"plan": _numbers(shape), "max_shared_bytes": self._place.max_shared_bytes}
            text = self._process("planner").ask(message, most=PLAN_BYTES)
            self._planned[shape] = decoding.decode(text, shape)
        if self._planned[shape].refuses:
            raise VariantError(f"the variant refuses {shape}: {self._planned[shape].refuses}")
        return self._planned[shape]

    def compile(self, defines: Mapping[str, int], checked: bool = False) -> None:
        """Compile the kernels with these definitions, once.

        Raises
        ------
        Answered
            With the compiler's messages.
        """
        key = (checked, *sorted(defines.items()))
        if key not in self._compiled:
            role = "checked compiler" if checked else "compiler"
            self._process(role).ask({"defines": dict(defines), "checked": checked})
            self._compiled.add(key)

    def convolve(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        """The variant's result, ``(N,M,P,Q) float32``: what its process answered, whatever that is."""
        shape = ConvShape.of(x, w)
        self.plan(shape)
        y = np.empty(shape.y, np.float32)
        for first, last in self._parts(shape):
            part = shape.with_batch(last - first)
            y[first:last] = self._part(part, x[first:last], w).reshape(part.y)
        return y

    def check(self, shapes: tuple[ConvShape, ...], seed: int) -> dict[str, Any]:
        """The verdict of the checked emulator, as `mini_dnn.checking.check.Report.as_dict` has it."""
        planned = [self.plan(shape) for shape in shapes]
        for one in planned:
            self.compile(one.defines, checked=True)
        message = {"check": [plans.encode_planned(one) for one in planned], "seed": seed}
        text = self._process("checker").ask(self._with_head(message), most=REPORT_BYTES)
        try:
            report = json.loads(text)
            assert isinstance(report["findings"], list)
        except (ValueError, TypeError, KeyError, AssertionError, RecursionError) as error:
            raise Ended("its check answered with something that is no verdict") from error
        return dict(report)

    def measure(self, shape: ConvShape, method: Method) -> list[Measured]:
        """Time the convolution on a GPU: one result for each part of a batch that does not fit at once."""
        found: dict[int, Measured] = {}
        sizes = [last - first for first, last in self._parts(shape)]
        for size in sorted(set(sizes)):
            planned = self.plan(shape.with_batch(size))
            self.compile(planned.defines)
            message = {
                "time": plans.encode_planned(planned),
                "method": asdict(replace(method, whole=shape.N)),
            }
            found[size] = Measured(**json.loads(self._execute(message)))
        return [found[size] for size in sizes]

    def _parts(self, shape: ConvShape) -> list[tuple[int, int]]:
        if self.head.host:
            images = max(1, HOST_BYTES // (FLOAT_BYTES * (shape.K + shape.M) * shape.P * shape.Q))
        else:
            self._process("executor")
            images = largest_part(self._variant(), shape, self._free)
        count = ceil_div(shape.N, images)
        return [(part * shape.N // count, (part + 1) * shape.N // count) for part in range(count)]

    def _part(self, shape: ConvShape, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        size = FLOAT_BYTES * int(np.prod(shape.y))
        if self.head.host:
            data = self._process("planner").ask({"host": _numbers(shape)}, x, w, most=size)
        else:
            planned = self.plan(shape)
            self.compile(planned.defines)
            data = self._execute({"run": plans.encode_planned(planned)}, x, w, most=size)
        if len(data) != size:
            raise Ended(f"it answered {len(data)} bytes; y {shape.y} has {size}")
        return np.frombuffer(data, np.float32)

    def _execute(self, message: dict[str, Any], *arrays: np.ndarray, most: int = REPORT_BYTES) -> bytes:
        """Ask the executor; after a failure the next request gets a new one, as a GPU's context is lost."""
        with self._place.turn():
            try:
                return self._process("executor").ask(self._with_head(message), *arrays, most=most)
            except Answered:
                self._processes.pop("executor").close()
                raise

    def _with_head(self, message: dict[str, Any]) -> dict[str, Any]:
        return message | {"head": list(vars(self.head).values())}

    def _variant(self) -> Variant:
        return plans.variant_of(self.head, self._source / "kernel.cu", self.plan)

    def _process(self, role: str) -> Confined:
        """The process with that role, started when it is first needed."""
        if role in self._processes:
            return self._processes[role]
        kernel, cache = str(self._source / "kernel.cu"), self._cache()
        compiles = role.endswith("compiler")  # and writes; what runs kernels writes nothing
        gpu = role == "executor" and self._place.has_clock  # our own code alone; kernels are on the GPU
        arch = nvcc_arch(self._place.arch) if self._place.has_clock and role == "compiler" else "emulator"
        arguments: dict[str, Any] = {
            "planner": {"folder": str(self._source)},
            "executor": {"source": kernel, "device": self._place.device, "cache": str(cache)},
            "checker": {"source": kernel, "cache": str(cache)},
        }.get(role, {"source": kernel, "arch": arch, "cache": str(cache)})
        policy = Policy(
            readable=(str(self._source), str(cache)),
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
        """Where its compiled kernels are."""
        return self._private if self._private.is_dir() else new_cache(self._private)

    def close(self) -> None:
        """End its processes."""
        for process in self._processes.values():
            process.close()

    def __enter__(self) -> Subject:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def new_cache(folder: Path) -> Path:
    """A cache with nothing in it but the emulator's own libraries, which are the same for all."""
    target = folder / "emulator"
    target.mkdir(parents=True)
    for library in (cache_dir() / "emulator").glob("*runtime-*.so"):
        shutil.copyfile(library, target / library.name)
    return folder


def _numbers(shape: ConvShape) -> list[int]:
    return list(vars(shape).values())
