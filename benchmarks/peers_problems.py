"""The subjects of the comparison: convolutions and the whole network, with float64 answers and the check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn import ops
from mini_dnn.errors import CheckError
from mini_dnn.measuring.inference import Program
from mini_dnn.ops import Arrays, Operation
from mini_dnn.ops.compare import compare

CHECKED = 64  # entries that are compared with float64, spread over the batch
# Names for the problems of these operations, in order
WORDS = {"conv2d": "conv{}", "conv2d_relu_pool": "fused{}"}
NETWORK = "lenet"
# The largest error that a library may have, whatever the order of its sums: ||y - reference|| /
# ||reference||, and the largest error divided by the largest value
TOLERANCE = {"fp32": (1e-5, 1e-4), "tf32": (2e-3, 1e-2), "fp16": (2e-3, 1e-2)}


@dataclass(frozen=True, eq=False)
class Subject:
    """A problem with its inputs, and the float64 answer for some entries of the batch.

    Parameters
    ----------
    what
        A word for it: "conv1", "conv2", "fused1", "fused2" or "network".
    operation, name, problem
        The problem.
    arrays
        All inputs by name.
    fetched
        Indices of the entries whose results the check needs.
    checked
        Those among them that have an answer.
    expected, bound
        Their answers, and the largest error of an answer in each precision.
    labels
        The right class of each entry of the batch; None if there are no classes.
    """

    what: str
    operation: Operation
    name: str
    problem: Any
    arrays: Arrays
    fetched: np.ndarray
    checked: np.ndarray
    expected: np.ndarray
    bound: Mapping[str, np.ndarray]  # by precision
    labels: np.ndarray | None = None

    @property
    def input(self) -> np.ndarray:
        """The input that is passed in each call."""
        (name,) = (name for name, array in self.problem.named("in").items() if array.split)
        return self.arrays[name]

    @property
    def output(self) -> str:
        """The name of the result."""
        (name,) = self.problem.named("out")
        return name

    @property
    def facts(self) -> dict[str, Any]:
        """The fields of a row that identify the problem."""
        return {"op": self.operation.name, "problem": self.name, "batch": self.problem.batch}

    def check_library(self, found: np.ndarray, precision: str) -> dict[str, float]:
        """Check a library's results for the fetched entries. For a network, this is the same as `check_ours`.

        Raises
        ------
        CheckError
            The errors are too large, or a result is not finite.
        """
        if self.labels is not None:
            return self.check_ours(found, precision)
        errors = self._errors(found)
        relative, largest = errors["relative_error"], errors["max_error"]
        of_norm, of_largest = TOLERANCE[precision]
        if not (relative <= of_norm and largest <= of_largest * np.abs(self.expected).max()):  # NaN fails
            raise CheckError(f"relative error {relative:.2e}, largest error {largest:.2e}, for {precision}")
        return errors

    def check_ours(self, found: np.ndarray, precision: str) -> dict[str, float]:
        """Check a variant's results for the fetched entries against the operation's own bound.

        Raises
        ------
        CheckError
            The error of an element is larger, or an element is not finite.
        """
        comparison = compare(found[self.checked], self.expected, self.bound[precision])
        if not comparison.ok:
            raise CheckError(f"{comparison}, for {precision}")
        return self._errors(found)

    def _errors(self, found: np.ndarray) -> dict[str, float]:
        error = np.abs(found[self.checked] - self.expected)
        errors = {
            "relative_error": float(np.linalg.norm(error) / np.linalg.norm(self.expected)),
            "max_error": float(error.max()),
        }
        if self.labels is not None:
            errors["accuracy"] = float(np.mean(found.argmax(axis=1) == self.labels))
        return errors


def spread(batch: int) -> np.ndarray:
    """Indices of entries spread over a batch, including the first and the last."""
    return np.unique(np.linspace(0, batch - 1, CHECKED).astype(np.int64))


def layers(batch: int) -> list[Subject]:
    """conv1, conv2, fused1 and fused2. Both kinds of a layer have the same input."""
    inputs: dict[str, Arrays] = {}
    found = []
    for op, word in WORDS.items():
        operation = ops.find(op)
        for at, (name, problem) in enumerate(operation.course.items(), 1):
            if name not in inputs:
                inputs[name] = operation.inputs(problem.with_batch(batch), seed=0)
            found.append(subject(word.format(at), operation, name, problem.with_batch(batch), inputs[name]))
    return found


def network(program: Program, batch: int) -> Subject:
    """The whole network, from float32 images on the device to probabilities."""
    operation = ops.find(NETWORK)
    weights = {name: np.ascontiguousarray(value, np.float32) for name, value in program.weights.items()}
    arrays = {"images": program.images(batch, "float32"), **weights}
    problem = operation.course["float32"].with_batch(batch)
    return subject("network", operation, "float32", problem, arrays, program.data.labels[:batch])


def subject(
    what: str, operation: Operation, name: str, problem: Any, arrays: Arrays, labels: np.ndarray | None = None
) -> Subject:
    """The subject for these arrays. If it has labels, all results are fetched."""
    chosen = spread(problem.batch)
    cut = problem.with_batch(len(chosen))
    given = {name: a[chosen] if cut.arrays[name].split else a for name, a in arrays.items()}
    (output,) = problem.named("out")
    precisions = (*TOLERANCE, "fp16_sum")
    return Subject(
        what=what,
        operation=operation,
        name=name,
        problem=problem,
        arrays=arrays,
        fetched=chosen if labels is None else np.arange(problem.batch),
        checked=np.arange(len(chosen)) if labels is None else chosen,
        expected=operation.answer(cut, given)[output],
        bound={precision: operation.bound(cut, given, precision)[output] for precision in precisions},
        labels=labels,
    )
