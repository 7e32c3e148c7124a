"""What is wrong with the outputs of one problem."""

from __future__ import annotations

from typing import Any

import numpy as np

from mini_dnn.device.finding import Finding
from mini_dnn.ops import Array, Arrays, Operation
from mini_dnn.ops.compare import compare_all, wrong_elements
from mini_dnn.ops.hints import hint, tail

GRID = "the grid must cover the ragged tail: ceil_div(size, tile) blocks, and a bounds check in the kernel"


def judge(
    operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str
) -> Finding | None:
    """What is wrong with outputs, if anything: elements that nobody wrote, or others than float64's.

    Parameters
    ----------
    arrays
        What was given.
    precision
        What the variant claims: see `Operation.bound`.
    """
    expected = operation.answer(problem, arrays)
    bound = operation.bound(problem, arrays, precision)
    for name, array in problem.named("out").items():
        wrong = wrong_elements(outputs[name], expected[name], bound[name])
        unwritten = wrong & _fresh(outputs[name])
        if unwritten.any():
            return _unwritten(operation, name, array, unwritten)
    result = compare_all(outputs, expected, bound)
    if result.first is None:
        return None
    array = problem.arrays[result.array]
    first = f"{result.array}{array.index(result.first)}"
    what = (
        f"{result.differing} of {result.elements} elements of {result.array} {array.shape} differ from "
        f"float64; the first is {first}: found {result.found:.6g}, expected {result.expected:.6g}"
    )
    guess = hint(operation, problem, arrays, outputs, precision)
    return Finding("wrong", what, array=first, cure=operation.cure, notes=(guess,) if guess else ())


def judge_part(
    operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str
) -> Finding | None:
    """What is wrong with the elements of outputs that were written: some blocks did not run."""
    expected = operation.answer(problem, arrays)
    written = {name: np.where(_fresh(found), expected[name], found) for name, found in outputs.items()}
    return judge(operation, problem, arrays, written, precision)


def _fresh(output: np.ndarray) -> np.ndarray:
    """Which elements hold what a fresh buffer holds: bytes 0xFF alone."""
    data = np.ascontiguousarray(output).view(np.uint8).reshape(*output.shape, output.itemsize)
    return np.asarray((data == 0xFF).all(axis=-1))


def _unwritten(operation: Operation, name: str, array: Array, missing: np.ndarray) -> Finding:
    first = f"{name}{array.index(np.unravel_index(int(np.argmax(missing)), missing.shape))}"
    what = (
        f"{missing.sum()} of {missing.size} elements of {name} {array.shape} were written by no thread; the "
        f"first is {first}"
    )
    where = tail(missing, array, operation.axes)
    return Finding("unwritten", what, array=first, cure=GRID, notes=(where,) if where else ())
