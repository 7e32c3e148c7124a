"""Selection of tests and of their cases, as all of them take too long for every change.

A sample is a part of all tests, which depends on a seed. Long tests, and tests whose many cases resemble each
other, are marked as exhaustive.
"""

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
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
    the name of a parameter, there is one case for each value of this parameter.
    """
    alike: dict[tuple[Any, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        alike[_kind_and_share(item)].append(item)
    kept = set()
    for (_, share), some in alike.items():
        some.sort(key=lambda item: crc32(f"{seed} {item.nodeid}".encode()))
        kept.update(some[: -(-len(some) // share)])
    return [item for item in items if item in kept]


def _kind_and_share(item: pytest.Item) -> tuple[Any, int]:
    """What it has in common with tests of which a sample has one of so many."""
    needs_gpu = item.get_closest_marker("gpu") is not None
    test = item.nodeid.partition("[")[0]
    if item.get_closest_marker("exhaustive"):
        return needs_gpu, EXHAUSTIVE
    if marker := item.get_closest_marker("sampled_by"):
        assert isinstance(item, pytest.Function)
        return (needs_gpu, test, item.callspec.params[marker.args[0]]), sys.maxsize
    return (needs_gpu, test), CASES


def some_of(*ways: Iterable[Any], one_of: int) -> list[tuple[Any, ...]]:
    """One in ``one_of`` of all combinations of values, as parameters."""
    numbered = (tuple(zip(*some, strict=True)) for some in product(*(enumerate(way) for way in ways)))
    return [values for numbers, values in numbered if sum(numbers) % one_of == 0]
