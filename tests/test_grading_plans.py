"""Plans as text: nothing is lost in the conversion, and nothing but a plan is accepted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mini_dnn import ops
from mini_dnn.device.product import Product
from mini_dnn.errors import VariantError
from mini_dnn.grading import decoding, plans
from mini_dnn.grading.plans import Head
from mini_dnn.ops import Array
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.variant import (
    CopyIn,
    CopyToSymbol,
    Gemm,
    Images,
    Launch,
    Planned,
    TensorMap,
    Variant,
    find,
    names,
)

SHAPE = ConvShape(3, 2, 9, 21, 5, 2, 5)
NETWORK = LenetBatch(3)
LARGE = 227 * 1024
HEAD = Head("conv2d", "fp32", 75, "", False)
SOURCE = Path("somewhere/kernel.cu")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
)


def decoded(answer: bytes, problem: Any = SHAPE) -> Planned:
    return decoding.decode(answer, problem, HEAD, SOURCE)


@pytest.mark.parametrize("name", [name for name in names() if find(name).host is None])
def test_a_plan_comes_back_as_it_was(name: str) -> None:
    variant = find(name)
    head = decoding.decode_head(plans.encode_head(Head.of(variant)))
    assert head == Head.of(variant)
    operation = variant.operation
    problems = [*operation.check, *operation.spare, *operation.course.values()]
    taken = [problem for problem in problems if not variant.limit_for(problem)]
    assert len(taken) > 3
    for problem in taken:
        planned = replace(variant.planned(problem, LARGE), name=variant.source.parent.name)
        if planned.codes:
            with pytest.raises(VariantError, match="runs kernels of other variants; expected only its own"):
                plans.encode(planned)
            continue
        assert decoding.decode(plans.encode(planned), problem, head, variant.source) == planned
        values = json.loads(json.dumps(plans.encode_values(planned)))
        assert ops.find(head.op).decode(values["problem"]) == problem
        assert decoding.decode_values(values, problem, head, variant.source) == planned


def planned_as(steps: list[Any], problem: Any = SHAPE, **more: Any) -> Planned:
    """The plan of a variant with these steps."""
    op = "lenet" if isinstance(problem, LenetBatch) else "conv2d"
    return Variant(op, "", plan=lambda s: steps, **more).planned(problem, LARGE)


def test_scalars_keep_their_types() -> None:
    args = (1, 2.5, np.int64(2**40), np.float32(0.5), np.uint8(7), np.float64(0.1), np.bool_(True))
    (launch,) = decoded(plans.encode(planned_as([Launch("k", (1,), (1,), args)]))).steps
    assert isinstance(launch, Launch)
    assert [type(a) for a in launch.args] == [type(a) for a in args]
    assert launch.args == args


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    two = np.int64(2)
    step = Launch("k", (two,), (np.int32(32),), (Images("x", np.int64(0), two),), np.int64(8), np.int64(1))
    planned = planned_as([step], scratch=lambda s: {"col": (two, two)})
    assert decoded(plans.encode(planned)).steps == (Launch("k", (2,), (32,), (Images("x", 0, 2),), 8, 1),)


@pytest.mark.parametrize("cluster", [1, 2, (4,), (2, 1), (1, 2, 4)])
def test_clusters_come_back(cluster: int | tuple[int, ...]) -> None:
    steps = [Launch("k", (8, 8, 8), (32,), ("x",), cluster=cluster, early=cluster != 1)]
    assert list(decoded(plans.encode(planned_as(steps, min_arch=90))).steps) == steps


def test_tensor_maps_come_back() -> None:
    maps = (TensorMap("col", (16, 64)), TensorMap("col", (2, 8, 8), (2, 16, 60), (1024, 64), 0, "bfloat16"))
    step = Launch("k", (1,), (1,), maps)
    scratch = {"col": Array((32, 64), "float16")}
    found = decoded(plans.encode(planned_as([step], scratch=lambda s: scratch, min_arch=90)))
    assert found.steps == (step,)


def test_scratch_keeps_its_types() -> None:
    scratch = {
        "halves": Array((2, 3), "float16", axes="mk"),
        "bytes": Array((7,), "uint8"),
        "short": Array((3,), "bfloat16"),
        "plain": (4,),
        "long": Array((2,), np.int64),  # type: ignore[arg-type]
    }
    found = decoded(plans.encode(planned_as([], scratch=lambda s: scratch))).scratch
    assert found == {
        "halves": Array((2, 3), "float16", axes="mk"),
        "bytes": Array((7,), "uint8"),
        "short": Array((3,), "bfloat16"),
        "plain": Array((4,)),
        "long": Array((2,), "int64"),
    }
    assert sum(array.nbytes for array in found.values()) == 12 + 7 + 6 + 16 + 16


def test_setup_comes_back() -> None:
    setup = [CopyToSymbol("w1", "conv1.weight"), Launch("fold", (1,), (32,), ("fc1.bias", "folded", 32))]
    planned = planned_as([], NETWORK, setup=lambda s: setup, scratch=lambda s: {"folded": (32,)})
    found = decoded(plans.encode(planned), NETWORK)
    assert found.setup == tuple(setup)
    assert found.steps == ()


def text(steps: list[Any], **more: Any) -> bytes:
    return json.dumps({"scratch": {}, "defines": {}, "setup": [], "steps": steps, **more}).encode()


def scratch(*values: Any) -> dict[str, Any]:
    return {"col": list(values)}


def gemm(m: Any, n: Any, k: Any, a: str = "x", **more: Any) -> dict[str, Any]:
    """A matrix product of x and w into y, with any values as sizes and factors."""
    product = vars(Product(1, 1, 1)) | {"m": m, "n": n, "k": k} | more
    return {"cublas": [a, "w", "y"], "product": list(product.values()), "stream": 0}


def launch(**changes: Any) -> dict[str, Any]:
    plain = {"launch": "k", "grid": [1], "block": [1], "args": [], "shared_bytes": 0, "stream": 0}
    return plain | {"cluster": 1, "early": False} | changes


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


def test_products_come_back() -> None:
    step = Gemm("x", "w", "y", 3, 2, 4, 1, "tn", 2, 0.5, -1.0, 0, 5, 6)
    planned = planned_as([replace(step, c="out", m=np.int64(3))], scratch=lambda s: {"out": (36,)})
    found = decoded(plans.encode(planned)).steps
    assert found == (replace(step, c="out"),)


def test_parts_of_any_array_may_be_copied() -> None:
    steps = [{"copy_in": ["images", 1, 3], "stream": 2}, {"copy_out": ["probabilities", 0, 1], "stream": 0}]
    assert decoded(text(steps), NETWORK).steps[0] == CopyIn(Images("images", 1, 3), 2)
    with pytest.raises(VariantError, match=r"copies 'fc1\.bias' in; it may copy images"):
        decoded(text([{"copy_in": ["fc1.bias", 0, 1], "stream": 0}]), NETWORK)


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
