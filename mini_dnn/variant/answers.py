"""Inputs that a program anywhere can draw again, and a sample of the answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mini_dnn.errors import UsageError
from mini_dnn.ops import Array, Operation

ENTRIES = 64  # of the batch that have answers
SAMPLES = 2**16  # elements of an output that have one
ANSWER = np.dtype([("at", "<u8"), ("expected", "<f8"), ("bound", "<f8")])
FACTORS = (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93)  # odd, of 64 bits without a pattern: they spread an index
SEQUENCE_BITS = 40  # of an index, below the number of its sequence
BITS = 24  # of a value: as many as a float holds


@dataclass(frozen=True)
class Span:
    """From where on and below what the values of an array lie; both are numbers of float32."""

    low: float
    high: float


@dataclass(frozen=True)
class Sample:
    """A problem with inputs of `drawn`, and some elements of its outputs.

    Parameters
    ----------
    spans
        Of the arrays that are given, by name and in their order: the first one has sequence 1, and so on.
    answers
        By the name of an output: records of `ANSWER`. Each has an element's index in C order, its value in
        float64, and the most that it may be off.
    """

    spans: Mapping[str, Span]
    answers: Mapping[str, np.ndarray]


def uniform(sequence: int, index: np.ndarray) -> np.ndarray:
    """Elements of a sequence of random numbers in [0, 1), in float64: 24 bits of a hash of both."""
    hashed = index.astype(np.uint64)
    hashed += np.uint64(sequence << SEQUENCE_BITS)
    for factor in FACTORS:
        hashed *= np.uint64(factor)
        hashed ^= hashed >> np.uint64(32)
    hashed >>= np.uint64(64 - BITS)
    return hashed * 2.0**-BITS


def drawn(array: Array, sequence: int, span: Span, entries: np.ndarray | None = None) -> np.ndarray:
    """Some entries of an array's first axis, or all of them, with the values that a sequence gives it."""
    chosen = np.arange(array.shape[0]) if entries is None else entries
    size = int(np.prod(array.shape[1:], dtype=np.int64))
    values = uniform(sequence, chosen[:, None] * size + np.arange(size))
    values *= span.high - span.low
    values += span.low
    return values.astype(np.float32).astype(array.dtype).reshape(len(chosen), *array.shape[1:])


def sample(operation: Operation, problem: Any, precision: str) -> Sample:
    """Inputs of a problem, spread as the operation draws them, and some of its answers.

    Parameters
    ----------
    precision
        What is claimed of results: see `Operation.bound`.

    Raises
    ------
    UsageError
        An input has a type whose values are not drawn.
    """
    entries = np.unique(np.linspace(0, problem.batch - 1, ENTRIES).astype(np.int64))
    cut = problem.with_batch(len(entries))
    ordinary = operation.inputs(cut, seed=0)
    given = problem.named("in", "weight")
    spans = {name: _span(name, ordinary[name]) for name in given}
    arrays = {
        name: drawn(array, sequence, spans[name], entries if array.split else None)
        for sequence, (name, array) in enumerate(given.items(), 1)
    }
    expected, bound = operation.answer(cut, arrays), operation.bound(cut, arrays, precision)
    answers = {
        name: _some(expected[name], bound[name], entries if array.split else np.arange(array.shape[0]))
        for name, array in problem.named("out").items()
    }
    return Sample(spans, answers)


def _span(name: str, values: np.ndarray) -> Span:
    """Where uniform values have about the mean square of these, and are positive where these are."""
    if values.dtype.kind in "iu":
        return Span(float(values.min()), float(values.max()) + 1)
    if values.dtype.kind != "f":
        raise UsageError(f"{name} is {values.dtype}; only whole and floating-point numbers are drawn")
    mean_square = np.square(values, dtype=np.float64).mean()
    width = float(np.float32(f"{np.sqrt(3 * mean_square):.3g}"))  # of few digits, for those who read them
    return Span(0.0 if values.min() >= 0 else -width, width)


def _some(expected: np.ndarray, bound: np.ndarray, entries: np.ndarray) -> np.ndarray:
    """Elements of all entries, each with its index in the whole output."""
    size = expected[0].size
    at = np.arange(expected.size)
    if expected.size > SAMPLES:
        at = np.sort(np.random.default_rng(0).choice(expected.size, SAMPLES, replace=False))
    answers = np.empty(len(at), ANSWER)
    answers["at"] = entries[at // size] * size + at % size
    answers["expected"] = expected.ravel()[at]
    answers["bound"] = np.broadcast_to(bound, expected.shape).ravel()[at]
    return answers
