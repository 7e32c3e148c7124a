"""Operations as functions of arrays: what `mini_dnn` offers to Python programs."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from mini_dnn.device import Device, check_name, open_device
from mini_dnn.ops import Arrays, Operation
from mini_dnn.running.runnable import runs_on
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, default_of, find, preferred


def compute(
    operation: Operation,
    problem: Any,
    arrays: Arrays,
    impl: str | Path | Variant | None,
    device: str | Device,
) -> Arrays:
    """The outputs of a problem by name, for arrays in host memory.

    Parameters
    ----------
    impl
        A variant, its name or its path; None for the best one for the problem and the device.
    device
        ``"auto"``, ``"cuda"``, ``"emulator"``, or an open device, which saves opening one for each call.

    Raises
    ------
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    variant = impl if impl is None or isinstance(impl, Variant) else find(impl)
    if isinstance(device, str):
        check_name(device)
    if variant is not None and variant.host is not None:
        return run(variant, problem, arrays, None).outputs
    with closing(open_device(device)) if isinstance(device, str) else nullcontext(device) as opened:
        return run(variant or best(operation, problem, opened), problem, arrays, opened).outputs


def best(operation: Operation, problem: Any, device: Device) -> Variant:
    """The variant that is used if none is named: see `Operation.preferred`."""
    for asked in (problem, problem.with_batch(1)):  # a batch that is too large as a whole is split
        for variant in preferred(operation):
            supports = not (variant.limit_for(asked) or variant.limit_of_launches(asked))
            if supports and runs_on(variant, device, asked):
                return variant
    return find(default_of(operation.name, operation.default))
