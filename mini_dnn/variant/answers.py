"""Inputs that a program on another machine can generate again, and some of the answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from mini_dnn.device.host_memory import available_bytes
from mini_dnn.errors import UsageError
from mini_dnn.ops import Array, Arrays, Operation
from mini_dnn.ops.compare import largest

ENTRIES = 64  # entries of the batch that have answers
ANSWERS = 2**16  # elements of an output that have answers
MOST_FLOPS = 2e10  # for the answers, if an operation can compute fewer of them: a second or two
ANSWER = np.dtype([("at", "<u8"), ("expected", "<f8"), ("bound", "<f8")])
# Odd 64-bit numbers without a pattern, which spread an index
FACTORS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)
SEQUENCE_BITS = 40  # bits of an index, below the number of its sequence
BITS = 24  # of a value: as many as a float has
DRAWN_BYTES = 24  # of host memory for each element of an array while its values are drawn


@dataclass(frozen=True)
class Span:
    """The range of an array's values: from the first number on, and below the second; both are float32."""

    low: float
    high: float


@dataclass(frozen=True)
class Exercise:
    """A problem with inputs of `drawn`, and some elements of its outputs.

    Parameters
    ----------
    spans
        The ranges of the inputs by name, in order: the first one has sequence 1, and so on.
    answers
        For each output by name, records of `ANSWER`: an element's index in C order, its value in float64, and
        its error bound.
    """

    spans: Mapping[str, Span]
    answers: Mapping[str, np.ndarray]


def uniform(sequence: int, index: np.ndarray) -> np.ndarray:
    """Elements of a sequence of random numbers in [0, 1), float64: 24 bits of a hash of both numbers."""
    hashed = index.astype(np.uint64)
    hashed += np.uint64(sequence << SEQUENCE_BITS)
    for factor in FACTORS:
        hashed *= np.uint64(factor)
        hashed ^= hashed >> np.uint64(32)
    hashed >>= np.uint64(64 - BITS)
    return hashed * 2.0**-BITS


def drawn(array: Array, sequence: int, span: Span, entries: np.ndarray | None = None) -> np.ndarray:
    """Some entries of an array's first axis, or all of them, with the values of a sequence.

    Gaps hold NaN.
    """
    values = uniform(sequence, _indices(array, entries))
    values *= span.high - span.low
    values += span.low
    found = values.astype(np.float32).astype(array.dtype)
    if array.gap:
        array.in_gap(found)[...] = np.nan
    return found


def exercise(operation: Operation, problem: Any, precision: str) -> Exercise:
    """Inputs of a problem, distributed like those that the operation draws, and some of its answers.

    Parameters
    ----------
    precision
        The precision of the results: see `Operation.bound`.

    Raises
    ------
    UsageError
        An input has a type for which no values can be drawn, or the arrays need more memory than is free.
    """
    entries = np.unique(np.linspace(0, problem.batch - 1, ENTRIES).astype(np.int64))
    cut = problem.with_batch(len(entries))
    _check_memory(cut)
    ordinary = operation.inputs(cut, seed=0)
    given = problem.named("in", "weight")
    spans = {name: _span(name, array.without_gap(ordinary[name])) for name, array in given.items()}
    arrays = {
        name: drawn(array, sequence, spans[name], entries if array.split else None)
        for sequence, (name, array) in enumerate(given.items(), 1)
    }
    return Exercise(spans, _answers(operation, problem, entries, arrays, precision))


def _check_memory(problem: Any) -> None:
    """Refuse a problem that needs more host memory than is free, because Linux would kill the process."""
    kept = sum(array.nbytes for array in problem.named("in", "weight").values())
    needed = kept + DRAWN_BYTES * max(prod(array.shape) for array in problem.arrays.values())
    if needed > (free := available_bytes()):
        raise UsageError(
            f"the answers for {problem} need {needed / 1e9:.1f} GB of host memory, and {free / 1e9:.1f} GB "
            "are free; use a smaller problem, or a machine with more memory"
        )


def _answers(
    operation: Operation, problem: Any, entries: np.ndarray, arrays: Arrays, precision: str
) -> dict[str, np.ndarray]:
    """Answers for some entries of the batch."""
    rng, part = np.random.default_rng(0), problem.with_batch(len(entries))
    outputs = problem.named("out")
    at: Arrays = {name: _indices(array, entries if array.split else None) for name, array in outputs.items()}
    if operation.sample and part.flops > MOST_FLOPS:
        some = operation.sample(part, arrays, at, MOST_FLOPS / part.flops, rng)
        part, arrays, at = some.problem, some.arrays, some.outputs
    expected, bound = operation.answer(part, arrays), operation.bound(part, arrays, precision)
    return {name: _some(array, at[name], expected[name], bound[name], rng) for name, array in outputs.items()}


def _indices(array: Array, entries: np.ndarray | None) -> np.ndarray:
    """The index of each element of some entries in the whole array, in C order."""
    chosen = np.arange(array.shape[0]) if entries is None else entries
    size = int(np.prod(array.shape[1:], dtype=np.int64))
    return (chosen[:, None] * size + np.arange(size)).reshape(len(chosen), *array.shape[1:])


def _span(name: str, values: np.ndarray) -> Span:
    """The range of uniform values with about the same mean square, which are positive if these are."""
    if values.dtype.kind in "iu":
        return Span(float(values.min()), float(values.max()) + 1)
    if not np.can_cast(values.dtype, np.float64):
        raise UsageError(f"{name} is {values.dtype}; only whole and floating-point numbers are drawn")
    mean_square = np.square(values.astype(np.float64)).mean()
    width = float(np.float32(f"{np.sqrt(3 * mean_square):.3g}"))  # with few digits, because people read them
    return Span(0.0 if values.min() >= 0 else -width, width)


def _some(
    array: Array, at: np.ndarray, expected: np.ndarray, bound: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Random elements, without those in gaps and those beyond the range of the output's type."""
    found = [array.without_gap(values).ravel() for values in (at, expected, np.broadcast_to(bound, at.shape))]
    held = np.abs(found[1]) + found[2] <= largest(array.dtype)
    answers = np.empty(int(held.sum()), ANSWER)
    for name, values in zip(("at", "expected", "bound"), found, strict=True):
        answers[name] = values[held]
    if len(answers) > ANSWERS:
        answers = answers[np.sort(rng.choice(len(answers), ANSWERS, replace=False))]
    return answers
