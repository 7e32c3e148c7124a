"""Run a variant on the counting emulator, and trace the most interesting blocks."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from mini_dnn.device.emulator.counted import CountedEmulator, CountedLaunch
from mini_dnn.device.emulator.emulator import EmulatorDevice
from mini_dnn.errors import UsageError
from mini_dnn.explain.kernels import Counted, counted
from mini_dnn.measuring.measure import pointing_to_check
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant
from mini_dnn.variant.plan import Launch

MOST_BLOCKS = 6  # of a launch
MOST_RECORDS = 150_000  # of a worker in a launch


def check_countable(variant: Variant, problem: Any) -> None:
    """Raise an error if a variant has no kernels that can be counted at a problem.

    Raises
    ------
    UsageError
        The variant runs on the host, needs a GPU, or does not support the problem.
    """
    if variant.plan is None:
        raise UsageError(
            f"{variant.name} is NumPy and runs on the host: it has no kernels to explain; try m1"
        )
    if variant.needs_gpu:
        raise UsageError(f"{variant.name} cannot be explained: {variant.needs_gpu}")
    limit = variant.limit_for(problem)
    if limit:
        raise UsageError(
            f"{variant.name} does not support {problem}: {limit}; use --shapes to select another problem, or "
            "name another variant"
        )


def collect(variant: Variant, problem: Any, seed: int = 0, threads: int | None = None) -> list[Counted]:
    """Run a variant at a problem that passes `check_countable`, and return its kernels with their counters.

    Parameters
    ----------
    threads
        Threads of the emulator. With one thread, blocks that distribute work dynamically always do it in the
        same way.

    Raises
    ------
    UsageError
        The variant has no kernels of its own at this problem.
    """
    planned = variant.planned(problem, EmulatorDevice.max_shared_bytes)
    blocks = {
        block
        for step in (*planned.setup, *planned.steps)
        if isinstance(step, Launch)
        for block in worth_a_look(step.grid)
    }
    with (
        closing(CountedEmulator(threads, blocks=blocks, records=MOST_RECORDS)) as device,
        pointing_to_check(variant, problem),
    ):
        run(variant, problem, variant.operation.inputs(problem, seed), device)
        launches: Sequence[CountedLaunch] = device.launches
    if not launches:
        raise UsageError(
            f"{variant.name} launches no kernel of its own at {problem}, so there is nothing to explain; "
            "try m1"
        )
    return counted(launches)


def worth_a_look(grid: Sequence[int]) -> list[int]:
    """Return the linear numbers of some blocks: the first, its neighbours, the middle and the last."""
    gx, gy, gz = (*grid, 1, 1)[:3]
    wanted = [
        (0, 0, 0),
        (1, 0, 0),
        (0, 1, 0),
        (0, 0, 1),
        (gx // 2, gy // 2, gz // 2),
        (gx - 1, gy - 1, gz - 1),
    ]
    inside = [(x, y, z) for x, y, z in wanted if x < gx and y < gy and z < gz]
    return list(dict.fromkeys(x + gx * (y + gy * z) for x, y, z in inside))[:MOST_BLOCKS]
