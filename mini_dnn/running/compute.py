"""Operations as functions of arrays: what `mini_dnn` offers to Python programs."""

from __future__ import annotations

import inspect
from contextlib import closing, nullcontext
from typing import Any

import numpy as np

from mini_dnn.device import Device, check_name, open_device
from mini_dnn.ops import Operation
from mini_dnn.running.runnable import runs_on
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, default_of, find, preferred


def compute(operation: Operation, *given: Any, **fields: Any) -> Any:
    """Compute an operation of arrays in host memory, for the functions of `mini_dnn`.

    Parameters
    ----------
    given
        The arrays, in the operation's order. After them, or as keyword arguments:

        impl
            A variant: a name that ``run.py list`` shows, or a path; by default the best one for the
            problem and the device.
        device
            ``"auto"``, ``"cuda"``, ``"emulator"``, or an open device, which saves opening one for each call.
    fields
        Fields of the problem that the arrays do not determine, such as ``pool=2``.

    Returns
    -------
    The output, or a tuple if there are several. If arrays are given without the axis of the batch, it has
    none.

    Raises
    ------
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    count = _array_count(operation, len(given))
    options = dict(zip(("impl", "device"), given[count:], strict=False))
    impl = fields.pop("impl", options.get("impl"))
    device = fields.pop("device", options.get("device", "auto"))
    problem, arrays = operation.of(*given[:count], **fields)
    variant = impl if impl is None or isinstance(impl, Variant) else find(impl)
    if isinstance(device, str):
        check_name(device)
    if variant is not None and variant.host is not None:
        result = run(variant, problem, arrays, None)
    else:
        with closing(open_device(device)) if isinstance(device, str) else nullcontext(device) as opened:
            result = run(variant or best(operation, problem, opened), problem, arrays, opened)
    name, first = next(iter(problem.arrays.items()))
    # A single entry without the axis of the batch
    alone = np.ndim(given[0] if given else fields[name]) < len(first.shape)
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


def _array_count(operation: Operation, given: int) -> int:
    """How many of the positional arguments are arrays."""
    parameters = inspect.signature(operation.of).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return given
    return sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
