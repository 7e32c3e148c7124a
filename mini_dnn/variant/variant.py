"""A variant: one way to solve an operation's problems, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn import ops
from mini_dnn.device.clusters import CLUSTER_ARCH
from mini_dnn.errors import LimitError, VariantError, where
from mini_dnn.ops import Array, Arrays, Operation
from mini_dnn.ops.compare import PRECISIONS
from mini_dnn.variant.calls import with_calls, without_calls
from mini_dnn.variant.plan import Call, Launch, WrittenStep
from mini_dnn.variant.planned import Planned, fault_of_grids, fault_of_maps, scratch_array
from mini_dnn.variant.step_fields import check_step

COMPUTE_TYPES = ("", *PRECISIONS, "3xtf32", "3xfp16", "6xfp16")

HostFunction = Callable[..., Any]  # from the problem's inputs to its output, or a tuple of outputs


def ceil_div(a: int, b: int) -> int:
    """``a / b``, rounded up."""
    return -(-a // b)


@dataclass(frozen=True)
class Sweep:
    """Two parameters of a variant, the values to try, and the variant for each pair of them."""

    x_name: str
    x_values: tuple[int, ...]
    y_name: str
    y_values: tuple[int, ...]
    make: Callable[[int, int], Variant]
    best: tuple[int, int]


@dataclass(frozen=True)
class Variant:
    """One way to compute an operation.

    Parameters
    ----------
    op
        The name of the operation. The functions below accept one of its problems.
    idea
        The idea, in one sentence.
    plan
        The steps of each call: a pure function. None for a variant that runs on the host.
    setup
        Steps that run once, before the first call. They read only weights.
    scratch
        Additional buffers of the plan: a shape for float32, or an `Array`.
    defines
        Preprocessor definitions for the kernel: a mapping, or a function of the problem for kernels
        that are specialised at compile time.
    parent
        The variant that this one improves on.
    precision
        The precision that a check expects: ``"fp32"``; ``"tf32"`` or ``"fp16"`` if operands are rounded to
        this type; ``"fp16_sum"`` if sums are also kept in half.
    compute_type
        The type of its products, which determines the peak rate of a GPU: empty if it is the precision;
        ``"3xfp16"`` if each product is computed as three products of halves, ``"6xfp16"`` for six products
        of 16 bits, or ``"3xtf32"``. If it depends on the problem, a function of the problem.
    min_arch
        The oldest compute capability that compiles the kernel, times ten: 75 is sm_75.
    refuses
        Returns a text that names the limit that a problem exceeds, or an empty string if the variant supports
        the problem. A batch that is refused is computed in parts if the variant supports a smaller one.
    host
        Instead of a plan: a NumPy function of the problem's inputs, in their order.
    needs_gpu
        The reason why the emulator cannot run it; empty if it can.
    sweep
        The search that found its parameters.
    compact
        The same kernel in blocks of at most 64 KB of shared memory, for GPUs with too little shared memory.
    lookup, name, folder
        Set by `find`: a function that finds other variants, the name of this one, and its folder.
    """

    op: str
    idea: str
    plan: Callable[[Any], Sequence[WrittenStep]] | None = None
    setup: Callable[[Any], Sequence[WrittenStep]] = lambda problem: ()
    scratch: Callable[[Any], Mapping[str, Any]] = lambda problem: {}
    defines: Mapping[str, int] | Callable[[Any], Mapping[str, int]] = field(default_factory=dict)
    parent: str | None = None
    precision: str = "fp32"
    compute_type: str | Callable[[Any], str] = ""
    min_arch: int = 75
    refuses: Callable[[Any], str] = lambda problem: ""
    host: HostFunction | None = None
    needs_gpu: str = ""
    sweep: Sweep | None = None
    compact: Variant | None = None
    lookup: Callable[[str], Variant] | None = None
    name: str = ""
    folder: Path = Path()

    @property
    def source(self) -> Path:
        """The kernel file."""
        return self.folder / "kernel.cu"

    @property
    def operation(self) -> Operation:
        """The operation that it computes."""
        return ops.find(self.op)

    def limit_for(self, problem: Any) -> str:
        """The limit that the problem exceeds; empty if the variant supports it.

        Raises
        ------
        VariantError
            The problem belongs to another operation, or ``refuses`` fails.
        """
        if type(problem) is not self.operation.problem:
            raise VariantError(
                f"{self.name} computes {self.op}, whose problems are {self.operation.usage}; found {problem}"
            )
        limit = self._call("refuses", self.refuses, problem)
        if not isinstance(limit, str | None):
            raise VariantError(
                f"{self.name}: refuses returned {limit!r}; expected the limit in words, or an empty string "
                "if the variant supports the problem"
            )
        return limit or ""

    def limit_of_launches(self, problem: Any) -> str:
        """The reason why one of the plan's own launches cannot exist; empty if all can.

        It may be a tensor map, or a grid that is too long even for one entry of the batch.
        """
        steps = self._steps("plan", self.plan, problem)
        fault = fault_of_maps(steps, {**problem.arrays, **self._scratch(problem)})
        if fault or not fault_of_grids(steps):
            return fault
        return fault_of_grids(self._steps("plan", self.plan, problem.with_batch(1)))

    def planned(self, problem: Any, max_shared_bytes: int) -> Planned:
        """The plan for a problem, on a device whose blocks may have this much shared memory.

        It is the plan of `compact` if a block of the variant itself needs more. If `compact` also needs more,
        the launch raises an error. Arrays of a fixed size in the kernel are needed in addition to the shared
        memory of a launch, and a variant must leave room for them.

        Raises
        ------
        LimitError
            The variant, or one that its plan calls, refuses the problem.
        VariantError
            One of its functions fails or returns an invalid value; the message names the line.
        """
        limit = self.limit_for(problem)
        if limit:
            raise LimitError(f"{self.name} does not support {problem}: {limit}")
        steps = self._steps("plan", self.plan, problem)
        variant = self
        if self.compact is not None:
            variant = self._fitting(steps, max_shared_bytes)
            steps = steps if variant is self else variant._steps("plan", variant.plan, problem)
        planned = Planned(
            name=self.name,
            problem=problem,
            steps=(),
            setup=without_calls(self.name, variant._steps("setup", variant.setup, problem)),
            scratch=variant._scratch(problem),
            defines=variant.defines_for(problem),
            source=self.source,
            precision=self.precision,
            min_arch=self.min_arch,
            needs_gpu=self.needs_gpu,
        )
        return with_calls(planned, steps, self._other, max_shared_bytes)

    def solver(self, problem: Any) -> Variant:
        """The variant whose kernels solve a problem: this one, or the one that its plan calls for all of it.

        Raises
        ------
        VariantError
            See `planned`.
        """
        if self.plan is None or self.limit_for(problem):
            return self
        match self._steps("plan", self.plan, problem):
            case (Call(impl, whole, arrays),) if whole == problem and all(a == b for a, b in arrays.items()):
                return self._other(impl).solver(problem)
        return self

    def _other(self, name: str) -> Variant:
        """Return the variant for a step of the plan."""
        if self.lookup is None:
            raise VariantError(
                f"{self.name}: a step with impl={name!r} runs another variant's kernels; a submission is "
                "graded by its own, and a Variant that is not loaded by its name knows no other"
            )
        return self.lookup(name)

    def defines_for(self, problem: Any) -> Mapping[str, int]:
        """Return the preprocessor definitions for this problem."""
        given = self._call("defines", self.defines, problem) if callable(self.defines) else self.defines
        try:
            return {name: int(index(value)) for name, value in dict(given).items()}
        except (TypeError, ValueError) as error:
            raise VariantError(
                f"{self.name}: defines returned {given!r}; expected names with integers: {{'TILE': 16}}"
            ) from error

    def computes_in(self, problem: Any) -> str:
        """The type of its products for a problem, one of `COMPUTE_TYPES`."""
        given = self.compute_type
        if callable(given):
            given = self._call("compute_type", given, problem)
            if given not in COMPUTE_TYPES:
                known = ", ".join(map(repr, COMPUTE_TYPES))
                raise VariantError(
                    f"{self.name}: compute_type returned {given!r}, which is not one of {known}"
                )
        return given or self.precision

    def run_host(self, problem: Any, arrays: Arrays) -> dict[str, np.ndarray]:
        """Call ``host``, for a variant that has it, and return the outputs by name."""
        assert self.host is not None, "the caller looks"
        found = self._call("host", self.host, *(arrays[name] for name in problem.named("in", "weight")))
        expected = problem.named("out")
        outputs = dict(zip(expected, found if isinstance(found, tuple) else (found,), strict=False))
        for name, array in expected.items():
            shape = getattr(outputs.get(name), "shape", type(outputs.get(name)))
            if shape != array.shape:
                raise VariantError(f"{self.name}: host returns {shape}; expected {array.shape}")
        return outputs

    def _fitting(self, steps: Sequence[WrittenStep], max_shared_bytes: int) -> Variant:
        """The variant itself, or `compact` if a block needs more shared memory than is available."""
        if not isinstance(self.compact, Variant) or self.compact.plan is None:
            raise VariantError(
                f"{self.name}: compact is {self.compact!r}; expected a Variant with a plan, which launches "
                "the same kernels in smaller blocks"
            )
        if all(step.shared_bytes <= max_shared_bytes for step in steps if isinstance(step, Launch)):
            return self
        return replace(self.compact, name=self.name, folder=self.folder)

    def _scratch(self, problem: Any) -> dict[str, Array]:
        given = self._call("scratch", self.scratch, problem)
        try:
            found = {str(name): scratch_array(value) for name, value in dict(given).items()}
        except (TypeError, ValueError) as error:
            raise VariantError(
                f"{self.name}: scratch returned {given!r}; expected names with shapes of integers of 1 "
                "or more: {'col': (s.K, s.cols)}, or Array((s.K, s.cols), 'float16') if it is not float32"
            ) from error
        taken = sorted(set(found) & set(problem.arrays))
        if taken:
            known = ", ".join(problem.arrays)
            raise VariantError(f"{self.name}: scratch has a buffer '{taken[0]}'; {known} are given")
        return found

    def _steps(
        self, what: str, function: Callable[[Any], Sequence[WrittenStep]] | None, problem: Any
    ) -> tuple[WrittenStep, ...]:
        """Call a function that returns steps, and check them."""
        assert function is not None, "find() lets no variant through that has neither plan nor host"
        given = self._call(what, function, problem)
        if not isinstance(given, Iterable):
            raise VariantError(f"{self.name}: {what} returns {given!r}; it must return a list of steps")
        steps = self._call(what, tuple, given)
        for step in steps:
            if not isinstance(step, WrittenStep):
                raise VariantError(
                    f"{self.name}: {what} returns {step!r}, which is not a step such as Launch(...)"
                )
            check_step(step, self.name)
            if isinstance(step, Launch) and step.new_in_hopper and self.min_arch < CLUSTER_ARCH:
                raise VariantError(
                    f"{self.name}: {what} launches {step.kernel} with {step.new_in_hopper}, which needs "
                    f"min_arch={CLUSTER_ARCH} in VARIANT; found {self.min_arch}"
                )
        return tuple(steps)

    def _call(self, what: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of ``variant.py``. Its errors become errors that name the line."""
        try:
            return function(*args)
        except (Exception, SystemExit) as error:
            file = self.folder / "variant.py"
            raise VariantError(f"{self.name}: {what} of {file} fails: {where(error, file)}") from error
