"""Steps of a plan that another variant computes: `Gemm` with ``impl=``, and `Call`."""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mini_dnn import ops
from mini_dnn.device import Device
from mini_dnn.errors import VariantError
from mini_dnn.ops import Array
from mini_dnn.ops.attention import AttentionShape
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.gemm import GemmShape, answer, bound
from mini_dnn.ops.softmax import Rows
from mini_dnn.running.execute import Execution
from mini_dnn.running.runner import run
from mini_dnn.variant import Call, Gemm, Launch, Step, Variant, find, names
from mini_dnn.variant.export import expand

BYTES = 227 * 1024
GEMM, CONV = ops.find("gemm"), ops.find("conv2d")
SHAPE = ConvShape(3, 2, 9, 21, 5, 2, 5)
TAKE_FLOATS = [
    name
    for name in names("gemm")
    if not find(name).needs_gpu and not find(name).limit_for(GemmShape(5, 5, 5))
]


def with_impl(impl: str) -> Variant:
    """m3/cublas with its product computed by another variant."""
    variant = find("m3/cublas")
    assert variant.plan is not None
    inner = variant.plan

    def plan(shape: ConvShape) -> list[Any]:
        return [replace(step, impl=impl) if isinstance(step, Gemm) else step for step in inner(shape)]

    return replace(variant, plan=plan, needs_gpu="")


def calling(impl: str, **changes: Any) -> Variant:
    """A matrix product that leaves all work to another variant."""

    def plan(p: GemmShape) -> list[Gemm]:
        same = {n: getattr(p, n) for n in ("m", "n", "k", "layout", "batch", "alpha", "lda", "ldb", "ldc")}
        return [Gemm(**{"a": "a", "b": "b", "c": "c", **same, "impl": impl} | changes)]

    precision = find("gemm/v5").precision
    return replace(find("gemm/v0"), plan=plan, precision=precision, name="mine")


@pytest.mark.parametrize("impl", TAKE_FLOATS)
def test_the_product_of_milestone_2_by_every_rung(impl: str, quick_emulator: Device) -> None:
    variant = with_impl(impl)
    for shape in (SHAPE, ConvShape(2, 3, 5, 4, 2, 5, 4)):
        arrays = CONV.inputs(shape, seed=0)
        result = run(variant, shape, arrays, quick_emulator)
        expected, allowed = CONV.answer(shape, arrays), CONV.bound(shape, arrays, "fp32")
        comparison = compare_all(result.outputs, expected, allowed)
        assert comparison.ok, f"{shape}: {comparison}"


HALVES = [p for p in (replace(p, beta=0.0) for p in GEMM.check) if p.dtype == "fp16"]


@pytest.mark.parametrize(
    ("impl", "problem"),
    [
        pytest.param(impl, problem, id=f"{impl}/{problem.text}")
        for impl in ("gemm/v5", "gemm/v6")
        for problem in HALVES
        if not find(impl).limit_for(problem)
    ],
)
def test_all_that_a_product_may_be(impl: str, problem: GemmShape, quick_emulator: Device) -> None:
    """Types, layouts, a batch, factors and gaps; also kernels that need a newer GPU, and tensor maps."""
    variant = calling(impl)
    assert variant.planned(problem, BYTES).min_arch == find(impl).min_arch > variant.min_arch
    arrays = GEMM.inputs(problem, seed=0)
    found = run(variant, problem, arrays, quick_emulator).outputs
    assert compare_all(found, answer(problem, arrays), bound(problem, arrays, "fp16")).ok


def test_the_plan_has_the_launches_of_the_variant() -> None:
    planned = with_impl("gemm/v2").planned(SHAPE, BYTES)
    product = planned.steps[1]
    assert isinstance(product, Launch)
    assert [step.kernel for step in planned.launches] == ["unroll", "gemm", "permute"]
    assert product.code is not None
    assert product.code.source == find("gemm/v2").source
    assert dict(product.code.defines)["TILE"] == 32
    assert planned.codes == [product.code]
    assert product.args[:4] == ("product_1_a", "product_1_b", "product_1_c", "product_1_c")
    K, cols = 20, SHAPE.cols
    assert {name: (of, array.shape) for name, (of, array) in planned.views.items()} == {
        "product_1_a": ("w", (1, 5, K)),
        "product_1_b": ("col", (1, K, cols)),
        "product_1_c": ("gemm_out", (1, 5, cols)),
    }
    assert planned.nbytes == with_impl("").planned(SHAPE, BYTES).nbytes
    text = expand(with_impl("gemm/v2"), SHAPE, "a test", BYTES)
    assert re.search(
        r"//   gemm_v2_tiled_gemm<<<dim3\(\d+, 1, 1\), dim3\(32, 32\), 0>>>\(w, col, gemm_out,", text
    )
    assert "\n#define gemm gemm_v2_tiled_gemm\n" in text


def test_a_variant_that_calls_a_variant() -> None:
    """The final callee is a library, or a variant with its own scratch buffers."""
    problem = GemmShape(33, 18, 47)
    planned = calling("gemm/cublas").planned(problem, BYTES)
    (step,) = planned.steps
    assert isinstance(step, Gemm)
    assert (step.a, step.b, step.c, step.impl) == ("product_0_a", "product_0_b", "product_0_c", "")
    assert planned.needs_gpu.startswith("cuBLAS")

    def plan(p: GemmShape) -> list[Any]:
        copy = Launch("copy", (1,), (1,), ("a", "again", 33 * 47))
        return [copy, Gemm("again", "b", "c", p.m, p.n, p.k, impl="gemm/v1")]

    middle = replace(find("gemm/v0"), plan=plan, scratch=lambda p: {"again": (33 * 47,)})
    outer = replace(calling("middle"), lookup=lambda name: middle if name == "middle" else find(name))
    planned = outer.planned(problem, BYTES)
    assert planned.scratch == {"product_0_again": Array((33 * 47,))}
    assert [step.code and step.code.source.parent.name for step in planned.launches] == [
        "v0_naive",
        "v1_coalesced",
    ]
    assert planned.views["product_0_product_1_a"][0] == "product_0_again"


def test_a_view_follows_its_buffer(quick_emulator: Device) -> None:
    """The buffer may be replaced: for one entry, inputs of a resident network stay in host memory."""
    problem = GemmShape(5, 6, 7)
    planned = calling("gemm/v1").planned(problem, BYTES)
    execution = Execution(planned, quick_emulator.compile(planned.source, planned.defines), quick_emulator)
    arrays = GEMM.inputs(problem, seed=0)
    execution.buffers["a"].free()
    execution.buffers["a"], host = quick_emulator.shared("a", (1, 5, 7))
    host[...] = arrays["a"]
    quick_emulator.copy_in(execution.buffers["b"], arrays["b"])
    execution.kernels()
    found = np.empty((1, 5, 6), np.float32)
    quick_emulator.copy_out(execution.buffers["c"], found)
    execution.free()
    np.testing.assert_allclose(found, arrays["a"] @ arrays["b"], rtol=1e-5, atol=1e-5)


def chained(constant: str, **arrays: str) -> Variant:
    """Two products. Unless specified otherwise, a of the second product is c of the first."""

    def plan(p: GemmShape) -> list[Any]:
        first = Call("gemm/v3", replace(p, constant=""), {"a": "a", "b": "b", "c": "between"})
        names = {"a": "between", "b": "b", "c": "c"} | arrays
        return [first, Call("gemm/v3", replace(p, constant=constant), names)]

    return replace(calling("gemm/v3"), plan=plan, scratch=lambda p: {"between": (p.m, p.n)})


def test_what_a_plan_writes_is_not_constant() -> None:
    problem = GemmShape(6, 6, 6)
    for right in (chained("b"), chained("", a="a", b="between")):
        assert len(right.planned(problem, BYTES).launches) == 2
    words = (
        r"mine: in Call\('gemm/v3'\), b is constant, but Call\('gemm/v3'\) of the same plan writes its "
        "buffer 'between'.* omit constant="
    )
    with pytest.raises(VariantError, match=words):
        chained("b", a="a", b="between").planned(problem, BYTES)
    by_library = replace(chained("b", a="a", b="between"), name="mine")
    inner = by_library.plan
    assert inner is not None
    library = replace(by_library, plan=lambda p: [Gemm("a", "b", "between", p.m, p.n, p.k), *inner(p)[1:]])
    with pytest.raises(VariantError, match=r"Gemm\(c='between'\) of the same plan writes"):
        library.planned(problem, BYTES)


def some(impl: str = "gemm/v3", **changes: Any) -> Callable[[], Variant]:
    return lambda: calling(impl, **changes)


def with_plan(**changes: Any) -> Callable[[], Variant]:
    """A variant that calls gemm/v0 with other fields."""
    inner = replace(find("gemm/v0"), **changes)
    return lambda: replace(calling("inner"), lookup=lambda name: inner)


@pytest.mark.parametrize(
    ("variant", "words"),
    [
        (some(impl="gemm/v9_none"), "no variant 'gemm/v9_none'"),
        (some(impl="m1"), r"Gemm\(impl='m1'\): it computes conv2d, which is not a matrix product"),
        (some(beta=2.0), "has beta 2; the product is added to no array"),
        (some(a="x"), "names a buffer 'x'; expected one of a, b, c"),
        (some(m=10), "it reaches 70 elements of a, which has 35"),
        (some(layout="xx"), "has layout 'xx'; it must be one of"),
        (some(impl="gemm/v5"), "gemm/v5_mma_async does not support .*: it multiplies halves"),
        (with_plan(setup=lambda p: [Launch("k", (1,), (1,), ())]), "a setup or several streams"),
        (with_plan(plan=lambda p: [Launch("k", (1,), (1,), (), stream=1)]), "several streams"),
        (lambda: replace(calling("gemm/v3"), lookup=None), "a submission is graded by its own"),
        (
            lambda: replace(calling("gemm/v3"), setup=lambda p: [Gemm("a", "b", "c", 1, 1, 1, impl="x")]),
            "a Gemm of setup has impl=",
        ),
        (
            lambda: replace(
                calling("gemm/v3", b="half"), scratch=lambda p: {"half": Array((99,), "float16")}
            ),
            "a is fp32 and b is fp16; expected one type",
        ),
    ],
)
def test_what_cannot_be_called(variant: Callable[[], Variant], words: str) -> None:
    with pytest.raises(VariantError, match=words):
        variant().planned(GemmShape(5, 6, 7), BYTES)


HEADS = AttentionShape(2, 2, 9, 32, "fp16", "packed")


def attending(**changes: Any) -> Variant:
    """Attention that another variant computes from a copy of the input.

    It is called twice; the second call counts.
    """

    def plan(p: AttentionShape) -> list[Step | Call]:
        step = Call("attention/v2", p, {"qkv": "qkv", "o": "first"})
        return [step, replace(step, **{"arrays": {"qkv": "qkv", "o": "o"}} | changes)]

    first = {"first": Array((HEADS.B * HEADS.T, HEADS.H * HEADS.d), "float16")}
    inner = find("attention/v2")
    return replace(inner, plan=plan, scratch=lambda p: first, name="mine")


def test_a_problem_of_any_operation(quick_emulator: Device) -> None:
    """Its arrays are buffers of other shapes, and its scratch buffers and kernels become part of the plan."""
    operation = ops.find("attention")
    planned = attending().planned(HEADS, BYTES)
    assert planned.views["call_0_o"] == ("first", HEADS.arrays["o"])
    assert planned.views["call_1_qkv"] == ("qkv", HEADS.arrays["qkv"])
    assert [launch.kernel for launch in planned.launches] == [
        launch.kernel for launch in find("attention/v2").planned(HEADS, BYTES).launches
    ] * 2
    assert len(planned.codes) == 1, "both have the same kernel"
    arrays = operation.inputs(HEADS, seed=0)
    found = run(attending(), HEADS, arrays, quick_emulator).outputs
    allowed = operation.bound(HEADS, arrays, attending().precision)
    assert compare_all(found, operation.answer(HEADS, arrays), allowed).ok
    launches = re.findall(r"<<<.*>>>\(qkv, qkv, qkv, (\w+),", expand(attending(), HEADS, "a test", BYTES))
    assert launches == ["first", "o"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"impl": "softmax/v0"}, r"computes softmax, whose problems are Rows\(N,L\); found AttentionShape"),
        ({"problem": Rows(3, 4)}, r"computes attention, whose problems are .*; found Rows\(3,4\)"),
        ({"arrays": {"qkv": "qkv"}}, "names buffers for qkv; .* has the arrays qkv, o"),
        ({"arrays": {"qkv": "qkv", "o": "x"}}, "names a buffer 'x'; expected one of qkv, o, first"),
        ({"problem": replace(HEADS, B=3)}, "reaches 5,184 elements of the buffer 'qkv', which has 3,456"),
        ({"problem": replace(HEADS, dtype="fp32")}, "qkv is float32, and the buffer 'qkv' float16"),
        ({"arrays": ["qkv"]}, "a Call has arrays .* it must be names of arrays with names of buffers"),
        ({"problem": "9 tokens"}, "it must be a problem of the variant's operation"),
        ({"impl": "attention/v99"}, "no variant 'attention/v99'"),
    ],
)
def test_calls_that_do_not_fit(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(VariantError, match=words):
        attending(**changes).planned(HEADS, BYTES)


def test_a_setup_calls_nobody() -> None:
    call = Call("attention/v2", HEADS, {"qkv": "qkv", "o": "o"})
    with pytest.raises(
        VariantError, match="a Call of setup has impl=, but only steps of the plan may have it"
    ):
        replace(attending(), setup=lambda p: [call]).planned(HEADS, BYTES)
