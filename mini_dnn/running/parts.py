"""Splits batches into parts that fit in the device's memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mini_dnn.errors import DeviceError, LimitError, ShapeError
from mini_dnn.ops import Arrays
from mini_dnn.variant import Planned, ceil_div
from mini_dnn.variant.planned import fault_of_grids


def empty_outputs(problem: Any) -> dict[str, np.ndarray]:
    """Arrays for the results of a problem."""
    return {name: np.empty(array.shape, array.dtype) for name, array in problem.named("out").items()}


def largest_part(
    plan: Callable[[int], Planned],
    problem: Any,
    free: int,
    most: int | None = None,
    scratch_alone: bool = False,
) -> int:
    """The largest number of entries for which one part fits in the device's memory and the plan's limits.

    Parameters
    ----------
    plan
        Returns the plan for this many entries.
    free
        Free bytes of the device's memory.
    most
        An upper limit for the result.
    scratch_alone
        Whether only scratch memory counts, because the problem's arrays are already on the device.

    Raises
    ------
    DeviceError
        Not even one entry fits.
    LimitError
        The variant does not support the problem, not even for one entry.
    """
    high = min(problem.batch, most or problem.batch)
    if fits(plan, high, free, scratch_alone):
        return high
    try:
        one = plan(1)
    except LimitError:
        plan(high)  # if this is refused as well, its message is about what was requested
        raise
    fault = fault_of_grids(one.launches)
    if fault:
        raise LimitError(
            f"{one.name} does not support {problem}: for one entry of the batch, {fault}. "
            "Use a smaller problem or another variant; in Python, a call without impl= finds one"
        )
    if not one.fits(free, scratch_alone):
        needed = one.scratch_bytes if scratch_alone else one.nbytes
        raise DeviceError(
            f"{one.name} needs {needed / 1e6:.1f} MB for one entry of the batch of {problem}; the device "
            f"has {free / 1e6:.1f} MB free. Use smaller sizes or a variant that needs less, or free memory"
        )
    low = 1  # fits, and high does not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(plan, middle, free, scratch_alone) else (low, middle)
    return low


def fits(plan: Callable[[int], Planned], n: int, free: int, scratch_alone: bool = False) -> bool:
    """Whether a part of ``n`` entries fits, and the variant supports it: see `largest_part`."""
    try:
        return plan(n).fits(free, scratch_alone)
    except LimitError:
        return False


def cut(batch: int, size: int) -> list[tuple[int, int]]:
    """First and last entry of each part of a batch; sizes differ by one at most."""
    parts = ceil_div(batch, size)
    return [(part * batch // parts, (part + 1) * batch // parts) for part in range(parts)]


def entries(problem: Any, arrays: Arrays, first: int, last: int) -> dict[str, np.ndarray]:
    """Entries of the arrays that are divided along the batch; other arrays as a whole.

    Raises
    ------
    ShapeError
        An array is to be divided along the batch, but has another length.
    """
    known = problem.arrays
    for name, value in arrays.items():
        if known[name].split and len(value) != problem.batch:
            raise ShapeError(
                f"{name} {value.shape} has to be divided along its first axis, but the batch of {problem} "
                f"has {problem.batch} entries; if each entry needs the whole array, declare it as "
                "Array(..., split=False)"
            )
    return {name: value[first:last] if known[name].split else value for name, value in arrays.items()}
