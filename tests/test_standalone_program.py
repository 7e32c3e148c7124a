"""``show --standalone``: inputs, comparison and times of the program, which nvcc alone builds."""

import re
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import why_no_gpu
from take_home_helpers import GEMM, files_of, small

from mini_dnn.device import Device
from mini_dnn.device.clusters import CLUSTER_ARCH
from mini_dnn.device.nvcc import find_nvcc
from mini_dnn.errors import UsageError
from mini_dnn.ops import Array
from mini_dnn.ops.compare import wrong_elements
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.running.runner import run
from mini_dnn.variant import Variant, find
from mini_dnn.variant.answers import ANSWER, ANSWERS, Span, drawn, exercise
from mini_dnn.variant.plan import Launch
from mini_dnn.variant.tensor_map import TensorMap

needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="no nvcc: the CUDA toolkit is not installed")


def built(folder: Path, variant: Variant, problem: Any, arch: int = 90) -> Path:
    """The program, compiled with the folder's Makefile."""
    for name, content in files_of(variant, problem, arch).items():
        (folder / name).write_bytes(content)
    command = ["make", "-C", str(folder), f"NVCC={find_nvcc()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "warning" not in done.stderr
    return folder / "main"


class TestAnswers:
    @pytest.mark.parametrize(
        ("name", "text"),
        [
            ("gemm/v3", "130,67,129,fp16,fp16,nn,2,0.5"),
            ("gemm/v3", "300,270,33"),
            ("gemm/v3", "40,30,70,bf16,bf16,nt,1,1,0.5,80,0,48"),
            ("m2", "70,2,9,21,3,2,5"),
            ("networks/lenet/whole", "2,1,28"),
            ("softmax/v1", "130,300"),
        ],
    )
    def test_a_right_kernel_agrees(self, name: str, text: str, device: Device) -> None:
        variant = find(name)
        problem = variant.operation.parse(text)
        found = exercise(variant.operation, problem, variant.precision)
        given = problem.named("in", "weight")
        arrays = {
            array: drawn(given[array], sequence, span)
            for sequence, (array, span) in enumerate(found.spans.items(), 1)
        }
        assert list(arrays) == list(given)
        outputs = run(variant, problem, arrays, device).outputs
        for output, answers in found.answers.items():
            values = outputs[output].ravel()[answers["at"].astype(np.int64)]
            assert not wrong_elements(values, answers["expected"], answers["bound"]).any()
            other = np.roll(values, 1).astype(np.float64)
            assert wrong_elements(other, answers["expected"], answers["bound"]).any()

    def test_answers_come_from_all_over_the_output(self) -> None:
        found = exercise(GEMM, GEMM.parse("300,270,33"), "fp32").answers["c"]
        assert len(found) == ANSWERS
        assert found.dtype == ANSWER
        assert (np.diff(found["at"].astype(np.int64)) > 0).all()
        assert found["at"][-1] // 270 == 299
        rows = find("softmax/v1").operation
        entries = exercise(rows, rows.parse("1000,10"), "fp32").answers["y"]["at"] // 10
        assert (entries[0], entries[-1], len(np.unique(entries))) == (0, 999, 64)

    def test_a_problem_that_needs_more_memory_than_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = GEMM.parse("1000,1000,1000")
        monkeypatch.setattr("mini_dnn.variant.answers.available_bytes", lambda: 32_000_000)
        exercise(GEMM, problem, "fp32")
        monkeypatch.setattr("mini_dnn.variant.answers.available_bytes", lambda: 31_000_000)
        with pytest.raises(UsageError, match=r"need 0\.0 GB of host memory, and 0\.0 GB are free"):
            exercise(GEMM, problem, "fp32")

    def test_values_are_uniform(self) -> None:
        values = drawn(Array((1000, 1000)), 1, Span(-2.0, 2.0)).ravel()
        assert values.dtype == np.float32
        assert abs(values.mean()) < 5e-3
        assert values.var() == pytest.approx(4 / 3, rel=5e-3)
        counts = np.histogram(values, 64, (-2, 2))[0]
        assert counts.sum() == values.size
        assert (np.abs(counts - values.size / 64) < 5 * np.sqrt(values.size / 64)).all()
        assert abs(np.corrcoef(values[1:], values[:-1])[0, 1]) < 5e-3
        other = drawn(Array((1000, 1000)), 2, Span(-2.0, 2.0)).ravel()
        assert abs(np.corrcoef(values, other)[0, 1]) < 5e-3

    def test_large_problems_have_answers_in_some_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        problem = GEMM.parse("500,300,40,fp32,fp32,tn,2")
        whole = exercise(GEMM, problem, "fp32").answers["c"]
        monkeypatch.setattr("mini_dnn.variant.answers.MOST_FLOPS", problem.flops / 10)
        some = exercise(GEMM, problem, "fp32").answers["c"]
        assert len(some) == problem.batch * 50 * 300
        assert (some["at"][0], some["at"][-1]) == (0, 2 * 500 * 300 - 1)
        _, here, there = np.intersect1d(some["at"], whole["at"], return_indices=True)
        assert len(here) > 1000
        for what in ("expected", "bound"):
            np.testing.assert_allclose(some[what][here], whole[what][there], rtol=1e-13)

    def test_gaps_have_no_answers(self) -> None:
        problem = GEMM.parse("9,7,5,fp32,fp32,nn,1,1,0,0,0,10")
        at = exercise(GEMM, problem, "fp32").answers["c"]["at"]
        assert len(at) == 9 * 7
        assert (at % 10).max() == 6
        a = drawn(Array((1, 4, 9), gap=2), 1, Span(0.0, 1.0))
        assert np.isnan(a[..., 7:]).all()
        assert not np.isnan(a[..., :7]).any()

    def test_numbers_that_the_type_cannot_hold_have_no_answers(self) -> None:
        found = exercise(GEMM, GEMM.parse("40,40,40,fp16,fp16,nn,1,10000"), "fp16").answers["c"]
        assert 0 < len(found) < 1600
        assert (np.abs(found["expected"]) < 65_504).all()

    def test_part_of_an_array_is_drawn_as_in_the_whole(self) -> None:
        array, some = Array((9, 4, 5), "float16"), np.array([0, 3, 8])
        whole = drawn(array, 3, Span(0.0, 1.5))
        assert whole.dtype == np.float16
        np.testing.assert_array_equal(drawn(array, 3, Span(0.0, 1.5), some), whole[some])

    @needs_nvcc
    @pytest.mark.exhaustive
    def test_program_draws_the_same_values(self, tmp_path: Path) -> None:
        (tmp_path / "harness.cuh").write_bytes(
            files_of(find("m1"), ConvShape(1, 1, 1, 1, 1, 1, 1))["harness.cuh"]
        )
        (tmp_path / "main.cu").write_text("""#include "harness.cuh"
template <class Element> void values(std::uint64_t sequence, float low, float high) {
  for (int i = 0; i < 500; i++)
    std::printf("%a ", harness::number(harness::random<Element>(sequence, i, low, high)));
}
int main() {
  values<float>(1, -1.73f, 1.73f), values<half>(2, -0.0681f, 0.0681f), values<unsigned char>(3, 0.0f, 256.0f);
  values<__nv_bfloat16>(4, -1.73f, 1.73f);
}
""")
        command = [str(find_nvcc()), "-std=c++17", "main.cu", "-o", "main"]
        subprocess.run(command, cwd=tmp_path, check=True)
        done = subprocess.run([str(tmp_path / "main")], capture_output=True, text=True, check=True)
        low, high = (float(np.float32(x)) for x in (1.73, 0.0681))
        expected = [
            drawn(Array((500,)), 1, Span(-low, low)),
            drawn(Array((500,), "float16"), 2, Span(-high, high)),
            drawn(Array((500,), "uint8"), 3, Span(0.0, 256.0)),
            drawn(Array((500,), "bfloat16"), 4, Span(-low, low)),
        ]
        assert [float.fromhex(word) for word in done.stdout.split()] == [
            float(x) for x in np.concatenate([some.astype(float) for some in expected])
        ]


COMPILED = [
    "gemm/v8 256,256,2048,fp16,fp16",  # tensor maps, a cluster of four, an early start
    "gemm/v10 512,512,512,fp16,fp16",  # the kernel of v8, which it calls
    "attention/v11 2,3,1,32",  # v11 calls v10, which calls v9
    "networks/vit/fused 3,12,4,3,64,2,2,2,7",  # kernels of three variants
    "m3/ladder_gemm",
    "m3/constant_memory",
    "networks/lenet/tensor",
]


def asked(words: str) -> tuple[Variant, Any]:
    """A variant and the problem after its name, or a small problem."""
    name, _, shape = words.partition(" ")
    variant = find(name)
    return variant, variant.operation.parse(shape) if shape else small(variant)


@needs_nvcc
@pytest.mark.parametrize("words", COMPILED[3:6:2])
def test_nvcc_alone_builds_it(words: str, tmp_path: Path) -> None:
    """Kernels of several variants, and constant memory.

    The other programs are built where they run, on a GPU. A launch in clusters is built below.
    """
    program = built(tmp_path, *asked(words))
    if why_no_gpu():
        done = subprocess.run([str(program)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert re.match(r"harness\.cuh:\d+: cuda\w+\(.*\n  failed: .*CUDA", done.stderr)


def test_make_builds_again_for_another_gpu(tmp_path: Path) -> None:
    for name, content in files_of(find("m1"), small(find("m1"))).items():
        (tmp_path / name).write_bytes(content)

    def make(*arch: str) -> str:
        command = ["make", "NVCC=touch main; echo", *arch]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    assert "sm_90a" in make()
    assert "up to date" in make()
    assert "sm_80 " in make("ARCH=80")
    assert "up to date" in make("ARCH=80")
    assert "sm_90a" in make()


CLUSTERED = """
#include <mini_dnn/ptx.cuh>
extern "C" __global__ void tell(const __grid_constant__ ptx::TensorMap map, const float* w, float* y, int) {
  __shared__ __align__(128) float x[4][4];
  __shared__ ptx::mbarrier arrived;
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("griddepcontrol.wait;" ::: "memory");
  ptx::mbarrier_init(&arrived, 1);
  ptx::mbarrier_arrive_expect_tx(&arrived, sizeof x);
  ptx::tensor_load(x, map, 0, 0, &arrived);
  ptx::mbarrier_wait(&arrived, 0);
  y[blockIdx.x] = rank == blockIdx.x % 2 ? *w * x[blockIdx.x / 4][blockIdx.x % 4] : 0;
}
"""


def clustered(folder: Path) -> tuple[Variant, ConvShape]:
    """A kernel in clusters of two blocks.

    Each block copies the input by a tensor map and computes one output.
    """
    (folder / "kernel.cu").write_text(CLUSTERED)
    map_ = TensorMap("x", (4, 4), swizzle=0)
    launch = Launch("tell", (16,), (1,), (map_, "w", "y", 7), cluster=2, early=True)
    variant = Variant("conv2d", "", plan=lambda s: [launch] * 2, min_arch=90, folder=folder, name="mine")
    return variant, ConvShape(1, 1, 4, 4, 1, 1, 1)


@needs_nvcc
@pytest.mark.exhaustive
def test_nvcc_builds_launches_in_clusters(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    built(tmp_path / "out", *clustered(tmp_path))


@needs_nvcc
@pytest.mark.gpu
def test_launches_in_clusters_run_on_a_gpu(tmp_path: Path, cuda: Device) -> None:
    if cuda.arch < CLUSTER_ARCH:
        pytest.skip(f"clusters need sm_{CLUSTER_ARCH}, and this GPU is sm_{cuda.arch}")
    (tmp_path / "out").mkdir()
    program = built(tmp_path / "out", *clustered(tmp_path), cuda.arch)
    done = subprocess.run([str(program)], cwd=program.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check   y: 16 of 16 elements agree with float64" in done.stdout


@needs_nvcc
@pytest.mark.gpu
@pytest.mark.parametrize(
    "words",
    [*COMPILED, "gemm/v6", "gemm/v7", "gemm/v8", "softmax/v1", "layers/fused", "networks/lenet/whole"],
)
def test_runs_on_a_gpu(words: str, tmp_path: Path, cuda: Device) -> None:
    variant, problem = asked(words)
    if cuda.arch < variant.min_arch:
        pytest.skip(f"{variant.name} needs sm_{variant.min_arch}, and this GPU is sm_{cuda.arch}")
    program = built(tmp_path, variant, problem, cuda.arch)
    done = subprocess.run([str(program)], cwd=tmp_path, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[:2] == [f"kernel  {variant.solver(problem).name}", f"problem {problem}"]
    assert re.match(r"device  .* \(sm_\d+\), CUDA \d+\.\d+$", lines[2])
    assert re.match(r"check   \w+: \d+ of \d+ elements agree with float64, max error", lines[3])
    assert re.match(r"time    [\d.e-]+ ms \((copies and )?kernels\), the median of \d+ runs", lines[4])
    assert re.match(r"rate    [\d.e-]+ TFLOP/s, [\d.e-]+ GB/s", lines[5])


@needs_nvcc
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("1.0f, 0.0f);", "2.0f, 0.0f);", "elements differ from float64"),
        ("    gemm<<<", "    if (false) gemm<<<", "elements are NaN: nobody wrote them?"),
        ("gemm<<<", "gemm<<<0 * ", "failed: invalid "),
    ],
)
def test_a_wrong_kernel_is_reported(
    right: str, wrong: str, message: str, tmp_path: Path, cuda: Device
) -> None:
    program = built(tmp_path, find("gemm/v3"), GEMM.parse("130,129,67"), cuda.arch)
    text = (tmp_path / "main.cu").read_text()
    assert text.count(right) == 1
    (tmp_path / "main.cu").write_text(text.replace(right, wrong))
    subprocess.run(["make", "-C", str(tmp_path), f"NVCC={find_nvcc()}"], check=True, capture_output=True)
    done = subprocess.run([str(program)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert message in done.stdout + done.stderr
