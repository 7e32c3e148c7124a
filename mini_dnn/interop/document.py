"""The documentation of an operation's function, for ``help()`` and editors, from that of its ``of``."""

from __future__ import annotations

import inspect
import re

from mini_dnn.ops import Operation

SECTION = re.compile(r"^Parameters\n-+\n(?P<text>.*?)\n*(?=^\w+\n-+$|\Z)", re.DOTALL | re.MULTILINE)
COMMON = """\
impl
    The variant: a name that ``run.py list`` shows, or the path of a folder. By default, the best one for the
    problem and the device.
device
    For arrays in host memory: ``"auto"``, ``"cuda"``, ``"emulator"``, or an open device, which saves opening
    one in each call. Arrays on a GPU are computed there."""
OUT = """
out
    An array for the result, or a tuple of arrays if there are several. It must not overlap other arrays."""
RETURNS = """\
Returns
-------
The output, or a tuple if there are several, as arrays of the same library. It is ``out`` if that is an array.

Raises
------
ShapeError
    Arrays or arguments do not fit the operation; the message says what was expected.
VariantError
    There is no such variant, or it does not support the problem.
DeviceError
    The device cannot be opened, or runs out of memory.
UsageError
    An unknown or missing argument."""


def document(operation: Operation) -> str:
    """The docstring, in numpydoc's form."""
    section = SECTION.search(inspect.getdoc(operation.of) or "")
    own = section["text"] if section else _arrays(operation)
    summary = f"{operation.about[0].upper()}{operation.about[1:]}."
    out = "" if "out" in inspect.signature(operation.of).parameters else OUT
    parameters = f"Parameters\n----------\n{own}\n{COMMON}{out}"
    return "\n\n".join(part for part in (summary, operation.notes, parameters, RETURNS) if part)


def _arrays(operation: Operation) -> str:
    """The inputs and their axes, where ``of`` does not describe them."""
    arrays = operation.check[0].arrays.items()
    given = [(name, array) for name, array in arrays if array.role != "out"]
    return "\n".join(f"{name}\n    ({', '.join(array.axes.upper())}) {array.dtype}." for name, array in given)
