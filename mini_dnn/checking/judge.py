"""Finds wrong outputs of one problem."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, eq=False)
class Example:
    """Inputs of a problem and their expected outputs, which are computed once for any number of comparisons.

    Parameters
    ----------
    arrays
        The inputs.
    precision
        The precision of the variant: see `Operation.bound`.
    """

    operation: Operation
    problem: Any
    arrays: Arrays
    precision: str

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

    def judge_written(self, outputs: Arrays) -> Finding | None:
        """The finding about the elements that were written, if some blocks did not run."""
        return self.judge(
            {name: np.where(_fresh(found), self.expected[name], found) for name, found in outputs.items()}
        )

    def are_same(self, first: Arrays, second: Arrays) -> bool:
        """Whether two outputs differ by no more than the error bound."""
        bound = self._bound
        with np.errstate(invalid="ignore"):
            return not any(wrong_elements(first[name], second[name], bound[name]).any() for name in bound)


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
