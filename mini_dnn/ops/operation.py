"""Operations: definitions of computations, independent of the variants that implement them.

An operation is one file of this folder, which ends with ``OPERATION = Operation(...)``. It declares the
arrays of its problems, computes their float64 reference and its error bound, and lists the problems that are
checked and measured. All other code of mini_dnn works with any operation, and names none.
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
    """Normally distributed values for each input array, in its type."""
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
    """A part of a large problem that is itself a problem.

    Parameters
    ----------
    problem, arrays, outputs
        The smaller problem, its inputs, and its outputs.
    rows
        Indices in the large problem of the entries along the second axis of the outputs.
    words
        A description of the part.
    axis
        The axis of the outputs that was cut, if it is not the second one.
    """

    problem: Any
    arrays: Arrays
    outputs: Arrays
    rows: np.ndarray
    words: str
    axis: int = 1


@dataclass(frozen=True)
class Trial:
    """A problem that only ``check`` runs, in addition to those of `Operation.check`.

    Parameters
    ----------
    problem
        The problem.
    draw
        ``(problem, precision, rng) -> arrays``: its inputs. None: the inputs of the operation.
    sampled
        Run only some blocks of each launch, and allocate memory only where it is touched, because the problem
        is too large otherwise.
    """

    problem: Any
    draw: Callable[[Any, str, np.random.Generator], Arrays] | None = None
    sampled: bool = False


@dataclass(frozen=True)
class Operation:
    """The definition of a computation; see the docstring of the module.

    Parameters
    ----------
    name
        The name of its file.
    about
        A description in one line.
    notes
        Further notes for callers, such as the range of the default variant.
    problem
        The type of its problems.
    answer
        ``(problem, arrays) -> outputs``: the float64 reference, computed from the inputs.
    bound
        ``(problem, arrays, precision) -> outputs``: the largest error allowed for each element.
    check
        Problems for ``check`` and the tests: small and irregular, so that no tile divides them.
    trials
        Further problems for ``check``, which reveal indices computed with a reciprocal, sums in half, and
        more entries than a grid allows along z.
    large
        Problems with arrays of more than 2^31 elements, of which ``check --large`` runs some blocks.
    course
        Problems that are measured, profiled and shown, by name.
    of
        ``(*arrays, **fields) -> (problem, arrays)``: the problem for these arrays. Arrays are converted if no
        information is lost; all others are refused.
    spare
        Ordinary problems, which ``check`` adds if a variant refuses some of `check`, or fails there.
    particular
        Problems for which some variants have kernels of their own, although they call another variant for
        those of `check`. ``check`` adds those that a variant solves itself.
    traits
        Properties of problems, with their descriptions: ``{"R != S": lambda s: s.R != s.S}``. If a variant
        fails only at problems with one of them, ``check`` reports it.
    draw
        ``(problem, rng) -> arrays``: random values for all inputs.
    mistakes
        ``(problem, arrays)``: descriptions of typical mistakes, each with the outputs that it causes.
    probe
        ``(problem, precision, rng)``: a problem and inputs that distinguish a result in the next lower
        precision from one in this precision; None if there are none.
    audit
        ``(problem, arrays, outputs, precision, rng)``: verifies complete large outputs faster than by
        computing them. The description of an error, or an empty string. None if there is no such method.
    sample
        ``(problem, arrays, outputs, part, rng) -> Sample``: a random part of about this fraction of the work.
        Outputs of large problems are compared in such a part, and audited as a whole. None if parts are cut
        from the batch.
    timed
        ``(problem, precision, rng) -> arrays``: like `draw`, for timed calls, each of which has its own
        inputs. They are generated quickly, and they reveal results in a lower precision. None: those of
        `draw`.
    axes
        The meanings of the letters of the axes: ``{"n": "image"}``.
    cure
        Advice for a wrong result: the formula to compare with. Without it, the advice names `answer`.
    default
        The variant that is used if none is named. It supports every problem that any of the preferred ones
        supports.
    preferred
        Variants that are used instead if they support the problem and the device can run them, the best
        first.
    baseline
        The variant with which its tables compare.
    pytorch
        ``(problem) -> expression``: the outputs in PyTorch, from tensors with the arrays' names, where ``F``
        is ``torch.nn.functional``. Empty if PyTorch has no such function.
    sums
        Whether outputs are only sums of products, so that values beyond the range of a precision affect them,
        whereas a maximum may hide such values. See `mini_dnn.ops.promises`.
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
    particular: Sequence[Any] = ()
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
        """The fields in the order of ``--shapes``: ``N,C,H,W,M,R,S``."""
        return ",".join(self.fields)

    def parse(self, text: str) -> Any:
        """The problem that ``--shapes`` names, such as ``2,1,9,21,3,2,5``.

        Raises
        ------
        ShapeError
            The text is not a problem of this operation.
        """
        words = [word.strip() for word in text.split(",")]
        kinds = list(self._types.values())
        try:
            if len(words) > len(kinds):
                raise ShapeError(f"it has {len(words)} values, and a problem has {len(kinds)}")
            values = [_parsed(word, kind) for word, kind in zip(words, kinds, strict=False)]
            self._require_form(values)
        except ShapeError as error:
            example = max(self.check, key=lambda problem: problem.flops).text
            raise ShapeError(
                f"'{text}' does not have the form {self.usage}, such as {example}: {error}"
            ) from error
        try:
            return self.problem(*values)
        except ShapeError as error:
            raise ShapeError(f"'{text}' ({self.usage}): {error}") from error

    def decode(self, values: Sequence[Any]) -> Any:
        """The problem with these values of its fields; fields with a default may be omitted at the end.

        Raises
        ------
        ShapeError
            They have other types, are too many or too few, or are inconsistent.
        """
        self._require_form(values)
        return self.problem(*values)

    def _require_form(self, values: Sequence[Any]) -> None:
        """Raise an error if values have other types than a problem's fields, or are too many or too few."""
        names = list(self._types)
        needed = sum(f.default is dataclasses.MISSING for f in self.problem.__dataclass_fields__.values())
        if not needed <= len(values) <= len(names):
            least = "" if needed == len(names) else f"{needed} to "
            raise ShapeError(f"found {len(values)} values; expected {least}{len(names)}: {self.usage}")
        for (name, kind), value in zip(self._types.items(), values, strict=False):
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise ShapeError(f"{name} is {value!r}; expected {_kind(kind)}")

    def inputs(self, problem: Any, seed: int) -> Arrays:
        """Random values for all inputs.

        Raises
        ------
        ShapeError
            They do not fit into memory.
        """
        try:
            return self.draw(problem, np.random.default_rng(seed))
        except (MemoryError, ValueError) as error:  # ValueError: larger than any array may be
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
