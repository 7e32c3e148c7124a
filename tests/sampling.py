"""Selection of tests and of their cases, as all of them take too long for every change.

Cases that resemble others are marked as exhaustive. A sample is a part of all tests, which depends on a seed.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import product
from typing import Any
from zlib import crc32

import pytest

# A sample has one of so many cases of a test, at least one, and one of so many exhaustive tests and cases
CASES = 6
EXHAUSTIVE = 16


def sample(items: Sequence[pytest.Item], seed: str) -> list[pytest.Item]:
    """A part of the tests, in the same order.

    A test that has no cases and is not exhaustive is always in it. If a test is marked ``sampled_by`` with
    the name of a parameter, there is a case for each value of this parameter.
    """
    alike: dict[tuple[Hashable, ...], list[pytest.Item]] = defaultdict(list)
    for item in items:
        alike[kind_of(item)].append(item)
    kept = set()
    for kind, some in alike.items():
        some.sort(key=lambda item: crc32(f"{seed} {item.nodeid}".encode()))
        kept.update(some[: -(-len(some) // (EXHAUSTIVE if kind[0] == "exhaustive" else CASES))])
    return [item for item in items if item in kept]


def kind_of(item: pytest.Item) -> tuple[Hashable, ...]:
    """What it has in common with tests of which a sample has a part."""
    needs_gpu = item.get_closest_marker("gpu") is not None
    if item.get_closest_marker("exhaustive"):
        return "exhaustive", needs_gpu
    test = item.nodeid.partition("[")[0]
    if marker := item.get_closest_marker("sampled_by"):
        assert isinstance(item, pytest.Function)
        return test, needs_gpu, item.callspec.params[marker.args[0]]
    return test, needs_gpu


def exhaustive_unless(ordinary: object) -> Any:
    """The marks of a case."""
    return () if ordinary else pytest.mark.exhaustive


def sampled(*ways: Iterable[Any], one_of: int, least: int = 1) -> list[Any]:
    """Combinations of values as parameters: one in ``least``.

    Of all combinations, one in ``one_of`` is not exhaustive.
    """
    numbered = [tuple(zip(*some, strict=True)) for some in product(*(enumerate(way) for way in ways))]
    return [
        pytest.param(*values, marks=exhaustive_unless(sum(numbers) % one_of == 0))
        for numbers, values in numbered
        if sum(numbers) % least == 0
    ]


def chosen(values: Iterable[Any], ordinary: Callable[[Any], object]) -> list[Any]:
    """All values as parameters, of which those are exhaustive for which ``ordinary`` returns false."""
    return [pytest.param(value, marks=exhaustive_unless(ordinary(value))) for value in values]
