"""Operations as functions of arrays: what `mini_dnn` offers to Python programs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn.device import Device, check_name, open_device
from mini_dnn.ops import Operation
from mini_dnn.running.runnable import runs_on
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, default_of, find, preferred


def compute(
    operation: Operation,
    given: Sequence[Any],
    /,
    impl: str | Path | Variant | None = None,
    device: str | Device = "auto",
    **fields: Any,
) -> Any:
    """Compute an operation of arrays in host memory, for the functions of `mini_dnn`.

    Parameters
    ----------
    given
        The arrays, in the operation's order.
    impl, device, fields
        See `mini_dnn.interop.function.Function`.

    Returns
    -------
    The output, or a tuple if there are several. If arrays are given without the axis of the batch, it has
    none.

    Raises
    ------
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    problem, arrays = operation.of(*given, **fields)
    variant = impl if impl is None or isinstance(impl, Variant) else find(impl)
    if isinstance(device, str):
        check_name(device)
    if variant is not None and variant.host is not None:
        result = run(variant, problem, arrays, None)
    else:
        with closing(open_device(device)) if isinstance(device, str) else nullcontext(device) as opened:
            result = run(variant or best(operation, problem, opened), problem, arrays, opened)
    first = next(iter(problem.arrays.values()))
    alone = np.ndim(given[0]) < len(first.shape)  # a single entry without the axis of the batch
    outputs = tuple(output[0] if alone else output for output in result.outputs.values())
    return outputs if len(outputs) > 1 else outputs[0]


def best(operation: Operation, problem: Any, device: Device) -> Variant:
    """The variant that is used if none is named: see `Operation.preferred`."""
    for asked in (problem, problem.with_batch(1)):  # a batch that is too large as a whole is split
        for variant in preferred(operation):
            supports = not (variant.limit_for(asked) or variant.limit_of_launches(asked))
            if supports and runs_on(variant, device, asked):
                return variant
    return find(default_of(operation.name, operation.default))
