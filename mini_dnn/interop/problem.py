"""Finds the problem of arrays on a GPU: the operation gets arrays in host memory that are never read."""

from __future__ import annotations

import mmap
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.interop.signature import signature_of
from mini_dnn.ops import Operation

Meta = tuple[tuple[int, ...], str]  # shape, and NumPy's name of the type

WORDS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}  # what operations call types


class Asked(NamedTuple):
    """A problem, and the arrays that belong to it."""

    problem: Any
    which: dict[str, int]  # for each of the problem's given arrays, which one it is
    results: dict[str, Meta]  # what the results are like, by name


def problem_of(
    operation: Operation, names: Sequence[str], metas: Sequence[Meta], fields: Mapping[str, Any]
) -> Asked:
    """The problem for arrays with these shapes and types.

    Parameters
    ----------
    names, metas
        The name, and the shape and type, of each array.
    fields
        Fields of the problem that arrays do not determine.

    Raises
    ------
    ShapeError
        The arrays do not fit the operation, or would have to be converted.
    """
    optional = signature_of(operation).optional
    stand_ins = [_stand_in(name, *meta) for name, meta in zip(names, metas, strict=True)]
    by_name = {name: array for name, array in zip(names, stand_ins, strict=True) if name in optional}
    by_place = [array for name, array in zip(names, stand_ins, strict=True) if name not in optional]
    with np.errstate(all="ignore"):  # a conversion, which is refused below
        problem, found = operation.of(*by_place, **by_name, **fields)
    places = [(array.ctypes.data, array.dtype) for array in stand_ins]
    which = {}
    for name, array in found.items():
        if (array.ctypes.data, array.dtype) not in places:
            expected = problem.arrays[name]
            raise ShapeError(
                f"{name} must be {expected.dtype} {expected.shape} for {problem}, and arrays on a GPU are "
                f"not converted; found {_listed(names, metas)}. Convert {name} first"
            )
        which[name] = places.index((array.ctypes.data, array.dtype))
    return Asked(problem, which, results_of(problem, len(metas[0][0])))


def results_of(problem: Any, rank: int) -> dict[str, Meta]:
    """What the results are like if the first array was given with this many axes."""
    first = next(iter(problem.arrays.values()))
    start = int(rank < len(first.shape))  # 1: one entry, given without the batch's axis
    return {name: (array.shape[start:], array.dtype) for name, array in problem.named("out").items()}


def check_results(problem: Any, results: Mapping[str, Meta], found: Sequence[Meta]) -> None:
    """Check that the results of a problem can be written to these arrays.

    Raises
    ------
    ShapeError
        The shape or type of an array is wrong.
    """
    expected = list(results.values())
    if list(found) != expected:
        raise ShapeError(
            f"out= is {_listed(['an array'] * len(found), found)}; the results of {problem} need "
            f"{_listed(['an array'] * len(expected), expected)}"
        )


def word_of(dtype: str) -> str:
    """The name of a type in operations: ``"fp16"`` for ``"float16"``."""
    return WORDS.get(dtype, dtype)


def _stand_in(name: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array whose memory is never accessed. It is read-only memory, of which the system reserves none."""
    try:
        kind = np.dtype(dtype)
    except TypeError as error:
        raise ShapeError(f"{name} is {dtype}, a type that no operation supports") from error
    nbytes = max(1, prod(shape) * kind.itemsize)
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ)
    return np.ndarray(shape, kind, memory)


def _listed(names: Sequence[str], metas: Sequence[Meta]) -> str:
    return ", ".join(
        f"{name} {tuple(shape)} {dtype}" for name, (shape, dtype) in zip(names, metas, strict=True)
    )
