"""Plans as text: nothing but a plan is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plan_texts import HEAD, NETWORK, SHAPE, SOURCE, decoded, gemm, launch, scratch, text

from mini_dnn.errors import VariantError
from mini_dnn.grading import decoding
from mini_dnn.variant import CopyToSymbol, Gemm, Launch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"\x80\x04}", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"steps": []}', "not a plan"),
        (b'{"scratch": {}, "defines": {}, "steps": []}', "not a plan"),
        (text([], setup={}), "not a plan"),
        (text([launch()] * 5000), "at most 4096"),
        (text([launch(grid=[0])]), "integer from 1"),
        (text([launch(grid=[1, 70000])]), "to 65535"),
        (text([launch(block=[1e3])]), "integer"),
        (text([launch(block=[True])]), "integer"),
        (text([launch(launch="k; rm")]), "not a valid name in C"),
        (text([launch(stream=64)]), "to 63"),
        (text([launch(shared_bytes=1 << 30)]), "1048576"),
        (text([launch(cluster=9)]), "a cluster has 9; expected an integer from 1 to 8"),
        (text([launch(cluster=[2, True])]), "a cluster has True"),
        (text([launch(cluster=[1, 1, 1, 1])]), "expected an integer from 1 to 8"),
        (text([launch(early=1)]), "an invalid step of the plan"),
        (text([launch(args=[["buffer", "z"]])]), "expected one of x, w, y"),
        (text([launch(args=[["int", 2**31]])]), "integer from -2147483648"),
        (text([launch(args=[["scalar", "object", 1]])]), "an argument"),
        (text([launch(args=[["scalar", "int32", float("inf")]])]), "an argument"),
        (text([launch(args=[["scalar", "int8", float("nan")]])]), "an argument"),
        (text([launch(args=[["float", 10**400]])]), "401 digits is too large"),
        (text([launch(args=[["scalar", "float16", -(10**400)]])]), "digits is too large"),
        (text([launch(args=[["scalar", "float16", 1e10]])]), "is too large; the largest is 65504"),
        (text([launch(args=[["scalar", "float16", 10**30]])]), "is too large; the largest is 65504"),
        (text([launch(args=[["scalar", "float32", -1e39]])]), "a float32 argument of -1e.39 is too large"),
        (text([launch(args=[["images", "x", 0, 4]])]), "Images of 'x'"),
        (text([launch(args=[["images", "x", -1, 2]])]), "Images of 'x'"),
        (text([launch(args=[["map", "z", [1, 4], None, None, 0, None, None]])]), "expected one of x, w, y"),
        (
            text([launch(args=[["map", "x", [1, 4], [9999, 4], [4], 0, None, None]])]),
            "reaches over 159984 bytes",
        ),
        (text([launch(args=[["map", "x", [1, 4], [9, 4], [-4], 0, None, None]])]), "integer from 1"),
        (text([launch(args=[["map", "x", [1, 4], "no", None, 0, None, None]])]), "expected sides such as"),
        (text([launch(args=[["map", "x", [1, [4]], None, None, 0, None, None]])]), "integer from 1"),
        (text([launch(args=[["map", "x", [1, 4], [1, 4], [4], [], None, None]])]), "integer"),
        (text([launch(args=[["map", "x", [1, 4], [1, 4], [4], 0, [], None]])]), "expected one of float16"),
        (text([{"copy_in": ["w", 0, 1], "stream": 0}]), "the plan copies 'w' in; it may copy x"),
        (text([{"copy_in": ["y", 0, 1], "stream": 0}]), "the plan copies 'y' in; it may copy x"),
        (text([{"copy_out": ["x", 0, 1], "stream": 0}]), "the plan copies 'x' out; it may copy y"),
        (text([{"copy_out": [["y"], 0, 1], "stream": 0}]), "it may copy y"),
        (
            text([{"copy_in": ["col", 0, 1], "stream": 0}], scratch=scratch("float32", [2], "")),
            "copies 'col' in",
        ),
        (text([{"copy_out": ["y", 0, 99], "stream": 0}]), "Images of 'y'"),
        (text([{"symbol": "s", "buffer": "../x", "stream": 0}]), "expected one of"),
        (text([gemm(9999, 9999, 1)]), "it reaches 9,999 elements of a, which has"),
        (text([gemm(1, 1, 1, batch=9999)]), "reaches 9,999 elements of a"),
        (text([gemm(2, 1, 1, lda=9999)]), "reaches 10,000 elements of a"),
        (text([gemm(1, 2, 2, ldb=1)]), "lines of b are 1 elements apart, and have 2"),
        (text([gemm(0, 1, 1)]), "sizes are 1 to"),
        (text([gemm(2**31, 1, 1)]), "m of a gemm has 2147483648"),
        (text([gemm(True, 1, 1)]), "m of a gemm has True"),
        (text([gemm(1, 1, 1, layout="xx")]), "layout of a gemm is 'xx'"),
        (text([gemm(1, 1, 1, alpha="1")]), "alpha of a gemm is '1'"),
        (text([gemm(1, 1, 1) | {"product": [1, 1, 1]}]), "a gemm with 3 sizes and factors; expected 10"),
        (text([gemm(1, 1, 1, a="z")]), "expected one of x, w, y"),
        (
            text([gemm(1, 1, 4, a="col")], scratch=scratch("float16", [4], "")),
            "does not multiply float16 by float32 into float32",
        ),
        (text([], scratch={"x": ["float32", [1], ""]}), "x, w, y are given"),
        (text([], scratch={"w": ["float16", [1], ""]}), "a buffer 'w'"),
        (text([], scratch=scratch("float32", [1 << 30, 1 << 30], "")), "too large"),
        (text([], scratch=scratch("float32", [], "")), "no shape"),
        (text([], scratch=scratch("float32", [1] * 9, "")), "no shape"),
        (text([], scratch=scratch([4])), "no shape"),
        (text([], scratch=scratch("float32", [2.0], "")), "integer"),
        (text([], scratch=scratch("float128", [4], "")), "is of 'float128'; expected one of bool, int8"),
        (text([], scratch=scratch("O", [4], "")), "is of 'O'"),
        (text([], scratch=scratch("void", [4], "")), "is of 'void'"),
        (text([], scratch=scratch("float32", [4], "nm")), "one letter for each axis"),
        (text([], scratch=scratch("float32", [4], "\u001b")), "one letter for each axis"),
        (
            text([], scratch={f"a{i}": ["float32", [1], ""] for i in range(257)}),
            "257 scratch buffers; at most",
        ),
        (text([], scratch={"a b": ["float32", [1], ""]}), "not a valid name in C"),
        (text([], defines={f"a{i}": 1 for i in range(257)}), "257 definitions; at most"),
        (text([], defines={"A B": 1}), "not a valid name in C"),
        (text([], defines={"A": "1\n#include"}), "integer"),
        (text([launch()] * 4000, setup=[launch()] * 97), "a plan of 4097 steps"),
        (text([], setup=[launch(grid=[0])]), "integer from 1"),
        (text([], setup=[launch(args=[["buffer", "x"]])]), "the setup names a buffer 'x'; it has no buffers"),
        (text([], setup=[{"copy_in": ["x", 0, 1], "stream": 0}]), "the setup copies 'x' in; it may copy not"),
    ],
)
def test_what_is_no_plan(answer: bytes, message: str) -> None:
    with pytest.raises(VariantError, match=message):
        decoded(answer)


@pytest.mark.parametrize("name", ["images", "probabilities"])
def test_setup_reads_weights_alone(name: str) -> None:
    with pytest.raises(
        VariantError, match=rf"the setup names a buffer '{name}'; expected one of conv1\.weight, "
    ):
        decoded(text([], setup=[launch(args=[["buffer", name]])]), NETWORK)


@pytest.mark.parametrize("name", ["images", "probabilities", "fc2.bias"])
def test_a_given_name_is_not_taken(name: str) -> None:
    with pytest.raises(
        VariantError, match=rf"scratch has a buffer '{name}'; images, conv1\.weight.* are given"
    ):
        decoded(text([], scratch={name: ["float32", [4], ""]}), NETWORK)


@given(
    st.fixed_dictionaries({"scratch": JSON, "defines": JSON, "setup": JSON, "steps": JSON})
    | st.fixed_dictionaries(
        {
            "scratch": st.dictionaries(st.text(max_size=4), JSON, max_size=3),
            "defines": st.dictionaries(st.text(max_size=4), JSON, max_size=3),
            "setup": st.lists(JSON, max_size=3),
            "steps": st.lists(JSON, max_size=3),
        }
    )
    | JSON
)
def test_anything_else_is_refused_in_words(values: Any) -> None:
    try:
        planned = decoding.decode_values(values, SHAPE, HEAD, SOURCE)
    except VariantError:
        return
    assert all(isinstance(step, Launch | CopyToSymbol | Gemm) for step in (*planned.setup, *planned.steps))


@pytest.mark.parametrize(
    "answer",
    [
        b"[]",
        b'["conv2d", "fp8", 90, "", false]',
        b'["conv2d", "fp32", 90, "", 1]',
        b'["conv3d", "fp32", 90, "", false]',
        b'["conv2d", "fp32", 90, ""]',
        b'[["conv2d"], "fp32", 90, "", false]',
        b"{}",
    ],
)
def test_what_is_no_variant(answer: bytes) -> None:
    with pytest.raises(VariantError, match="not a variant"):
        decoding.decode_head(answer)


@pytest.mark.parametrize("arch", ["true", "-1", "1e3", "10000"])
def test_an_architecture_is_a_number(arch: str) -> None:
    with pytest.raises(VariantError, match=r"min_arch of the variant has .*; expected an integer"):
        decoding.decode_head(f'["conv2d", "fp32", {arch}, "", false]'.encode())
