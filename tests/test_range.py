"""Every variant keeps the promise of its precision from 1e-38 to 1e38, with infinities and NaN."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest
from convolutions import runnable

from mini_dnn import conv2d, ops
from mini_dnn.device import Device
from mini_dnn.ops import Arrays
from mini_dnn.ops.attention_shape import AttentionShape, parts
from mini_dnn.ops.attention_shape import given as arrays_of
from mini_dnn.ops.compare import PRECISIONS, compare_all
from mini_dnn.ops.promises import PROMISES, broken, table
from mini_dnn.paths import ROOT
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find, names

# The powers of ten near which limits lie, and the limits of half
SIZES = (1e-38, 1e-30, 1e-20, 1e-10, 1e-8, 1e-7, 1e-5, 1e-3, 1e3, 65504.0, 65520.0, 1e10, 1e20, 1e30, 1e38)
PLACED = (np.inf, -np.inf, np.nan, 7e4, 1e20)  # one such value among ordinary values
# For operations that do more than sums: the arrays that are scaled, and the range of the scale.
WITHIN = {
    "attention": {"q": (1e-38, 1e6), "k": (1e-38, 1e6), "v": (1e-38, 1e30)},
    "lenet": {"images": (1e-38, 1e3)},
    "linear": {"w": (1e-38, 1e3), "bias": (1e-38, 1e30), "x": (1e-38, 1e3)},
    "vit": {"images": (1e-8, 1e3)},
    "conv2d_padded": {"x": (1e-38, 1e30), "w": (1e-38, 1e30)},  # an infinity times padding may be NaN
    "resnet": {"images": (1e-8, 1e3)},
}
PROBLEMS = {
    "conv2d": ("2,2,9,21,3,2,5", "2,3,5,4,2,5,4"),
    "conv2d_relu_pool": ("2,3,12,20,6,3,3,1",),
    "gemm": (
        "17,33,5,fp32,fp32,nn,1,1.0,0.0,0,0,0",
        "1,20,530,fp32,fp32,nn,1,1.0,0.0,0,0,0",
        "33,17,31,fp16,fp32,tn,2,1.0,0.0,0,0,0",
        "136,72,264,fp16,fp16,nt,1,1.0,0.0,0,0,0",
    ),
    "attention": ("2,1,17,32,fp32,contiguous,0,0.0", "1,2,65,64,fp16,contiguous,0,0.0"),
    "softmax": ("5,33",),
    "linear": ("1,1,8,8,none,none,0,0,fp16,0,0", "2,37,136,72,none,full,0,1,fp16,0,0"),
    "lenet": ("1,0,86",),
    "vit": ("1,8,4,1,32,1,1,2,10,fp32",),
    "conv2d_padded": (
        "1,5,7,10,9,3,1,1,0,0,fp32,nchw",
        "2,24,5,7,40,3,1,1,0,0,fp16,nhwc",
        "1,64,3,8,64,3,1,1,0,0,fp16,nhwc",
    ),
    "resnet": (
        "1,8,1,small,8-8-16-16,1-1-1-1,3,fp32",
        "1,9,1,small,16-16-16-32,1-1-1-1,4,fp16",
        "1,33,3,imagenet,64-64-64-64,1-1-1-1,3,fp16",
    ),
}
PARTS = 5  # number of parts of a variant's cases, of which one is tested


def changed(op: str, given: Arrays) -> Iterator[tuple[str, Arrays]]:
    """The inputs with one array scaled, or with one value replaced."""
    floats = {name: a for name, a in given.items() if a.dtype.kind == "f" and name != "x_moments"}
    limits = WITHIN.get(op, dict.fromkeys(floats, (0.0, np.inf)))
    for name, (low, high) in limits.items():
        array = floats[name]
        finite = np.where(np.isnan(array), 0, array).astype(np.float64)  # gaps are NaN
        for size in SIZES:
            if low <= size <= min(high, float(np.finfo(array.dtype).max)):
                scaled = (array / np.abs(finite).max() * size if size else array).astype(array.dtype)
                yield f"{name} of {size:g}", {**given, name: scaled}
    for name, array in floats.items() if op not in WITHIN else ():
        for value in PLACED:
            placed = array.copy()
            placed.flat[array.size // 3] = value
            yield f"{value:g} in {name}", {**given, name: placed}
    if op == "conv2d":  # values that differ widely in one image, and tiny ones among zeros
        rng = np.random.default_rng(1)
        spread = given["x"] * 10.0 ** rng.integers(-30, 30, given["x"].shape)
        yield "x of all sizes", {**given, "x": spread.astype(np.float32)}
        few = np.where(rng.random(given["x"].shape) < 0.1, spread, 0)
        yield "few x of all sizes", {**given, "x": few.astype(np.float32)}
        of_w = given["w"] * 10.0 ** rng.integers(-15, 0, given["w"].shape)
        yield "w of all sizes", {**given, "w": of_w.astype(np.float32)}


@cache
def cases_of(op: str, text: str) -> dict[str, tuple[Any, Arrays]]:
    operation = ops.find(op)
    problem = operation.parse(text)
    with np.errstate(over="ignore"):
        return {words: (problem, given) for words, given in changed(op, operation.inputs(problem, 0))}


def problems_of(op: str) -> tuple[str, ...]:
    """Those above, or some of an operation that somebody has added."""
    return PROBLEMS.get(op) or tuple(problem.text for problem in ops.find(op).check)


def cases() -> Iterator[Any]:
    for op in ops.names():
        for number, name in enumerate(names(op)):
            variant = find(name)
            taken = [text for text in problems_of(op) if not variant.limit_for(ops.find(op).parse(text))]
            if taken:  # neighbouring variants use other parts of the cases, and the next five another problem
                part, text = number % PARTS, taken[number // PARTS % min(2, len(taken))]
                yield pytest.param(name, text, part, id=f"{name}/{text}/{part}")


def kept(variant: Variant, problem: Any) -> str:
    """The precision whose promise applies: cuBLAS multiplies halves in the same way as tensor cores."""
    computes_in = variant.computes_in(problem)
    return computes_in if computes_in in PROMISES else variant.precision


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "text", "part"), list(cases()))
def test_a_precision_is_kept(name: str, text: str, part: int, device: Device) -> None:
    variant = runnable(name, device)
    found = []
    for words, (problem, given) in list(cases_of(variant.op, text).items())[part::PARTS]:
        with np.errstate(all="ignore"):
            outputs = run(variant, problem, given, device).outputs
            why = broken(variant.operation, problem, given, outputs, kept(variant, problem))
        found += [f"{words}: {why}"] if why else []
    assert not found, "\n".join(found)


def test_every_operation_is_tried() -> None:
    assert set(PROBLEMS) == set(ops.names())
    for name in names():
        problems = [find(name).operation.parse(text) for text in PROBLEMS[find(name).op]]
        assert any(not find(name).limit_for(problem) for problem in problems), f"{name} is not tried"


@pytest.mark.parametrize("precision", PRECISIONS)
def test_what_breaks_a_promise_is_reported(precision: str) -> None:
    """A finite result for an infinite input, one wrong element, and a spread that is not promised."""
    operation, (problem, given) = ops.find("conv2d"), cases_of("conv2d", PROBLEMS["conv2d"][0])["inf in x"]

    def verdict(outputs: np.ndarray) -> str:
        return broken(operation, problem, given, {"y": outputs.astype(np.float32)}, precision)

    with np.errstate(invalid="ignore"):
        right = operation.answer(problem, given)["y"]
    assert not verdict(right)
    entry = int(np.argwhere(~np.isfinite(right))[0][0])
    hidden = np.nan_to_num(right, nan=0, posinf=0, neginf=0)
    assert "elements of y break the promise of" in verdict(hidden)
    spread = np.array(right)
    spread[entry] = np.nan
    assert bool(verdict(spread)) != PROMISES[precision].spreads
    spread[1 - entry] = np.nan
    assert verdict(spread)
    off = np.array(right)
    off[1 - entry, 0, 0, 0] += 1
    assert f"[n={1 - entry}, m=0, p=0, q=0]" in verdict(off)


def test_small_values_of_the_default_are_as_its_documents_say(device: Device) -> None:
    """conv2d's default rounds to halves: 1e-7 loses most of its digits, and 65,520 becomes infinite."""
    x, w = np.full((1, 1, 8, 8), 1e-7, np.float32), np.ones((1, 1, 3, 3), np.float32)
    assert find(ops.find("conv2d").default).precision == "fp16"
    halves = float(np.float16(1e-7)) / 1e-7
    np.testing.assert_allclose(conv2d(x, w, device=device), 9e-7 * halves, rtol=1e-3)
    np.testing.assert_allclose(conv2d(x, w, "m3/fp32_split", device), 9e-7, rtol=1e-6)
    x[...] = 65520
    assert not np.isfinite(conv2d(x, w, device=device)).any()
    np.testing.assert_allclose(conv2d(x, w, "m3/fp32_split", device), 9 * 65520, rtol=1e-6)


def test_the_page_has_the_table() -> None:
    assert table() in (ROOT / "docs" / "rules.md").read_text()


def test_each_variant_claims_a_promise() -> None:
    claimed: set[str] = {variant.precision for variant in map(find, names()) if isinstance(variant, Variant)}
    assert claimed <= set(PROMISES)
    assert set(PROMISES) == set(PRECISIONS)


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_what_a_query_does_not_see_does_not_count(odd: float, emulator: Device) -> None:
    """Values behind the mask have no effect, not even NaN.

    A query that sees them has the result of float64.
    """
    operation = ops.find("attention")
    p = AttentionShape(1, 2, 21, 32, "fp32", "contiguous", True)
    arrays = operation.inputs(p, 0)
    q, k, v = parts(p, arrays)
    k, v = k.copy(), v.copy()
    k[0, 0, 20, 3] = v[0, 0, 20, 5] = v[0, 1, 7, 9] = odd
    changed = arrays_of(p, q, k, v)
    right, changed_right = operation.answer(p, arrays)["o"], operation.answer(p, changed)["o"]
    for head, seen, columns in ((0, 20, [5]), (1, 7, [9])):
        np.testing.assert_array_equal(changed_right[0, head, :seen], right[0, head, :seen])
        assert not np.isfinite(changed_right[0, head, seen:, columns]).any()
    others = np.arange(32) != 9
    np.testing.assert_array_equal(changed_right[0, 1][:, others], right[0, 1][:, others])
    found = run(find("attention/v0"), p, changed, emulator).outputs
    assert compare_all(found, {"o": changed_right}, operation.bound(p, changed, "fp32")).ok
