"""The programs whose savings are measured: our matrix products, and cuBLAS through PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from mini_dnn import ops
from mini_dnn.device.base import Device
from mini_dnn.errors import CheckError, UsageError
from mini_dnn.measuring.bench import code_of
from mini_dnn.ops import Arrays
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.running.execute import Execution
from mini_dnn.running.runnable import check_runnable
from mini_dnn.variant import Variant, find

OP = "gemm"
TYPES = ("fp32", "fp16")
LIBRARY = (("fp32", "fp32"), ("fp32", "tf32"), ("fp16", "fp16"))  # operands and products
CHECKED = 64  # rows that are compared with float64


@dataclass(frozen=True)
class Prepared:
    """A program that is ready to run.

    Parameters
    ----------
    op
        Issues one run to the device.
    synchronize
        Waits for all runs.
    result
        Some rows of the result of the last run: see `checked_rows`.
    peak_bytes
        The peak of allocated device memory.
    """

    op: Callable[[], object]
    synchronize: Callable[[], object]
    result: Callable[[], np.ndarray]
    peak_bytes: Callable[[], int]


@dataclass(frozen=True)
class Program:
    """A future row."""

    kind: Literal["ours", "library"]
    name: str
    problem: GemmShape
    products: str
    code_hash: str | None
    prepare: Callable[[], AbstractContextManager[Prepared]]
    check: Callable[[np.ndarray], float]

    @property
    def words(self) -> str:
        """The program as text."""
        return f"{self.name}, {self.problem.dtype} as {self.products}"


def programs(names: Sequence[str], size: int, device: Device) -> list[Program]:
    """Our variants in each type that they support, then cuBLAS.

    Raises
    ------
    UsageError
        A variant computes something else, or runs on the host.
    """
    problems = {kind: GemmShape(size, size, size, kind, kind) for kind in TYPES}
    arrays = {kind: ops.find(OP).inputs(problem, seed=0) for kind, problem in problems.items()}
    found = []
    for variant in map(find, names):
        if variant.op != OP or variant.host is not None:
            raise UsageError(f"--impl {variant.name}: expected a variant of {OP} that runs on a GPU")
        for kind, problem in problems.items():
            if not variant.limit_for(problem):
                found.append(_ours(variant, problem, arrays[kind], device))
    return [*found, *(_library(problems[kind], products, arrays[kind]) for kind, products in LIBRARY)]


def checked_rows(problem: GemmShape) -> np.ndarray:
    """Rows spread over c."""
    return np.unique(np.linspace(0, problem.m - 1, CHECKED).astype(np.int64))


def relative_error(problem: GemmShape, arrays: Arrays, precision: str, found: np.ndarray) -> float:
    """The norm of the error of the rows of `checked_rows`, divided by the norm of the answer.

    Raises
    ------
    CheckError
        The error of an element exceeds the operation's bound.
    """
    rows = checked_rows(problem)
    part, given = replace(problem, m=len(rows)), {"a": arrays["a"][:, rows], "b": arrays["b"]}
    expected = ops.find(OP).answer(part, given)
    compared = compare_all({"c": found}, expected, ops.find(OP).bound(part, given, precision))
    if not compared.ok:
        raise CheckError(f"{compared}")
    return float(np.linalg.norm(found - expected["c"]) / np.linalg.norm(expected["c"]))


def _ours(variant: Variant, problem: GemmShape, arrays: Arrays, device: Device) -> Program:
    products = variant.compute_type or variant.precision
    return Program(
        kind="ours",
        name=variant.name,
        problem=problem,
        products=products,
        code_hash=code_of(variant),
        prepare=lambda: _on_device(variant, problem, arrays, device),
        check=lambda found: relative_error(problem, arrays, variant.precision, found),
    )


@contextmanager
def _on_device(variant: Variant, problem: GemmShape, arrays: Arrays, device: Device) -> Iterator[Prepared]:
    check_runnable(variant, device)
    planned = variant.planned(problem, device.max_shared_bytes)
    execution = Execution(planned, device.compile(planned.source, planned.defines), device)

    def result() -> np.ndarray:
        c = np.empty(problem.arrays["c"].shape, problem.arrays["c"].dtype)
        device.copy_out(execution.buffers["c"], c)
        return c[:, checked_rows(problem)]

    try:
        execution.fill()
        for name, value in arrays.items():
            device.copy_in(execution.buffers[name], value)
        execution.set_up()
        yield Prepared(execution.kernels, device.synchronize, result, lambda: planned.nbytes)
    finally:
        execution.free()


def _library(problem: GemmShape, products: str, arrays: Arrays) -> Program:
    return Program(
        kind="library",
        name="cuBLAS",
        problem=problem,
        products=products,
        code_hash=None,
        prepare=lambda: _in_torch(problem, products, arrays),
        check=lambda found: relative_error(problem, arrays, products, found),
    )


@contextmanager
def _in_torch(problem: GemmShape, products: str, arrays: Arrays) -> Iterator[Prepared]:
    import torch  # imported here: without it, only these rows are skipped
    from peers_torch import use

    use(products)
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False  # sums in fp32
    torch.cuda.reset_peak_memory_stats()
    tensors = {name: torch.from_numpy(value[0]).cuda() for name, value in arrays.items()}
    tensors["c"] = torch.empty(problem.m, problem.n, dtype=tensors["a"].dtype, device="cuda")
    rows = torch.from_numpy(checked_rows(problem)).cuda()

    def op() -> None:
        torch.matmul(tensors["a"], tensors["b"], out=tensors["c"])

    def result() -> np.ndarray:
        return tensors["c"][rows].cpu().numpy()[None]

    try:
        yield Prepared(op, torch.cuda.synchronize, result, torch.cuda.max_memory_allocated)
    finally:
        tensors.clear()
        torch.cuda.empty_cache()


def versions() -> dict[str, Any]:
    """The version of PyTorch, if it is installed."""
    try:
        import torch
    except (ImportError, OSError):
        return {}
    return {"torch": torch.__version__, "torch_cuda": str(torch.version.cuda)}
