"""Selection of similar cases: a brief run uses some of them, and the others are marked as exhaustive."""

from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest


def exhaustive_unless(in_brief: object) -> Any:
    """The marks of a case."""
    return () if in_brief else pytest.mark.exhaustive


def sampled(*ways: Iterable[Any], one_of: int, least: int = 1) -> list[Any]:
    """Combinations of values as parameters: one in ``least``, or in ``one_of`` if the run is brief."""
    numbered = [tuple(zip(*some, strict=True)) for some in product(*(enumerate(way) for way in ways))]
    return [
        pytest.param(*values, marks=exhaustive_unless(sum(numbers) % one_of == 0))
        for numbers, values in numbered
        if sum(numbers) % least == 0
    ]


def chosen(values: Iterable[Any], in_brief: Callable[[Any], object]) -> list[Any]:
    """All values as parameters. A brief run uses those for which ``in_brief`` returns true."""
    return [pytest.param(value, marks=exhaustive_unless(in_brief(value))) for value in values]
