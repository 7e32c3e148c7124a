"""Plans as text: nothing is lost on the way, and nothing that is no plan gets through."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_dnn.errors import VariantError
from mini_dnn.grading import decoding, plans
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.variant import CopyToSymbol, Gemm, Launch, Variant, find, names

SHAPES = (ConvShape(3, 2, 9, 21, 5, 2, 5), ConvShape(128, 1, 12, 10, 4, 7, 7))
SHAPE = SHAPES[0]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@pytest.mark.parametrize("name", [name for name in names() if name != "m1/cpu"])
def test_a_plan_comes_back_as_it_was(name: str) -> None:
    variant = find(name)
    for shape in SHAPES:
        planned = decoding.decode(plans.encode(variant, shape, 227 * 1024).encode(), shape)
        assert list(planned.steps) == variant.steps(shape)
        assert planned.scratch == variant.scratch_for(shape)
        assert planned.defines == variant.defines_for(shape)
        again = decoding.decode_values(json.loads(json.dumps(plans.encode_planned(planned))), shape)
        assert again == planned


def test_scalars_keep_their_types() -> None:
    args = (1, 2.5, np.int64(2**40), np.float32(0.5), np.uint8(7), np.float64(0.1), np.bool_(True))
    variant = Variant("conv2d", "", plan=lambda s: [Launch("k", (1,), (1,), args)])
    (launch,) = decoding.decode(plans.encode(variant, SHAPE, 0).encode(), SHAPE).steps
    assert isinstance(launch, Launch)
    assert [type(a) for a in launch.args] == [type(a) for a in args]
    assert launch.args == args


def text(steps: list[Any], **more: Any) -> bytes:
    return json.dumps({"refuses": "", "scratch": {}, "defines": {}, "steps": steps, **more}).encode()


def launch(**changes: Any) -> dict[str, Any]:
    return {"launch": "k", "grid": [1], "block": [1], "args": [], "shared_bytes": 0, "stream": 0} | changes


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"\x80\x04}", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"steps": []}', "no plan"),
        (text([launch()] * 5000), "the most is 4096"),
        (text([launch(grid=[0])]), "whole number from 1"),
        (text([launch(grid=[1, 70000])]), "to 65535"),
        (text([launch(block=[1e3])]), "whole number"),
        (text([launch(block=[True])]), "whole number"),
        (text([launch(launch="k; rm")]), "no name in C"),
        (text([launch(stream=64)]), "to 63"),
        (text([launch(shared_bytes=1 << 30)]), "1048576"),
        (text([launch(args=[["buffer", "z"]])]), "there are x, w, y"),
        (text([launch(args=[["int", 2**31]])]), "whole number from -2147483648"),
        (text([launch(args=[["scalar", "object", 1]])]), "an argument"),
        (text([launch(args=[["scalar", "int32", float("inf")]])]), "an argument"),
        (text([launch(args=[["scalar", "int8", float("nan")]])]), "an argument"),
        (text([launch(args=[["float", 10**400]])]), "401 digits is too large"),
        (text([launch(args=[["scalar", "float16", -(10**400)]])]), "digits is too large"),
        (text([launch(args=[["images", "x", 0, 4]])]), "Images of 'x'"),
        (text([launch(args=[["images", "x", -1, 2]])]), "Images of 'x'"),
        (text([{"copy_in": ["w", 0, 1], "stream": 0}]), "a step of the plan"),
        (text([{"copy_out": ["y", 0, 99], "stream": 0}]), "Images of 'y'"),
        (text([{"symbol": "s", "buffer": "../x", "stream": 0}]), "there are"),
        (text([{"gemm": ["x", "w", "y"], "sizes": [9999, 9999, 1], "stream": 0}]), "reaches beyond"),
        (text([], scratch={"x": [1]}), "x, w and y are given"),
        (text([], scratch={"col": [1 << 30, 1 << 30]}), "too large"),
        (text([], scratch={"col": []}), "no shape"),
        (text([], scratch={f"a{i}": [1] for i in range(257)}), "257 scratch buffers; the most"),
        (text([], defines={f"a{i}": 1 for i in range(257)}), "257 definitions; the most"),
        (text([], defines={"A B": 1}), "no name in C"),
        (text([], defines={"A": "1\n#include"}), "whole number"),
    ],
)
def test_what_is_no_plan(answer: bytes, message: str) -> None:
    with pytest.raises(VariantError, match=message):
        decoding.decode(answer, SHAPE)


@given(st.fixed_dictionaries({"refuses": st.text(), "scratch": JSON, "defines": JSON, "steps": JSON}) | JSON)
def test_anything_else_is_refused_in_words(values: Any) -> None:
    try:
        planned = decoding.decode_values(values, SHAPE)
    except VariantError:
        return
    assert all(isinstance(step, Launch | CopyToSymbol | Gemm) for step in planned.steps)


@pytest.mark.parametrize("answer", [b"[]", b'["fp8", 90, "", false]', b'["fp32", 90, "", 1]', b"{}"])
def test_what_is_no_variant(answer: bytes) -> None:
    with pytest.raises(VariantError, match="no variant"):
        decoding.decode_head(answer)
