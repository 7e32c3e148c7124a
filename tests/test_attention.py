"""Tests of the operation ``attention`` beyond those that all operations share."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gpu_arrays import drawn
from lent_arrays import CupyArray, values
from lent_arrays import libraries as libraries

from mini_dnn import attention, ops
from mini_dnn.device import Device
from mini_dnn.errors import ShapeError
from mini_dnn.ops.attention import AttentionShape, answer, audit, bound, mistakes, probe
from mini_dnn.ops.attention_numpy import PART, softmax
from mini_dnn.ops.attention_shape import arrays_of, given, lying, parts
from mini_dnn.ops.compare import Comparison, compare_all
from mini_dnn.ops.hints import hint
from mini_dnn.running.runner import run
from mini_dnn.running.verify import verify
from mini_dnn.variant import find, names

OPERATION = ops.find("attention")
FOUR_KINDS = AttentionShape(1, 4, 101, 64)  # of heads that are drawn
RUNGS = [name for name in names("attention") if find(name).plan]


def compared(p: AttentionShape, arrays: ops.Arrays, o: np.ndarray, precision: str = "fp16") -> Comparison:
    """Compare ``o (B,H,T,d)``, rounded to its type, with float64."""
    found = {"o": lying(p, o).astype(p.arrays["o"].dtype)}
    return compare_all(found, answer(p, arrays), bound(p, arrays, precision))


def in_halves(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a (...,m,k) @ b (...,k,n)`` with sums in half precision."""
    a, b = a.astype(np.float16), b.astype(np.float16)
    c = np.zeros((*a.shape[:-1], b.shape[-1]), np.float16)
    for k in range(a.shape[-1]):
        c += a[..., k, None] * b[..., k, None, :]
    return c.astype(np.float64)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("1,2,65,64", AttentionShape(1, 2, 65, 64)),
        ("1,2,65,32,fp32", AttentionShape(1, 2, 65, 32, "fp32")),
        ("3,1,1,128,fp16,packed,1,0.5", AttentionShape(3, 1, 1, 128, "fp16", "packed", True, 0.5)),
    ],
)
def test_sizes_of_the_command_line(text: str, problem: AttentionShape) -> None:
    assert OPERATION.parse(text) == problem
    assert OPERATION.parse(problem.text) == problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,65", "expected 4 to 8: B,H,T,d,dtype,layout,causal,scale"),
        ("1,2,0,64", "T = 0"),
        ("1,2,65,80", "d is 80; expected 32, 64, 128: pad each q, k and v with zeros"),
        ("1,2,65,256", "d is 256; expected 32, 64, 128: no kernel has wider heads"),
        ("1,2,65,64,bf16", "dtype is 'bf16'; expected one of fp32, fp16"),
        ("1,2,65,64,fp16,strided", "layout is 'strided'; expected one of contiguous, packed"),
        ("1,2,65,64,fp16,packed,2", "'2' is neither 0 nor 1"),
        ("1,2,65,64,fp16,packed,0,nan", "scale is nan"),
        ("1,2,65,64,fp16,packed,0,1e-46", "scale is 1e-46, which is 0 in fp32"),
    ],
)
def test_problems_that_make_no_sense_are_refused(text: str, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        OPERATION.parse(text)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", ["contiguous", "packed"])
def test_the_answer_is_the_definition(layout: str, causal: bool) -> None:
    p = AttentionShape(2, 3, 5, 32, "fp32", layout, causal, 0.25)
    q, k, v = drawn(3, 2, 3, 5, 32)
    expected = np.empty((2, 3, 5, 32))
    for b, h, i in np.ndindex(2, 3, 5):
        keys = i + 1 if causal else 5
        powers = np.exp([0.25 * float(q[b, h, i].astype(float) @ k[b, h, j]) for j in range(keys)])
        expected[b, h, i] = sum(w * v[b, h, j] for j, w in enumerate(powers / powers.sum()))
    found = lying(p, answer(p, given(p, q, k, v))["o"])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_parts_of_rows_are_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result does not depend on how many scores are computed at a time."""
    p = AttentionShape(1, 2, 37, 32, causal=True)
    arrays = OPERATION.inputs(p, 0)
    whole, allowed = answer(p, arrays)["o"], bound(p, arrays, "fp16")["o"]
    assert p.T**2 < PART
    monkeypatch.setattr("mini_dnn.ops.attention_numpy.PART", 100)
    np.testing.assert_allclose(answer(p, arrays)["o"], whole, rtol=1e-12)
    np.testing.assert_allclose(bound(p, arrays, "fp16")["o"], allowed, rtol=1e-9)


def test_strides_say_where_everything_lies() -> None:
    for layout in ("contiguous", "packed"):
        p = AttentionShape(2, 3, 5, 32, "fp16", layout)
        arrays = OPERATION.inputs(p, 0)
        for at, (name, part) in enumerate(zip(p.buffers, parts(p, arrays), strict=False)):
            flat = arrays[name].ravel()
            for b, h, t in np.ndindex(2, 3, 5):
                start = at * p.part + int(np.dot(p.strides, (b, h, t)))
                assert np.array_equal(flat[start : start + 32], part[b, h, t])
        o = np.arange(2 * 3 * 5 * 32).reshape(p.arrays["o"].shape)
        for b, h, t in np.ndindex(2, 3, 5):
            assert lying(p, o)[b, h, t, 0] == np.dot(p.out_strides, (b, h, t))


def test_drawn_heads_are_of_four_kinds() -> None:
    p = AttentionShape(1, 4, 9 * 4, 64)
    q, k, _ = (x[0].astype(float) for x in parts(p, OPERATION.inputs(p, 0)))
    scores = p.factor * (q @ k.swapaxes(1, 2))
    assert np.abs(scores[0]).max() < 10
    assert scores[1].max() > np.log(np.finfo(np.float32).max)
    assert np.ptp(scores[2], axis=1).max() < 1e-9
    assert (np.diff(scores[3], axis=1) > 0).mean() > 0.8


@pytest.mark.parametrize(("dtype", "causal"), [("fp16", False), ("fp32", True)])
def test_the_bound_lets_rounding_pass(dtype: str, causal: bool) -> None:
    """Rounding of the output, and of the weights as operands of the second product."""
    p = replace(FOUR_KINDS, dtype=dtype, causal=causal)
    arrays = OPERATION.inputs(p, 0)
    q, k, v = (x.astype(np.float32) for x in parts(p, arrays))
    masked = (np.arange(p.T) > np.arange(p.T)[:, None]) & causal
    weights = softmax(np.float32(p.factor) * (q @ k.swapaxes(2, 3)), masked).astype(np.float32)
    assert compared(p, arrays, weights @ v, "fp32").ok
    assert compared(p, arrays, weights.astype(np.float16) @ v.astype(np.float64), "fp16").ok


def test_sums_in_half_fail() -> None:
    """Sums in half precision in either product, and operands in half precision for fp32, must fail."""
    p = FOUR_KINDS
    arrays = OPERATION.inputs(p, 0)
    q, k, v = parts(p, arrays)
    none = np.zeros((p.T, p.T), bool)
    right = softmax(p.factor * (q.astype(float) @ k.astype(float).swapaxes(2, 3)), none)
    with np.errstate(over="ignore", invalid="ignore"):
        of_half = softmax(p.factor * in_halves(q, k.swapaxes(2, 3)), none)
    assert not compared(p, arrays, of_half @ v.astype(float)).ok
    assert not compared(p, arrays, in_halves(right, v)).ok
    p = replace(p, dtype="fp32")
    arrays = OPERATION.inputs(p, 0)
    rounded = {name: array.astype(np.float16).astype(np.float32) for name, array in arrays.items()}
    assert not compared(p, arrays, lying(p, answer(p, rounded)["o"]), "fp32").ok
    assert compared(p, arrays, lying(p, answer(p, rounded)["o"]), "fp16").ok


@pytest.mark.parametrize("change", [{"causal": True}, {"causal": True, "layout": "packed"}, {}])
def test_every_mistake_is_wrong_and_named(change: dict[str, Any]) -> None:
    """Each mistake is described in its own words, or in those of a mistake with the same result."""
    p = replace(AttentionShape(1, 4, 37, 64), **change)
    arrays = OPERATION.inputs(p, 0)
    right, allowed = answer(p, arrays), bound(p, arrays, "fp16")
    told = 0
    for sentence, outputs in mistakes(p, arrays):
        with np.errstate(over="ignore", invalid="ignore"):
            found = {name: o.astype(np.float16) for name, o in outputs.items()}
        assert not compare_all(found, right, allowed).ok, sentence
        told += hint(OPERATION, p, arrays, found, "fp16") == f"the result is the same as when {sentence}"
    assert told >= 14


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"scale": 1.0}, "the scale is left out"),
        ({"scale": 1 / 64}, "scores are divided by d and not by its root"),
        ({"causal": True}, "keys after the query are masked, though the problem is not causal"),
    ],
)
def test_hints(change: dict[str, Any], words: str) -> None:
    p = AttentionShape(1, 2, 23, 64)
    arrays = OPERATION.inputs(p, 0)
    found = answer(replace(p, **change), arrays)
    assert hint(OPERATION, p, arrays, found, "fp16") == f"the result is the same as when {words}"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
def test_probes_betray_the_next_lower_precision(precision: str, rng: np.random.Generator) -> None:
    found = probe(AttentionShape(2, 3, 40, 64, "fp32"), precision, rng)
    assert found is not None
    p, arrays = found
    assert (p.B, p.H) == (1, 1)
    assert {name: a.shape for name, a in arrays.items()} == {n: a.shape for n, a in p.named("in").items()}
    assert probe(p, "fp16_sum", rng) is None


@pytest.mark.parametrize("layout", ["contiguous", "packed"])
def test_large_outputs_are_compared_in_part_and_audited(
    layout: str, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    monkeypatch.setattr("mini_dnn.running.verify.MOST_FLOPS", 1e6)
    p = AttentionShape(2, 5, 70, 32, "fp16", layout)
    arrays = OPERATION.inputs(p, 0)
    o = answer(p, arrays)["o"].astype(np.float16)
    found = verify(OPERATION, p, arrays, {"o": o}, "fp16")
    assert found.ok, str(found)
    assert found.how == "1 of 5 heads of each entry compared, all of it audited"
    wrong = o.copy()
    lying(p, wrong)[1, :, 69] *= np.float16(0.9)  # the last row of every head, which is always compared
    found = verify(OPERATION, p, arrays, {"o": wrong}, "fp16")
    assert not found.ok
    assert found.first is not None
    assert lying(p, wrong)[1, :, 69].size >= found.differing > 0
    at = dict(zip(p.arrays["o"].axes, found.first, strict=True))
    assert (at["b"], at["t"]) == (1, 69)
    assert wrong[found.first] != o[found.first]
    words = audit(p, arrays, {"o": wrong}, "fp16", rng)
    assert words.endswith("elements of a few rows of each head differ from float64")
    wrong[(0,) * 4] = 100
    assert "1 elements lie outside the range of their head's values" in audit(
        p, arrays, {"o": wrong}, "fp16", rng
    )


def test_arrays_from_python(device: Device) -> None:
    q, k, v = drawn(3, 2, 3, 17, 32)
    p, arrays = arrays_of(q, k, v, causal=True)
    assert p == AttentionShape(2, 3, 17, 32, "fp32", "contiguous", True)
    expected = answer(p, arrays)["o"]
    o = attention(q, k, v, causal=True, device=device)
    assert o.dtype == np.float32
    np.testing.assert_allclose(o, expected, rtol=1e-4, atol=1e-4)
    packed = given(replace(p, layout="packed"), q, k, v)["qkv"]
    o = attention(packed, causal=True, impl="attention/v1", device=device)
    np.testing.assert_allclose(o, expected.swapaxes(1, 2), rtol=1e-4, atol=1e-4)
    o = attention(q[0], k[0], v[0], causal=True, impl="attention/v0", device=device)
    np.testing.assert_allclose(o, expected[0], rtol=1e-4, atol=1e-4)


def test_packed_arrays_of_another_library(libraries: Any) -> None:
    packed = drawn(2, 9, 3, 2, 32, dtype="float16")
    p, arrays = arrays_of(packed)
    out = CupyArray(np.zeros(p.arrays["o"].shape, np.float16))
    assert attention(CupyArray(packed), out=out) is out
    np.testing.assert_allclose(values(out), answer(p, arrays)["o"], rtol=2e-3, atol=2e-3)
    q, k, v = (CupyArray(np.ascontiguousarray(x)) for x in parts(p, arrays))
    o = values(attention(q, k, v))
    np.testing.assert_allclose(o, answer(p, arrays)["o"].swapaxes(1, 2), rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    ("shapes", "dtype", "words"),
    [
        ([(1, 2, 5, 32)] * 2, "float32", "found 2 arrays"),
        ([(5, 32)] * 3, "float32", r"expected \(B,H,T,d\), or a single entry"),
        ([(2, 5, 4, 1, 32)], "float32", "q, k and v along the third axis"),
        ([(1, 2, 5, 32), (1, 2, 5, 32), (1, 2, 6, 32)], "float32", "expected the same"),
        ([(1, 2, 5, 33)] * 3, "float32", "d is 33; expected 32, 64, 128"),
        ([(1, 2, 5, 32)] * 3, "float64", "q is float64, which float32 cannot hold exactly"),
    ],
)
def test_arrays_that_are_no_problem(shapes: list[tuple[int, ...]], dtype: str, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        attention(*(np.zeros(shape, dtype) for shape in shapes), device="emulator")


def test_the_default_takes_every_problem() -> None:
    problems = [*OPERATION.check, *OPERATION.spare, *OPERATION.course.values()]
    assert not any(find(OPERATION.default).limit_for(problem) for problem in problems)
    assert [p.T for p in OPERATION.course.values()] == [197, 577, 1025]


@pytest.mark.parametrize("name", RUNGS)
def test_rungs_take_every_size_or_say_why_not(name: str) -> None:
    for d in (32, 64, 128):
        for T in (1, 197, 4096, 100_003):
            for layout in ("contiguous", "packed"):
                p = AttentionShape(3, 5, T, d, "fp16", layout, True)
                assert not find(name).limit_for(p)
                assert not find(name).min_arch > 90
    limit = find(name).limit_for(AttentionShape(1, 1, 1, 64, "fp32"))
    assert limit == "" or "dtype is fp32; attention/v2 takes it" in limit


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["attention/v2", "attention/v3", "attention/v6"])
def test_many_tiles_of_keys(name: str, device: Device) -> None:
    p = AttentionShape(1, 1, 1025, 32)
    arrays = OPERATION.inputs(p, 0)
    variant = find(name)
    found = verify(OPERATION, p, arrays, run(variant, p, arrays, device).outputs, variant.precision)
    assert found.ok, str(found)
