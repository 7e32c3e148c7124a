"""What several tests of ``show --standalone`` share."""

from typing import Any

from mini_dnn import ops
from mini_dnn.checking.launches import shared_limit
from mini_dnn.variant import Variant
from mini_dnn.variant.standalone import Origin, standalone

ORIGIN = Origin("a test", "0123456789")
GEMM = ops.find("gemm")


def small(variant: Variant) -> Any:
    """A course problem that the variant takes, with a few entries; if those are large, one of `check`."""
    operation = variant.operation
    among = operation.check if operation.sample else operation.course.values()
    taken = [problem for problem in among if not variant.limit_for(problem)]
    return taken[-1].with_batch(min(taken[-1].batch, 7))


def files_of(variant: Variant, problem: Any, arch: int = 90) -> dict[str, bytes]:
    """The folder's files by name."""
    return standalone(variant, problem, ORIGIN, arch, shared_limit(arch))
