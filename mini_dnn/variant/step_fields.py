"""The types of the fields of a plan's steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mini_dnn.device.product import LAYOUTS
from mini_dnn.device.tensor_map import ELEMENTS
from mini_dnn.errors import VariantError
from mini_dnn.ops import Problem
from mini_dnn.variant.plan import Code, Images, Launch, WrittenStep
from mini_dnn.variant.tensor_map import TensorMap


def check_step(step: WrittenStep, variant: str) -> None:
    """Check that the fields of a step have their declared types.

    Raises
    ------
    VariantError
        A field has another type.
    """
    what = f"the launch of {step.kernel}" if isinstance(step, Launch) else f"a {type(step).__name__}"
    for name, value in vars(step).items():
        if expected := _expected(name, value):
            raise VariantError(f"{variant}: {what} has {name} {value!r}; it must be {expected}")
    for map_ in (a for a in getattr(step, "args", ()) if isinstance(a, TensorMap)):
        for name, value in vars(map_).items():
            if expected := _expected_of_map(name, value):
                raise VariantError(
                    f"{variant}: {what} has a TensorMap with {name} {value!r}; it must be {expected}"
                )
    given = (*getattr(step, "args", ()), getattr(step, "images", None))
    for part in (one for one in given if isinstance(one, Images)):
        if not (_is_whole(part.first) and _is_whole(part.last)):
            raise VariantError(
                f"{variant}: {what} has {part}; its entries must be integers: Images('x', 0, s.N // 2)"
            )


def _expected(name: str, value: Any) -> str:
    """Describe what a field of a step must be. The text is empty if the value is valid."""
    fits, words = isinstance(value, str), "a name in quotes"
    match name:
        case "grid" | "block":
            fits = isinstance(value, tuple | list) and all(map(_is_whole, value))
            words = "a tuple of integers: (256,) or (ceil_div(a, b), c)"
        case "cluster":
            given = value if isinstance(value, tuple) else (value,)
            fits = 1 <= len(given) <= 3 and all(map(_is_whole, given))
            words = "an integer, or a tuple of up to three: 2 or (2, 1)"
        case "early":
            fits, words = isinstance(value, bool), "True or False"
        case "args":
            fits, words = isinstance(value, tuple | list), 'a tuple of arguments: ("x", "y", s.N)'
        case "problem":
            fits, words = isinstance(value, Problem), "a problem of the variant's operation"
        case "arrays":
            fits = isinstance(value, Mapping) and all(isinstance(x, str) for x in (*value, *value.values()))
            words = 'names of arrays with names of buffers: {"qkv": "tokens", "o": "mixed"}'
        case "event":
            fits = isinstance(value, str) and value.isidentifier()
            words = 'a name such as "x_is_there"'
        case "images":
            fits, words = isinstance(value, Images), "a part of an array: Images(name, first, last)"
        case "stream":
            fits, words = _is_whole(value) and value >= 0, "an integer of 0 or more"
        case "code":
            fits, words = value is None or isinstance(value, Code), "None: the planner fills it in"
        case "layout":
            fits, words = value in LAYOUTS, f"one of {', '.join(LAYOUTS)}"
        case "alpha" | "beta":
            fits, words = isinstance(value, float | np.floating) or _is_whole(value), "a number"
        case "shared_bytes" | "m" | "n" | "k" | "batch" | "lda" | "ldb" | "ldc":
            fits, words = _is_whole(value), "an integer: a // b or ceil_div(a, b)"
    return "" if fits else words


def _expected_of_map(name: str, value: Any) -> str:
    """Describe what a field of a `TensorMap` must be. The text is empty if the value is valid."""
    match name:
        case "buffer":
            return "" if isinstance(value, str) else "a name in quotes"
        case "swizzle":
            return "" if _is_whole(value) else "a number of bytes: 0, 32, 64 or 128"
        case "dtype":
            return "" if value in (None, *ELEMENTS) else f"one of {', '.join(ELEMENTS)}"
    fits = isinstance(value, tuple | list) and all(map(_is_whole, value))
    words = (
        "R, stride and padding: (3, 1, 1)"
        if name == "windows"
        else "integers, counted in elements: (128, 64)"
    )
    return "" if fits or (value is None and name != "box") else words


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer)
