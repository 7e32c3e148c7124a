"""Results against float64: in parts, so that the memory stays bounded, and from both ends of the batch.

If a comparison would take a minute, only a random part is compared, and the whole is audited: see
`Operation.sample`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from mini_dnn.ops import Arrays, Operation
from mini_dnn.ops.compare import Comparison, compare_all, merged
from mini_dnn.ops.hints import hint

PART = 250  # entries of the batch that are compared at a time
MOST_FLOPS = 2e10  # work of the element-by-element comparison if there is an audit: a second or two


def verify(
    operation: Operation,
    problem: Any,
    arrays: Arrays,
    outputs: Arrays,
    precision: str = "fp32",
    entries: int | None = None,
    progress: Callable[[int], None] | None = None,
) -> Comparison:
    """Compare outputs with float64; if not all elements are compared, `Comparison.how` says so.

    Parameters
    ----------
    arrays, outputs
        The inputs, and the results to be checked, by name.
    precision
        The precision of the variant: see `Operation.bound`.
    entries
        Compare only this many entries of the batch, half of them from each end; None for all.
    progress
        Called with the number of entries compared so far.
    """
    N = problem.batch
    some = entries is not None and entries < N
    chosen = np.r_[: entries // 2, N - (entries + 1) // 2 : N] if some and entries else np.arange(N)
    if operation.sample and problem.with_batch(len(chosen)).flops > MOST_FLOPS:
        cut, given, found = _entries(problem, arrays, outputs, chosen) if some else (problem, arrays, outputs)
        if _all_finite(cut, given, found):
            result = _sampled(operation, cut, given, found, precision)
            if progress:
                progress(len(chosen))
            return _placed(result, 0, chosen)
    results = []
    for start in range(0, len(chosen), PART):
        part = chosen[start : start + PART]
        results.append(compare_entries(operation, problem, arrays, outputs, precision, part))
        if progress:
            progress(start + len(part))
    return merged(results)


def compare_entries(
    operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str, part: np.ndarray
) -> Comparison:
    """The comparison of some entries of the batch, with the indices that they have in the whole.

    Parameters
    ----------
    part
        The numbers of the entries along the batch.

    The other parameters are those of `verify`.
    """
    cut, given, found = _entries(problem, arrays, outputs, part)
    expected, bound = operation.answer(cut, given), operation.bound(cut, given, precision)
    result = compare_all(found, expected, bound)
    return _placed(result, 0, part) if problem.arrays[result.array].split else result


def explained(
    operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str, found: Comparison
) -> str:
    """Return the mistake that gives such a result (``": this is what one gets when ..."``), or nothing.

    Parameters
    ----------
    found
        The comparison that failed. The entries around the first wrong element are examined.

    The other parameters are those of `verify`.
    """
    if found.first is None:
        return ""
    split = problem.arrays[found.array].split
    at = found.first[0] if split else 0
    part = np.arange(max(at - 1, 0), min(at + 2, problem.batch)) if split else np.arange(problem.batch)
    if problem.with_batch(len(part)).flops > MOST_FLOPS:
        return ""
    words = hint(operation, *_entries(problem, arrays, outputs, part), precision)
    return f": {words}" if words else ""


def _entries(problem: Any, arrays: Arrays, outputs: Arrays, part: np.ndarray) -> tuple[Any, Arrays, Arrays]:
    """The problem, arrays and outputs of some entries of the batch."""
    known = problem.arrays
    given, found = (
        {name: value[part] if known[name].split else value for name, value in some.items()}
        for some in (arrays, outputs)
    )
    return problem.with_batch(len(part)), given, found


def _placed(result: Comparison, axis: int, where: np.ndarray) -> Comparison:
    """The comparison of a part with the index that the first differing element has in the whole."""
    if result.first is None:
        return result
    first = list(result.first)
    first[axis] = int(where[first[axis]])
    return replace(result, first=tuple(first))


def _sampled(
    operation: Operation, problem: Any, arrays: Arrays, outputs: Arrays, precision: str
) -> Comparison:
    """Compare a part element by element, and audit the whole."""
    assert operation.sample, "the caller looks"
    assert operation.audit, "an operation with samples has an audit"
    rng = np.random.default_rng()  # from the system's entropy, so that nobody can predict the part
    some = operation.sample(problem, arrays, outputs, MOST_FLOPS / problem.flops / 4, rng)
    expected = operation.answer(some.problem, some.arrays)
    bound = operation.bound(some.problem, some.arrays, precision)
    result = compare_all(some.outputs, expected, bound)
    return replace(
        _placed(result, some.axis, some.rows),
        audit=operation.audit(problem, arrays, outputs, precision, rng),
        how=f"{some.words} compared, all of it audited",
    )


def _all_finite(problem: Any, arrays: Arrays, outputs: Arrays) -> bool:
    """Whether an audit is possible: infinities and NaN must be compared one by one."""
    known = problem.arrays
    return all(
        np.isfinite(known[name].without_gap(y)).all() for name, y in (*arrays.items(), *outputs.items())
    )
