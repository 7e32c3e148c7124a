"""Helpers for tests of ``show --standalone``."""

from typing import Any

from mini_dnn import ops
from mini_dnn.checking.launches import shared_limit
from mini_dnn.variant import Variant
from mini_dnn.variant.standalone import Origin, standalone

ORIGIN = Origin("a test", "0123456789")
GEMM = ops.find("gemm")

LARGE = 1 << 20  # bytes: with larger inputs the answer of a deep network takes seconds


def small(variant: Variant) -> Any:
    """A course problem of the variant with a few entries, or one of `check` if those are large."""
    operation = variant.operation
    few = [] if operation.sample else [p.with_batch(min(p.batch, 7)) for p in operation.course.values()]
    among = [*operation.check, *operation.spare, *(p for p in few if p.min_bytes < LARGE)]
    return [problem for problem in among if not variant.limit_for(problem)][-1]


def files_of(variant: Variant, problem: Any, arch: int = 90) -> dict[str, bytes]:
    """The files of the folder by name."""
    return standalone(variant, problem, ORIGIN, arch, shared_limit(arch))
