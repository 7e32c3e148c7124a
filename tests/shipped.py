"""The variants that have kernels for the emulator, and a small problem of each for checked mode."""

from typing import Any

from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import find, names

SMALL = (ConvShape(2, 3, 7, 9, 5, 3, 2), ConvShape(1, 2, 12, 37, 17, 2, 5))
NETWORKS = ("lenet", "resnet", "vit")
CHECKABLE = [name for name in names() if (v := find(name)).plan is not None and not v.needs_gpu]


def small_problem(name: str) -> Any:
    """The same problem in all tests, so that a kernel is compiled once.

    An operation's first problem shows least.
    """
    variant = find(name)
    operation = variant.operation
    among = [*operation.check, *operation.spare, *operation.particular]
    taken = [problem for problem in among if not variant.limit_for(problem)]
    taken = [problem for problem in taken if variant.solver(problem) is variant] or taken
    if variant.op in NETWORKS:  # the work of their problems differs by a factor of a hundred
        return min(taken[1:3], key=lambda problem: problem.flops)
    return SMALL[0] if variant.op == "conv2d" else taken[:2][-1]
