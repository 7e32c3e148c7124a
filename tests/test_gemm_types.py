"""Matrix products of bfloat16, with gaps between lines, and of infinite, NaN and tiny values."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from mini_dnn import gemm, ops
from mini_dnn.checking.judge import Example
from mini_dnn.device import Device
from mini_dnn.errors import CheckError, ShapeError
from mini_dnn.measuring.measure import Setting, measure
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.gemm import GemmShape, answer, audit, bound, operands, probe
from mini_dnn.ops.hints import hint
from mini_dnn.ops.problem import TYPES
from mini_dnn.running.compute import best
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find, names

OPERATION = ops.find("gemm")
INF, NAN = np.inf, np.nan
GAPPED = GemmShape(37, 45, 50, "fp16", "fp32", "nt", 2, 1.0, 2.0, 53, 55, 47)


def test_bfloat16_from_python(rng: np.random.Generator) -> None:
    a, b = (rng.standard_normal(shape).astype("bfloat16") for shape in ((7, 9), (9, 5)))
    problem, arrays = OPERATION.of(a, b, out="bf16")
    assert (problem.dtype, arrays["a"].dtype) == ("bf16", ml_dtypes.bfloat16)
    c = gemm(a, b, out="bf16", device="emulator")
    assert c.dtype == ml_dtypes.bfloat16
    expected = a.astype(float) @ b.astype(float)
    np.testing.assert_allclose(c.astype(float), expected, rtol=2.0**-8, atol=1e-6)
    assert OPERATION.of(a, b.astype(np.float16))[0].dtype == "fp32", "neither type holds the other's values"
    with pytest.raises(ShapeError, match="bfloat16 cannot hold exactly; convert c0 to bfloat16"):
        OPERATION.of(a, b, c0=np.ones((7, 5), np.float32), out="bf16")
    with pytest.raises(ShapeError, match="c0 is given, and beta is 0; pass both, with a beta other than 0"):
        OPERATION.of(a, b, c0=np.ones((7, 5), np.float32), beta=0.0)


def test_an_output_has_eight_bits(rng: np.random.Generator) -> None:
    problem = GemmShape(40, 50, 60, "bf16", "bf16")
    arrays = OPERATION.inputs(problem, seed=0)
    expected, allowed = answer(problem, arrays), bound(problem, arrays, "fp32")
    rounded = expected["c"].astype("bfloat16")
    assert compare_all({"c": rounded}, expected, allowed).ok
    assert audit(problem, arrays, {"c": rounded}, "fp32", rng) == ""
    bits = rounded.view(np.uint16) & 0xFFFE  # of seven bits
    assert not compare_all({"c": bits.view("bfloat16")}, expected, allowed).ok
    assert probe(replace(problem, out="fp32"), "fp32", rng) is not None


def test_arrays_with_gaps() -> None:
    arrays = GAPPED.arrays
    assert {name: (a.shape, a.gap) for name, a in arrays.items()} == {
        "a": ((2, 37, 53), 3),
        "b": ((2, 45, 55), 5),
        "c0": ((2, 37, 47), 2),
        "c": ((2, 37, 47), 2),
    }
    assert (GAPPED.lengths, GAPPED.pitches) == ((50, 50, 45), (53, 55, 47))
    assert str(GAPPED).endswith("beta 2, lda 53, ldb 55, ldc 47")
    given = OPERATION.inputs(GAPPED, seed=0)
    for name, array in given.items():
        assert np.isnan(arrays[name].in_gap(array)).all()
        assert np.isfinite(arrays[name].without_gap(array)).all()
    a, b = operands(GAPPED, given)
    assert (a.shape, b.shape) == ((2, 37, 50), (2, 50, 45))
    expected = 2 * given["c0"][..., :45] + np.einsum(
        "imk,ink->imn", given["a"][..., :50], given["b"][..., :50]
    )
    np.testing.assert_allclose(answer(GAPPED, given)["c"][..., :45], expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("which", [0, -1])
def test_who_writes_into_a_gap_is_found(which: int, rng: np.random.Generator) -> None:
    arrays = OPERATION.inputs(GAPPED, seed=0)
    c = answer(GAPPED, arrays)["c"].astype(np.float32)
    assert audit(GAPPED, arrays, {"c": c}, "fp16", rng) == ""
    example = Example(OPERATION, GAPPED, arrays, "fp16")
    assert example.judge({"c": c}) is None
    c[:, which, -1] = 0
    assert audit(GAPPED, arrays, {"c": c}, "fp16", rng) == "the gaps between the rows of c are written"
    found = example.judge({"c": c})
    assert found is not None
    assert "expected nan" in found.what
    assert found.notes == ("c has a gap of 2 elements after each row, and the kernel writes into it",)


@pytest.mark.parametrize(
    ("change", "words"), [({"lda": 0}, "lda is left out"), ({"ldb": 0}, "ldb is left out")]
)
def test_a_pitch_that_is_ignored_is_named(change: dict[str, int], words: str) -> None:
    problem = replace(GAPPED, beta=0.0, ldc=0, batch=1)
    arrays = OPERATION.inputs(problem, seed=0)
    other = replace(problem, **change)
    memory = {
        name: array.reshape(-1)[: np.prod(other.arrays[name].shape)].reshape(other.arrays[name].shape)
        for name, array in arrays.items()
    }
    assert words in hint(OPERATION, problem, arrays, answer(other, memory), "fp16")


def test_gaps_are_no_missing_results(emulator: Device) -> None:
    """Gaps count neither in a measurement nor if a part of the batch is computed at a time."""
    setting = Setting(emulator, entries=None)
    variant = find("gemm/v0")
    arrays = OPERATION.inputs(GAPPED, seed=0)
    found = measure(variant, "gaps", GAPPED, arrays, setting)
    assert found.comparison is not None
    wrong = replace(variant, plan=lambda p: variant.plan(replace(p, n=p.n - 1)))  # type: ignore[misc]
    with pytest.raises(CheckError, match="74 of 3330 output elements are NaN"):
        measure(wrong, "gaps", GAPPED, arrays, setting)
    assert found.result.y.shape == (2, 37, 47)


def special(problem: GemmShape, kind: str) -> ops.Arrays:
    """Inputs with a few values of a kind in separate rows and columns."""
    arrays = {name: array.copy() for name, array in OPERATION.inputs(problem, seed=0).items()}
    a, b = operands(problem, arrays)
    limits = ml_dtypes.finfo(a.dtype)
    values = {
        "infinities": (INF, -INF, NAN),
        "zeros": (INF, 0.0, NAN),
        "subnormals": (
            limits.smallest_subnormal,
            -limits.smallest_normal * 0.75,
            limits.smallest_subnormal * 3,
        ),
        "large": (limits.max, -limits.max, limits.max),
        "past half": (66_000.0, -70_000.0, 1e30),
    }[kind]
    for at, value in enumerate(values):
        a[0, 2 * at, at] = value
        b[0, at + 1, 3 * at] = value
    if kind == "zeros":
        b[0, 0], a[0, :, 1] = 0, 0  # infinity times 0
    return arrays


def supported(variant: Variant) -> list[GemmShape]:
    problems = [GemmShape(20, 24, 40, dtype, dtype) for dtype in TYPES]
    return [problem for problem in problems if not variant.limit_for(problem)]


# Each rung with half of its types, and its neighbours with the others
SPECIAL = [
    pytest.param(variant.name, problem, kind, id=f"{variant.name}/{problem.dtype}/{kind}")
    for at, variant in enumerate(map(find, names("gemm")))
    if not variant.needs_gpu
    for problem in supported(variant)[at % 2 :: 2] or supported(variant)
    for kind in ("infinities", "zeros", "subnormals", "large", "past half")
    if (problem.dtype, kind) != ("fp16", "past half")  # fp16 cannot represent such numbers
]


@pytest.mark.parametrize(("name", "problem", "kind"), SPECIAL)
def test_special_values_on_every_rung(name: str, problem: GemmShape, kind: str, emulator: Device) -> None:
    """Results are those of float64: NaN, tiny, or infinite if they exceed the type's range."""
    variant = find(name)
    arrays = special(problem, kind)
    expected, allowed = answer(problem, arrays), bound(problem, arrays, variant.precision)
    result = compare_all(run(variant, problem, arrays, emulator).outputs, expected, allowed)
    assert result.ok, str(result)
    assert np.isfinite(allowed["c"]).all()
    special_ones = ~np.isfinite(expected["c"])
    assert special_ones.any() == (kind in ("infinities", "zeros"))


def test_what_float64_has_is_computed_and_not_assumed() -> None:
    problem = GemmShape(1, 1, 2)
    arrays = {"a": np.array([[[INF, 1]]], np.float32), "b": np.array([[[0], [1]]], np.float32)}
    assert np.isnan(answer(problem, arrays)["c"]).all()
    arrays["b"][:] = 1
    assert answer(problem, arrays)["c"] == INF
    column = GemmShape(3, 1, 4)  # a library may multiply a vector differently
    given = {"a": np.zeros((1, 3, 4), np.float32), "b": np.full((1, 4, 1), INF, np.float32)}
    assert np.isnan(answer(column, given)["c"]).all()


@pytest.mark.parametrize(
    ("problem", "name"),
    [
        (GemmShape(9, 9, 9, "fp16"), "gemm/v14_mixed"),
        (GemmShape(9, 9, 9, "bf16"), "gemm/v14_mixed"),
        (GemmShape(9, 9, 9, "fp32"), "gemm/v19_fma"),
        (GemmShape(9, 9, 9, "fp32", "fp16"), "gemm/v19_fma"),
        (GemmShape(512, 512, 512, "fp32"), "gemm/v18_thirds"),
        (GemmShape(2000, 2000, 2000, "fp32"), "gemm/v13_split"),
    ],
)
def test_the_best_variant_for_a_problem(problem: GemmShape, name: str, emulator: Device) -> None:
    assert best(OPERATION, problem, emulator).name == name


@pytest.mark.parametrize(("arch", "name"), [(75, "gemm/v3_registers"), (120, "gemm/v5_mma_async")])
def test_the_best_variant_is_one_that_the_device_can_run(
    arch: int, name: str, emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(emulator, "arch", arch)
    assert best(OPERATION, GemmShape(9, 9, 9, "fp16"), emulator).name == name
    vit = ops.find("vit")  # networks/vit/fused has no such instructions itself, but calls variants with them
    assert best(vit, vit.check[0], emulator).name == "networks/vit/layer_by_layer"
