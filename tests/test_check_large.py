"""Problems that are too large to run in full: only some blocks of each launch run."""

import resource
from pathlib import Path

import numpy as np
import pytest
from check_plans import direct

from mini_dnn.checking.check import check
from mini_dnn.checking.large import TOO_MUCH
from mini_dnn.cli import main
from mini_dnn.cli.check import describe
from mini_dnn.device.base import LaunchConfig
from mini_dnn.device.emulator.checked import CheckedEmulator
from mini_dnn.ops.conv2d import OPERATION, ConvShape
from mini_dnn.variant import Variant, find, names

(LARGE,) = OPERATION.large
MEMORY = 1 << 20  # KB: x and y alone are 16 times as large
KERNEL = """\
extern "C" __global__ void conv(const float* x, const float* w, float* y, int N, int C, int H, int W, int M,
                                int R, int S) {
  const int P = H - R + 1, Q = W - S + 1;
  const int pixel = blockIdx.x * blockDim.x + threadIdx.x, m = blockIdx.y;
  const INDEX n = blockIdx.z;
  if (pixel >= P * Q) return;
  const int p = pixel / Q, q = pixel % Q;
  float acc = 0.0f;
  for (int c = 0; c < C; c++)
    for (int r = 0; r < R; r++)
      for (int s = 0; s < S; s++)
        acc += x[((n * C + c) * H + p + r) * W + q + s] * w[((m * C + c) * R + r) * S + s];
  if (STEPS) while (y[0] == 0.0f) {}
  y[((n * M + m) * P + p) * Q + q] = acc + EXTRA;
}
"""
DEFINES = {"EXTRA": 0, "STEPS": 0}


def written(folder: Path, **changed: object) -> Variant:
    text = KERNEL.replace("INDEX", str(changed.pop("INDEX", "long long")))
    for name, value in (DEFINES | changed).items():
        text = text.replace(name, str(value))
    (folder / "kernel.cu").write_text(text)
    return Variant("conv2d", "", direct(), folder=folder, name="mine")


@pytest.mark.parametrize(
    ("changed", "kind", "words"),
    [
        ({"INDEX": "int"}, "out-of-bounds", "elements before its start"),
        (
            {"EXTRA": "(n == gridDim.z - 1)"},
            "wrong",
            "only the last entry of the batch of 65,535 was compared",
        ),
        ({}, "", ""),
        ({"STEPS": 1}, "", TOO_MUCH),
    ],
    ids=["int", "last image", "right", "waits"],
)
def test_sizes_past_two_to_the_31(changed: dict[str, object], kind: str, words: str, tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # tests before this one count, too
    report = check(written(tmp_path, **changed), [LARGE], large=True)
    told = "\n".join(describe(report))
    assert [finding.kind for finding in report.findings] == ([kind] if kind else []), told
    assert words in told
    assert (", some of its blocks" in told) != bool(report.results[0].refused)
    if kind == "out-of-bounds":
        (finding,) = report.findings
        assert finding.place
        assert finding.place.code.startswith("y[((n * M + m)")
        assert "64 bits" in finding.cure
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < max(MEMORY, before + MEMORY // 2)


def test_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without an option, sizes stay like those of a course."""
    mine = written(tmp_path, INDEX="int")
    assert mine.folder
    (tmp_path / "variant.py").write_text(
        "from mini_dnn.variant import Launch, Variant, ceil_div\n\n\n"
        "def plan(s):\n"
        "    numbers = (s.N, s.C, s.H, s.W, s.M, s.R, s.S)\n"
        "    grid = (ceil_div(s.P * s.Q, 64), s.M, s.N)\n"
        '    return [Launch("conv", grid, (64,), ("x", "w", "y", *numbers))]\n\n\n'
        'VARIANT = Variant("conv2d", "", plan)\n'
    )
    assert main(["check", "--impl", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "(65537, 1, 2, 2) * (1, 1, 1, 1) -> (65537, 1, 2, 2), some of its blocks" in told
    assert str(LARGE) not in told
    assert main(["check", "--impl", str(tmp_path), "--large", "--shapes", LARGE.text]) == 1
    assert "1. out-of-bounds: " in capsys.readouterr().out
    assert main(["check", "--impl", str(tmp_path), "--large", "--device", "cuda"]) == 2
    assert "--large is for the emulator" in capsys.readouterr().err


def test_an_operation_without_large_problems(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "linear/v0_naive", "--large"]) == 2
    assert "--large: linear names no such problem" in capsys.readouterr().err


# These mistakes show only in the trials: an index by a reciprocal, images four at a time, sums in half
BETRAYED = {
    "reciprocal": ("p = pixel / Q", "p = int(pixel * (1.0f / Q))"),
    "four images": ("  float acc", "  if (N > 4 && n >= N / 4 * 4) return;\n  float acc"),
    "half": ("acc +=", "acc = __half2float(__float2half(acc)) +"),
}


@pytest.mark.parametrize("name", BETRAYED)
def test_what_the_trials_betray(name: str, tmp_path: Path) -> None:
    mine = written(tmp_path)
    kernel = tmp_path / "kernel.cu"
    old, new = BETRAYED[name]
    assert old in kernel.read_text()
    kernel.write_text("#include <cuda_fp16.h>\n" + kernel.read_text().replace(old, new))
    report = check(Variant("conv2d", "", direct(), folder=mine.folder, name="mine", precision="fp16"))
    told = {result.problem for result in report.results if result.finding}
    assert told, "\n".join(describe(report))
    if name != "half":
        assert not told & set(OPERATION.check)


def test_which_blocks_run(tmp_path: Path) -> None:
    """The first and last blocks and some in between; all blocks if there are few."""
    (tmp_path / "kernel.cu").write_text(
        'extern "C" __global__ void mark(float* y) { if (threadIdx.x == 0) y[blockIdx.x] = 1.0f; }\n'
    )
    device = CheckedEmulator()
    try:
        module = device.compile(tmp_path / "kernel.cu", {})
        with device.sample(8, 1000):
            for blocks in (5, 8, 100, 3_000_000_000 // 2):
                y = device.empty("y", (blocks,))
                device.launch(module, "mark", LaunchConfig((blocks,), (32,)), (y,))
                memory = y.bytes().view(np.float32)
                ends = [*range(min(4, blocks)), *range(max(0, blocks - 4), blocks)]
                assert memory[[0, 1, -1, -2]].all()
                assert memory[ends].sum() <= 8
                if blocks <= 100:
                    assert memory.sum() == min(8, blocks)
                y.free()
    finally:
        device.close()


CHECKABLE = [name for name in names() if find(name).plan and find(name).operation.large]
ORDINARY = ("m1/direct", "m2/unroll_gemm")
FEW = [name for at, name in enumerate(CHECKABLE) if name in ORDINARY or at % 8 == 0]  # each takes a second
TRIED = ["m1/direct"]  # at all default problems, for which its kernels are compiled


@pytest.mark.parametrize("name", FEW)
def test_no_false_finding(name: str) -> None:
    one = find(name)
    if one.needs_gpu:
        pytest.skip(one.needs_gpu)
    report = check(one, one.operation.large, large=True)
    assert not report.findings, "\n".join(describe(report))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TRIED)
def test_no_false_finding_in_trials(name: str) -> None:
    one = find(name)
    if one.needs_gpu:
        pytest.skip(one.needs_gpu)
    report = check(one)
    assert not report.findings, "\n".join(describe(report))


def test_problems_are_large() -> None:
    for name in CHECKABLE:
        for problem in find(name).operation.large:
            assert max(np.prod(a.shape, dtype=object) for a in problem.arrays.values()) > 1 << 31, problem
    assert isinstance(LARGE, ConvShape)


def test_a_batch_that_is_refused_as_a_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """A run splits it, so blocks of a part can be checked."""
    words = ["check", "conv2d_padded/v2_wmma", "--shapes", "3000,1,1024,1024,1,1,1,0,0,0,fp16,nhwc"]
    assert main(words) == 1
    assert "an int counts them; 'run' splits such a batch: check a smaller one, or" in capsys.readouterr().out
    assert main([*words, "--large"]) == 0
    assert "some of its blocks" in capsys.readouterr().out
