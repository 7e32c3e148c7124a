"""Finds wrong outputs of one problem."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from mini_dnn.device.finding import Finding
from mini_dnn.ops import Array, Arrays, Operation
from mini_dnn.ops.compare import compare_all, wrong_elements
from mini_dnn.ops.hints import hint, tail

GRID = (
    "the grid must cover the last, partial tile: ceil_div(size, tile) blocks, with a bounds check in "
    "the kernel"
)


class Example:
    """Inputs of a problem and their expected outputs, which are computed once for any number of comparisons.

    Parameters
    ----------
    arrays
        The inputs.
    precision
        The precision of the variant: see `Operation.bound`.
    """

    def __init__(self, operation: Operation, problem: Any, arrays: Arrays, precision: str) -> None:
        self.operation, self.problem, self.arrays, self.precision = operation, problem, arrays, precision

    @cached_property
    def expected(self) -> Arrays:
        """The answer in float64."""
        return self.operation.answer(self.problem, self.arrays)

    @cached_property
    def _bound(self) -> Arrays:
        return self.operation.bound(self.problem, self.arrays, self.precision)

    def judge(self, outputs: Arrays) -> Finding | None:
        """The finding about outputs, if any: elements that were not written, or that differ from float64."""
        result = compare_all(outputs, self.expected, self._bound)
        if result.first is None:
            return None
        for name, array in self.problem.named("out").items():
            wrong = wrong_elements(outputs[name], self.expected[name], self._bound[name])
            unwritten = wrong & _fresh(outputs[name])
            if unwritten.any():
                return _unwritten(self.operation, name, array, unwritten)
        name, array = result.array, self.problem.arrays[result.array]
        first = f"{name}{array.index(result.first)}"
        wrong = wrong_elements(outputs[name], self.expected[name], self._bound[name])
        what = (
            f"{wrong.sum()} of {wrong.size} elements of {name} {array.shape} differ from "
            f"float64; the first is {first}: found {result.found:.6g}, expected {result.expected:.6g}"
        )
        guess = hint(self.operation, self.problem, self.arrays, outputs, self.precision)
        notes = (guess,) if guess else ()
        file = f"mini_dnn/ops/{self.operation.name}.py"
        cure = self.operation.cure or f"compare the kernel with the definition, answer() in {file}"
        return Finding("wrong", what, array=first, cure=cure, notes=notes)


def judge(
    operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str
) -> Finding | None:
    """Judge outputs whose inputs are used only once: see `Example`."""
    return Example(operation, problem, arrays, precision).judge(outputs)


def judge_part(
    operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str
) -> Finding | None:
    """Judge only the written elements of outputs, because some blocks did not run."""
    example = Example(operation, problem, arrays, precision)
    written = {
        name: np.where(_fresh(found), example.expected[name], found) for name, found in outputs.items()
    }
    return example.judge(written)


def _fresh(output: np.ndarray) -> np.ndarray:
    """A mask of the elements with the content of a new buffer: bytes 0xFF."""
    data = np.ascontiguousarray(output).view(np.uint8).reshape(*output.shape, output.itemsize)
    return np.asarray((data == 0xFF).all(axis=-1))


def _unwritten(operation: Operation, name: str, array: Array, missing: np.ndarray) -> Finding:
    first = f"{name}{array.index(np.unravel_index(int(np.argmax(missing)), missing.shape))}"
    what = (
        f"{missing.sum()} of {missing.size} elements of {name} {array.shape} were not written by any thread; "
        f"the first is {first}"
    )
    where = tail(missing, array, operation.axes)
    return Finding("unwritten", what, array=first, cure=GRID, notes=(where,) if where else ())
