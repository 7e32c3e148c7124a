"""Calls of cuBLAS, checked with a library of the same functions that computes on the host."""

import ctypes
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_dnn import ops
from mini_dnn.device import Device
from mini_dnn.device.cublas import WORKSPACE, Cublas
from mini_dnn.device.emulator.compiler import find_compiler
from mini_dnn.device.product import Product
from mini_dnn.errors import DeviceError, LaunchError, VariantError
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.gemm import GemmShape, answer, bound
from mini_dnn.running.execute import Execution
from mini_dnn.running.runner import run, run_planned
from mini_dnn.variant import Gemm, Launch, Variant, find

OPERATION, VARIANT = ops.find("gemm"), find("gemm/cublas")
SOURCE = Path(__file__).parent / "kernels" / "cublas_stand_in.cpp"
BYTES = 227 * 1024
TAKEN = [p for p in OPERATION.check if not VARIANT.limit_for(p)]
TAKEN += [GemmShape(5, 3, 4, "bf16", "bf16", "tn", 2, 0.5, -1.0, 7, 0, 4)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    target = tmp_path_factory.mktemp("cublas") / "libcublas.so"
    command = [
        str(find_compiler().path),
        "-std=c++17",
        "-O1",
        "-shared",
        "-fPIC",
        str(SOURCE),
        "-o",
        str(target),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(target))


@pytest.fixture
def cublas(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> Callable[[], Cublas]:
    monkeypatch.setattr("mini_dnn.device.cublas._load", lambda: library)
    return lambda: Cublas(stream=1, workspace=2)


def test_all_problems(cublas: Callable[[], Cublas]) -> None:
    layouts = {problem.layout for problem in TAKEN}
    assert layouts == {"nn", "nt", "tn", "tt"}
    assert len({(p.dtype, p.out) for p in TAKEN}) == 5
    handle = cublas()
    for problem in TAKEN:
        arrays = OPERATION.inputs(problem, seed=0)
        c = arrays["c0"].copy() if problem.beta else np.full_like(answer(problem, arrays)["c"], np.nan)
        c = np.ascontiguousarray(c, problem.arrays["c"].dtype)
        product = step_of(problem).product
        assert not product.limit_for({"a": arrays["a"], "b": arrays["b"], "c": c})
        addresses = (arrays["a"].ctypes.data, arrays["b"].ctypes.data, c.ctypes.data)
        handle.multiply(product, *addresses, arrays["a"].dtype.name, c.dtype.name)
        result = compare_all({"c": c}, answer(problem, arrays), bound(problem, arrays, "fp32"))
        assert result.ok, f"{problem}: {result}"
    handle.close()


def step_of(problem: GemmShape) -> Gemm:
    step = VARIANT.planned(problem, BYTES).steps[-1]
    assert isinstance(step, Gemm)
    return step


def test_a_status_is_an_error(cublas: Callable[[], Cublas]) -> None:
    with pytest.raises(LaunchError, match="cublasGemmStridedBatchedEx failed with status 7"):
        cublas().multiply(Product(2, 3, 4, ldc=2), 0, 0, 0, "float32", "float32")
    assert WORKSPACE == 32 << 20


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        (GemmShape(5, 5, 5, "fp32", "fp16"), "cuBLAS multiplies fp32 into fp32, not fp16"),
        (GemmShape(5, 5, 5, "fp16", "bf16"), "cuBLAS multiplies fp16 into fp16 or fp32, not bf16"),
        (GemmShape(5, 5, 5, alpha=0.0), "does not look at a and b where alpha is 0"),
    ],
)
def test_what_the_variant_refuses(problem: GemmShape, words: str) -> None:
    assert words in VARIANT.limit_for(problem)


def test_c0_is_copied_without_its_gaps(emulator: Device) -> None:
    """The variant's only kernel is tested; the library is absent."""
    problem = GemmShape(70_000, 3, 1, "fp16", "fp16", "nn", 1, 1.0, 2.0, 0, 0, 5)
    planned = VARIANT.planned(problem, BYTES)
    copy, _ = planned.steps
    assert isinstance(copy, Launch)
    assert copy.grid == (1, 65535)
    arrays = OPERATION.inputs(problem, seed=0)
    found = run_planned(replace(planned, steps=(copy,), needs_gpu=""), arrays, emulator).y
    np.testing.assert_array_equal(found, arrays["c0"])
    with pytest.raises(DeviceError, match="needs a GPU: cuBLAS, which it calls"):
        run(VARIANT, problem, arrays, emulator)


@pytest.mark.gpu
@pytest.mark.parametrize("problem", [GemmShape(300, 200, 100, "fp16", "fp16"), TAKEN[2]], ids=str)
def test_a_graph_records_it(problem: GemmShape, cuda: Device) -> None:
    """The graph uses the arguments of the call and the values in the arrays at the replay, on two streams."""
    planned = VARIANT.planned(problem, cuda.max_shared_bytes)
    module = cuda.compile(planned.source, planned.defines)
    for stream in (0, 3):
        execution = Execution(planned, module, cuda, stream)
        graph = cuda.capture(execution.kernels, stream)
        execution.fill()
        arrays = OPERATION.inputs(problem, seed=stream)
        for name, array in arrays.items():
            cuda.copy_in(execution.buffers[name], array, stream)
        for _ in range(2):
            graph.replay()
        found = np.empty(problem.arrays["c"].shape, problem.arrays["c"].dtype)
        cuda.copy_out(execution.buffers["c"], found, stream)
        graph.free()
        execution.free()
        result = compare_all({"c": found}, answer(problem, arrays), bound(problem, arrays, "fp32"))
        assert result.ok, str(result)


@pytest.mark.gpu
def test_a_product_beyond_its_buffers_is_refused(cuda: Device) -> None:
    a, b, c = (cuda.empty(name, (4, 4)) for name in "abc")
    with pytest.raises(LaunchError, match="'a' and 'b' into 'c': it reaches 20 elements of a, which has 16"):
        cuda.gemm(Product(5, 4, 4), a, b, c)
    for buffer in (a, b, c):
        buffer.free()


def test_in_what_it_computes() -> None:
    assert VARIANT.computes_in(GemmShape(5, 5, 5)) == "fp32"
    assert VARIANT.computes_in(GemmShape(5, 5, 5, "bf16")) == "fp16"
    assert find("gemm/v3").computes_in(GemmShape(5, 5, 5, "fp16")) == "fp32"
    wrong = replace(VARIANT, compute_type=lambda p: "fp8")
    with pytest.raises(VariantError, match="compute_type returned 'fp8', which is not one of"):
        wrong.computes_in(GemmShape(5, 5, 5))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"layout": "n"}, "has layout 'n'; it must be one of nn, nt, tn, tt"),
        ({"alpha": "1"}, "has alpha '1'; it must be a number"),
        ({"lda": 1.5}, "has lda 1.5; it must be an integer"),
    ],
)
def test_fields_are_looked_at(change: dict[str, object], words: str) -> None:
    step = Gemm("a", "b", "c", 1, 1, 1, **change)  # type: ignore[arg-type]
    variant = Variant("gemm", "", plan=lambda p: [step], name="mine")
    with pytest.raises(VariantError, match=words):
        variant.planned(GemmShape(1, 1, 1), BYTES)
