"""Tests of the operation ``gemm`` beyond those that all operations share."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mini_dnn import gemm, ops
from mini_dnn.errors import ShapeError
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.gemm import GemmShape, answer, audit, bound, operands, probe, scaled
from mini_dnn.ops.gemm_numpy import lying
from mini_dnn.ops.hints import hint
from mini_dnn.ops.products import product_of_tf32, product_summed_in_half
from mini_dnn.variant import find

OPERATION = ops.find("gemm")
LARGE = [GemmShape(700, 650, 500), GemmShape(600, 600, 700, "fp16", "fp16", "nt", 2, 0.5, 2.0)]


def solved(problem: GemmShape) -> tuple[ops.Arrays, np.ndarray]:
    """The inputs, and the right output in its type."""
    arrays = OPERATION.inputs(problem, seed=0)
    dtype = problem.arrays["c"].dtype
    return arrays, answer(problem, arrays)["c"].astype(dtype)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("17,33,5", GemmShape(17, 33, 5)),
        ("64,64,64,fp16", GemmShape(64, 64, 64, "fp16")),
        ("3,4,5,fp16,fp16,tn,7", GemmShape(3, 4, 5, "fp16", "fp16", "tn", 7)),
        ("3,4,5,fp32,fp32,nn,1,2,-0.5", GemmShape(3, 4, 5, alpha=2.0, beta=-0.5)),
        ("3,4,5,bf16,fp32,tt,1,1,0,6,7,8", GemmShape(3, 4, 5, "bf16", layout="tt", lda=6, ldb=7, ldc=8)),
        ("3,4,5,fp16,fp16,nn,1,1,0,0,0,0,b", GemmShape(3, 4, 5, "fp16", "fp16", constant="b")),
    ],
)
def test_sizes_of_the_command_line(text: str, problem: GemmShape) -> None:
    assert OPERATION.parse(text) == problem
    assert OPERATION.parse(problem.text) == problem


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("17,33", "expected 3 to 13: m,n,k"),
        ("17,33,0", "k = 0"),
        ("17,33,5,fp8", "dtype is 'fp8'; expected one of fp32, fp16, bf16"),
        ("17,33,5,fp16,fp64", "out is 'fp64'"),
        ("17,33,5,fp16,fp16,row", "layout is 'row'; expected one of nn, nt, tn, tt"),
        ("17,33,5,fp16,fp16,nn,0", "batch = 0"),
        ("17,33,5,fp32,fp32,nn,1,nan", "alpha is nan"),
        ("17,33,5,fp32,fp32,nn,1,1,1e39", "beta is 1e\\+39"),
        ("17,33,5,fp32,fp32,nn,1,1,0,4", "lda is 4, and a line has 5 elements; expected 5 or more, or 0"),
        ("17,33,5,fp32,fp32,tn,1,1,0,16", "lda is 16, and a line has 17 elements"),
        ("17,33,5,fp32,fp32,nt,1,1,0,0,4", "ldb is 4"),
        ("17,33,5,fp32,fp32,nn,1,1,0,0,0,32", "ldc is 32"),
        ("17,33,5,fp32,fp32,nn,1,1,0,0,0,0,a", "constant is 'a'; expected one of nothing, b"),
    ],
)
def test_problems_that_make_no_sense_are_refused(text: str, words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        OPERATION.parse(text)


def test_a_constant_changes_nothing_but_its_text() -> None:
    problem = GemmShape(3, 4, 5)
    constant = replace(problem, constant="b")
    assert problem.text == "3,4,5,fp32,fp32,nn,1,1.0,0.0,0,0,0"
    assert constant.text == f"{problem.text},b"
    assert str(constant) == f"{problem}, b constant"
    assert (problem.constants, constant.constants) == ((), ("b",))
    assert problem.arrays == constant.arrays


@pytest.mark.parametrize("name", ["gemm/v4", "gemm/v5"])
def test_tensor_cores_refuse_floats_in_words(name: str) -> None:
    limit = find(name).limit_for(GemmShape(1, 1, 1))
    assert limit.startswith("it multiplies halves")
    assert "and dtype is fp32; gemm/v3 takes all types" in limit


def test_the_default_takes_every_problem() -> None:
    problems = [*OPERATION.check, *OPERATION.course.values()]
    assert not any(find(OPERATION.default).limit_for(problem) for problem in problems)


def test_arrays_in_memory() -> None:
    arrays = GemmShape(2, 3, 4, "fp16", "fp32", "tt", 5, beta=1.0).arrays
    assert {name: (a.shape, a.dtype, a.axes) for name, a in arrays.items()} == {
        "a": ((5, 4, 2), "float16", "ikm"),
        "b": ((5, 3, 4), "float16", "ink"),
        "c0": ((5, 2, 3), "float32", "imn"),
        "c": ((5, 2, 3), "float32", "imn"),
    }
    assert list(GemmShape(2, 3, 4).arrays) == ["a", "b", "c"]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_the_answer_is_numpys(layout: str, rng: np.random.Generator) -> None:
    a, b, c0 = (rng.standard_normal(shape, np.float32) for shape in ((2, 3, 5), (2, 5, 4), (2, 3, 4)))
    given = [
        x.swapaxes(1, 2).copy() if letter == "t" else x for x, letter in zip((a, b), layout, strict=True)
    ]
    problem, arrays = OPERATION.of(*given, c0=c0, layout=layout, alpha=2, beta=-3)
    assert problem == GemmShape(3, 4, 5, "fp32", "fp32", layout, 2, 2.0, -3.0)
    np.testing.assert_allclose(answer(problem, arrays)["c"], 2 * (a @ b) - 3 * c0, rtol=1e-5, atol=1e-5)


def test_arrays_from_python(rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((2, 3, 5), (2, 5, 4)))
    c = gemm(a, b, out="fp16", device="emulator")
    assert c.dtype == np.float16
    np.testing.assert_allclose(c, a.astype(float) @ b.astype(float), rtol=1e-2, atol=1e-2)
    assert OPERATION.of(a, b.astype(np.float32))[0].dtype == "fp32"


def test_one_product_from_python_needs_no_batch(rng: np.random.Generator) -> None:
    a, b, c0 = (rng.standard_normal(shape, np.float32) for shape in ((3, 5), (5, 4), (3, 4)))
    c = gemm(a, b, c0=c0, beta=2, device="emulator")
    assert c.shape == (3, 4)
    np.testing.assert_allclose(c, a @ b + 2 * c0, rtol=1e-5, atol=1e-5)
    assert gemm(a[None], b[None], device="emulator").shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("arrays", "fields", "words"),
    [
        (
            (np.ones((3, 5)), np.ones((1, 5, 4))),
            {},
            r"a is \(3, 5\), b is \(1, 5, 4\); expected a matrix each, or .* each: a\[None\]",
        ),
        ((np.ones(5), np.ones(5)), {}, "expected a matrix each, or a batch of matrices each$"),
        ((np.ones((1, 3, 5)), np.ones((1, 5, 4))), {}, "a is float64, which float32 cannot hold"),
        ((np.ones((1, 3, 5), "f4"), np.ones((1, 6, 4), "f4")), {}, "k is 5 in a and 6 in b"),
        ((np.ones((1, 3, 5), "f4"), np.ones((2, 5, 4), "f4")), {}, r"needs \(1, 5, 4\)"),
        ((np.ones((1, 3, 5), "f4"), np.ones((1, 5, 4), "f4")), {"beta": 2}, "beta is 2, and c0 is missing"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(
    arrays: tuple[np.ndarray, ...], fields: dict[str, float], words: str
) -> None:
    with pytest.raises(ShapeError, match=words):
        OPERATION.of(*arrays, **fields)


@pytest.mark.parametrize(
    ("problem", "precision"),
    [
        (GemmShape(60, 70, 300), "fp32"),
        (GemmShape(60, 70, 300), "fp16"),
        (GemmShape(60, 70, 300, "fp16"), "fp16"),
        (GemmShape(60, 70, 1000, "fp16", "fp16", "tt", 1, 3.0, 2.0), "fp16"),
    ],
)
def test_the_next_lower_precision_is_out_of_bounds(problem: GemmShape, precision: str) -> None:
    arrays = OPERATION.inputs(problem, seed=0)
    lower = product_of_tf32 if precision == "fp32" else product_summed_in_half
    wrong = {"c": scaled(problem, arrays, lower(*operands(problem, arrays)))}
    expected = answer(problem, arrays)
    assert not compare_all(wrong, expected, bound(problem, arrays, precision)).ok
    right = {"c": expected["c"].astype(problem.arrays["c"].dtype)}
    assert compare_all(right, expected, bound(problem, arrays, precision)).ok


@pytest.mark.parametrize(
    ("problem", "precision"),
    [
        (GemmShape(4096, 4096, 2000), "fp32"),
        (GemmShape(300, 10, 50, "fp16"), "fp32"),
        (GemmShape(5, 5, 5, "fp32", "fp32", "tn"), "fp16"),
        (GemmShape(5, 5, 5, "fp16", "fp16"), "fp16"),
    ],
)
def test_a_probe_betrays_a_lower_precision(
    problem: GemmShape, precision: str, rng: np.random.Generator
) -> None:
    found = probe(problem, precision, rng)
    assert found is not None
    chosen, arrays = found
    assert replace(chosen, m=1, n=1, k=1, batch=1) == replace(problem, m=1, n=1, k=1, batch=1)
    assert {name: array.shape for name, array in arrays.items()} == {
        name: array.shape for name, array in chosen.named("in").items()
    }
    assert probe(problem, "fp16_sum", rng) is None


@pytest.mark.parametrize("problem", LARGE, ids=str)
def test_an_audit_finds_one_wrong_element(problem: GemmShape, rng: np.random.Generator) -> None:
    arrays, c = solved(problem)
    precision = "fp32" if problem.dtype == "fp32" else "fp16"
    assert audit(problem, arrays, {"c": c}, precision, rng) == ""
    at = (problem.batch - 1, 123, 321)
    for wrong in (c[at] + c.std(dtype=float) / 5, np.nan, np.inf):
        output = c.copy()
        output[at] = wrong
        found = audit(problem, arrays, {"c": output}, precision, rng)
        assert found == "1 sums over a few columns of c differ from float64"


def test_an_audit_lets_rounding_pass_and_less_exact_sums_not(rng: np.random.Generator) -> None:
    problem = LARGE[0]
    arrays, _ = solved(problem)
    a, b = operands(problem, arrays)
    assert audit(problem, arrays, {"c": a @ b}, "fp32", rng) == ""
    assert audit(problem, arrays, {"c": product_of_tf32(a, b)}, "fp16", rng) == ""
    assert audit(problem, arrays, {"c": product_of_tf32(a, b)}, "fp32", rng) != ""


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layout": "tn"}, "a is read as if it were transposed"),
        ({"layout": "nt"}, "b is read as if it were transposed"),
        ({"alpha": 1.0}, "alpha is left out"),
        ({"beta": 1.0}, "c0 is added without beta"),
    ],
)
def test_hints_at_fields_that_are_ignored(change: dict[str, object], words: str) -> None:
    problem = GemmShape(9, 7, 20, alpha=2.0, beta=0.5)
    arrays = OPERATION.inputs(problem, seed=0)
    other = replace(problem, **change)
    memory = {name: array.reshape(other.arrays[name].shape) for name, array in arrays.items()}
    found = answer(other, memory)
    assert hint(OPERATION, problem, arrays, found, "fp32") == f"the result is the same as when {words}"


MISSED: list[tuple[Any, str]] = [
    (lambda a, b, c0: 0.5 * (a[:1] @ b) + 3 * c0, "entry 0 of a is used for the whole batch"),
    (lambda a, b, c0: 0.5 * (a @ b[:1]) + 3 * c0, "entry 0 of b is used for the whole batch"),
    (lambda a, b, c0: 3 * c0, "no term is added: the loop over k ends before its first tile"),
    (lambda a, b, c0: 0.5 * (a[..., :-1] @ b[:, :-1]) + 3 * c0, "the last term of the sum is left out"),
    (lambda a, b, c0: 0.5 * (a @ b + 3 * c0), r"alpha is a factor of the whole: alpha (a b + beta c0)"),
]


@pytest.mark.parametrize(("mistaken", "words"), MISSED)
@pytest.mark.parametrize("ldc", [0, 29])
def test_hints_at_batches_sums_and_factors(mistaken: Any, words: str, ldc: int) -> None:
    problem = GemmShape(9, 21, 20, batch=2, alpha=0.5, beta=3.0, ldc=ldc)
    arrays, _ = solved(problem)
    c0 = problem.arrays["c0"].without_gap(arrays["c0"]).astype(np.float64)
    found = lying(problem, mistaken(*operands(problem, arrays), c0))
    assert hint(OPERATION, problem, arrays, found, "fp32") == f"the result is the same as when {words}"


@pytest.mark.parametrize(("tile", "turned"), [(16, "a"), (16, "b"), (8, "a"), (8, "b")])
def test_hints_at_tiles_that_are_transposed(tile: int, turned: str) -> None:
    problem = GemmShape(9, 21, 20)
    arrays, _ = solved(problem)
    (a, b) = (np.pad(operand[0], 32)[32:, 32:] for operand in operands(problem, arrays))
    c = np.zeros((9, 21))
    # In the order in which a thread adds its tiles
    for row, col, l0, at in np.ndindex(9, 21, 32 // tile, tile):
        row0, col0, start = row // tile * tile, col // tile * tile, l0 * tile
        left = a[row0 + at, start + row - row0] if turned == "a" else a[row, start + at]
        c[row, col] += left * (b[start + col - col0, col0 + at] if turned == "b" else b[start + at, col])
    words = f"each {tile}x{tile} tile of {turned} is transposed"
    assert words in hint(OPERATION, problem, arrays, {"c": c[None]}, "fp32")


@pytest.mark.parametrize("ldc", [0, 29])
def test_what_is_far_off_is_no_rounding(ldc: int) -> None:
    """The bound for sums in half precision is larger than a term; a gap does not identify wrong elements."""
    problem = GemmShape(9, 21, 200, ldc=ldc)
    arrays, _ = solved(problem)
    allowed, right = bound(problem, arrays, "fp16_sum"), answer(problem, arrays)
    found = {"c": right["c"] + 0.3 * allowed["c"]}
    assert compare_all(found, right, allowed).ok
    assert hint(OPERATION, problem, arrays, found, "fp32") == ""
    in_half = lying(problem, product_summed_in_half(*operands(problem, arrays)))
    assert "the accuracy of fp16_sum, not of fp32" in hint(OPERATION, problem, arrays, in_half, "fp32")


def test_hints_at_sums_and_tiles() -> None:
    problem = GemmShape(40, 24, 20, batch=3)
    arrays, c = solved(problem)
    a, b = operands(problem, arrays)
    assert "ends after 16 of its 20" in hint(
        OPERATION, problem, arrays, {"c": a[..., :16] @ b[:, :16]}, "fp32"
    )
    stale = np.cumsum(c, axis=0)
    assert "accumulator is not cleared" in hint(OPERATION, problem, arrays, {"c": stale}, "fp32")
    c[:, 32:] = 0
    assert "m >= 32 (row of c)" in hint(OPERATION, problem, arrays, {"c": c}, "fp32")
