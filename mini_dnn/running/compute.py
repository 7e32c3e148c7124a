"""Operations as functions of arrays: what `mini_dnn` offers to Python programs."""

from __future__ import annotations

import inspect
from contextlib import closing
from typing import Any

from mini_dnn.device import check_name, open_device
from mini_dnn.ops import Operation
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find


def compute(operation: Operation, *given: Any, **fields: Any) -> Any:
    """Compute an operation of arrays: what the functions of `mini_dnn` call.

    Parameters
    ----------
    given
        The arrays, in the operation's order. After them, or by name:

        impl
            A variant: a name that ``run.py list`` shows, or a path; by default the operation's best.
        device
            ``"auto"``, ``"cuda"``, ``"emulator"``, or an open device, which saves opening one for each call.
    fields
        What the arrays do not tell of the problem, such as ``pool=2``.

    Returns
    -------
    The output; a tuple where there are several.

    Raises
    ------
    ShapeError, VariantError, DeviceError
        See `mini_dnn.errors`.
    """
    count = _array_count(operation, len(given))
    options = dict(zip(("impl", "device"), given[count:], strict=False))
    impl = fields.pop("impl", options.get("impl")) or operation.default
    device = fields.pop("device", options.get("device", "auto"))
    problem, arrays = operation.of(*given[:count], **fields)
    variant = impl if isinstance(impl, Variant) else find(impl)
    if isinstance(device, str):
        check_name(device)
    if variant.host is not None or not isinstance(device, str):
        result = run(variant, problem, arrays, None if isinstance(device, str) else device)
    else:
        with closing(open_device(device)) as opened:
            result = run(variant, problem, arrays, opened)
    outputs = tuple(result.outputs.values())
    return outputs if len(outputs) > 1 else outputs[0]


def _array_count(operation: Operation, given: int) -> int:
    """How many of the positional arguments are arrays."""
    parameters = inspect.signature(operation.of).parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return given
    return sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters)
