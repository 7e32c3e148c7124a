"""Operations: what is computed, whoever computes it.

An operation is one file of this folder, which ends with ``OPERATION = Operation(...)``. It names the arrays
of each of its problems, gives their float64 answer and the bound of its error, and lists the problems that
are checked and measured. Everything else of mini_dnn works on these, and knows no operation by name.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_type_hints

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops.problem import Array, Arrays

TRUE, FALSE = ("1", "true", "yes"), ("0", "false", "no")


def normal(problem: Any, rng: np.random.Generator) -> Arrays:
    """Normally distributed values for each array that is given, in its type."""
    given: dict[str, Array] = problem.named("in", "weight")
    return {
        name: rng.standard_normal(a.shape, np.float32).astype(a.dtype, copy=False)
        for name, a in given.items()
    }


def _no_mistakes(problem: Any, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    return iter(())


def _no_expression(problem: Any) -> str:
    return ""


def _no_probe(problem: Any, precision: str, rng: np.random.Generator) -> tuple[Any, Arrays] | None:
    return None


@dataclass(frozen=True)
class Sample:
    """A part of a large problem that is a problem by itself.

    Parameters
    ----------
    problem, arrays, outputs
        The smaller problem, what is given of it, and its outputs.
    rows
        Where the entries of the outputs' second axis lie in the large problem.
    words
        Which part it is.
    axis
        Another axis of the outputs, if it is not the second one that was cut.
    """

    problem: Any
    arrays: Arrays
    outputs: Arrays
    rows: np.ndarray
    words: str
    axis: int = 1


@dataclass(frozen=True)
class Trial:
    """A problem that ``check`` runs beside those of `Operation.check`, and the tests of each variant do not.

    Parameters
    ----------
    problem
        What it is.
    draw
        ``(problem, precision, rng) -> arrays``: its inputs; None: those of the operation.
    sampled
        Run some blocks of each launch, in memory that is taken where it is touched: it is too large for more.
    """

    problem: Any
    draw: Callable[[Any, str, np.random.Generator], Arrays] | None = None
    sampled: bool = False


@dataclass(frozen=True)
class Operation:
    """What is computed: see the module's docstring.

    Parameters
    ----------
    name
        That of its file.
    about
        What it computes, in a line for people.
    notes
        What else its callers have to know, such as the range of the default variant.
    problem
        The type of its problems.
    answer
        ``(problem, arrays) -> outputs`` in float64, from the arrays that are given.
    bound
        ``(problem, arrays, precision) -> outputs``: the most that each element may be off.
    check
        Problems for ``check`` and the tests: small and irregular, so that no tile divides them.
    trials
        Problems that ``check`` runs, too: what betrays an index by a reciprocal, a sum in half, more entries
        than a grid has in z.
    large
        Problems with arrays of more than 2^31 elements, of which ``check --large`` runs some blocks.
    course
        Problems that are measured, profiled and shown, by name.
    of
        ``(*arrays, **fields) -> (problem, arrays)``: the problem that given arrays are. It converts what
        loses nothing, and refuses the rest.
    spare
        Problems that ``check`` adds where a variant refuses some of `check`, or fails there: the ordinary
        ones.
    traits
        What tells some problems from others, in words: ``{"R != S": lambda s: s.R != s.S}``. Where a variant
        fails at those problems alone, ``check`` says so.
    draw
        ``(problem, rng) -> arrays``: random values for all arrays that are given.
    mistakes
        ``(problem, arrays)``: believable mistakes in words, each with the outputs that it gives.
    probe
        ``(problem, precision, rng)``: a problem and inputs that tell an answer in the next lower precision
        from one in this precision; None where there are none.
    audit
        ``(problem, arrays, outputs, precision, rng)``: what is wrong with all of large outputs, found faster
        than by computing them; empty if nothing is. None where there is no such way.
    sample
        ``(problem, arrays, outputs, part, rng) -> Sample``: about this part of the work, chosen by chance.
        Outputs of large problems are then compared in such a part, and audited as a whole. None where the
        batch is what is cut.
    timed
        ``(problem, precision, rng) -> arrays``: what `draw` gives, for timed calls, each of which has inputs
        of its own. They are drawn quickly, and an answer less exact than this precision shows with them.
        None: those of `draw`.
    axes
        What the letters of the arrays' axes stand for: ``{"n": "image"}``.
    cure
        What to compare where a result is wrong: the formula.
    default
        The variant that is taken where none is named. It takes every problem.
    preferred
        Variants that are taken instead where they take the problem and the device can run them: the best
        first.
    baseline
        The variant that its tables compare with.
    pytorch
        ``(problem) -> expression``: the outputs in PyTorch, from tensors with the arrays' names, where ``F``
        is ``torch.nn.functional``. Empty where PyTorch has no such function.
    sums
        Whether outputs are sums of products and nothing else, so that what is beyond a precision's range
        shows in them: a maximum may hide it. See `mini_dnn.ops.promises`.
    """

    name: str
    about: str
    problem: type[Any]
    answer: Callable[[Any, Arrays], Arrays]
    bound: Callable[[Any, Arrays, str], Arrays]
    check: Sequence[Any]
    course: Mapping[str, Any]
    of: Callable[..., tuple[Any, Arrays]]
    spare: Sequence[Any] = ()
    trials: Sequence[Trial] = ()
    large: Sequence[Any] = ()
    traits: Mapping[str, Callable[[Any], bool]] = field(default_factory=dict)
    draw: Callable[[Any, np.random.Generator], Arrays] = normal
    mistakes: Callable[[Any, Arrays], Iterator[tuple[str, Arrays]]] = _no_mistakes
    probe: Callable[[Any, str, np.random.Generator], tuple[Any, Arrays] | None] = _no_probe
    audit: Callable[[Any, Arrays, Arrays, str, np.random.Generator], str] | None = None
    sample: Callable[[Any, Arrays, Arrays, float, np.random.Generator], Sample] | None = None
    timed: Callable[[Any, str, np.random.Generator], Arrays] | None = None
    axes: Mapping[str, str] = field(default_factory=dict)
    cure: str = ""
    default: str = ""
    preferred: Sequence[str] = ()
    baseline: str = ""
    pytorch: Callable[[Any], str] = _no_expression
    sums: bool = False
    notes: str = ""

    @cached_property
    def _types(self) -> dict[str, type]:
        hints = get_type_hints(self.problem)
        return {name: hints[name] for name in self.problem.__dataclass_fields__}

    @property
    def fields(self) -> tuple[str, ...]:
        """Names of a problem's fields, in their order."""
        return tuple(self._types)

    @property
    def usage(self) -> str:
        """The fields as ``--shapes`` takes them: ``N,C,H,W,M,R,S``."""
        return ",".join(self.fields)

    def parse(self, text: str) -> Any:
        """The problem that ``--shapes`` names, such as ``2,1,9,21,3,2,5``.

        Raises
        ------
        ShapeError
            It names none.
        """
        words = [word.strip() for word in text.split(",")]
        kinds = list(self._types.values())
        try:
            if len(words) > len(kinds):
                raise ShapeError(f"it has {len(words)} values, and a problem has {len(kinds)}")
            values = [_parsed(word, kind) for word, kind in zip(words, kinds, strict=False)]
            return self.decode(values)
        except ShapeError as error:
            example = max(self.check, key=lambda problem: problem.flops).text
            raise ShapeError(
                f"'{text}' does not have the form {self.usage}, such as {example}: {error}"
            ) from error

    def decode(self, values: Sequence[Any]) -> Any:
        """The problem with these values of its fields; those that have a default may be left out at the end.

        Raises
        ------
        ShapeError
            They are of other types, too many or too few, or make no sense together.
        """
        names = list(self._types)
        needed = sum(f.default is dataclasses.MISSING for f in self.problem.__dataclass_fields__.values())
        if not needed <= len(values) <= len(names):
            least = "" if needed == len(names) else f"{needed} to "
            raise ShapeError(f"found {len(values)} values; expected {least}{len(names)}: {self.usage}")
        for (name, kind), value in zip(self._types.items(), values, strict=False):
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise ShapeError(f"{name} is {value!r}; expected {_kind(kind)}")
        return self.problem(*values)

    def inputs(self, problem: Any, seed: int) -> Arrays:
        """Random values for all arrays that are given.

        Raises
        ------
        ShapeError
            They do not fit the memory.
        """
        try:
            return self.draw(problem, np.random.default_rng(seed))
        except (MemoryError, ValueError) as error:  # ValueError: more than any array may have
            raise ShapeError(f"{problem} does not fit in this machine's memory; use smaller sizes") from error


def _parsed(word: str, kind: type) -> Any:
    if kind is bool:
        if word.lower() in (*TRUE, *FALSE):
            return word.lower() in TRUE
        raise ShapeError(f"'{word}' is neither 0 nor 1")
    if kind is str:
        return word
    try:
        return kind(word)
    except ValueError as error:
        raise ShapeError(f"'{word}' is not {_kind(kind)}") from error


def _kind(kind: type) -> str:
    return {int: "an integer", bool: "true or false", str: "a word", float: "a number"}[kind]
