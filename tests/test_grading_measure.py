"""Honest measurement: real kernels on the emulator, with a clock that the tests set."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from grading_helpers import QUICK, assemble, expected, honest, names
from grading_stand_in import NO_FLOOR, ClockedEmulator

from mini_dnn import ops
from mini_dnn.grading import plans
from mini_dnn.grading.asked import Rubric
from mini_dnn.grading.checks import Cheat, Ground, Judge
from mini_dnn.grading.confined import roles
from mini_dnn.grading.credit import judge
from mini_dnn.grading.measure import Floor, Measured, Method, measure
from mini_dnn.grading.plans import Head
from mini_dnn.grading.rubric import load
from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.ops import Arrays
from mini_dnn.ops.compare import PRECISIONS
from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.paths import ROOT
from mini_dnn.variant import find

SHAPE = ConvShape(40, 2, 9, 8, 3, 3, 2)
METHOD = Method("fp32", warm_up=1, repeats=3)


def timed(
    name: str | Path,
    problem: Any = SHAPE,
    method: Method = METHOD,
    floor: Floor = NO_FLOOR,
    device: ClockedEmulator | None = None,
) -> Measured:
    """A variant at a problem."""
    variant, device = find(name), device or ClockedEmulator()
    planned = variant.planned(problem, device.max_shared_bytes)
    return measure(variant.operation, planned, device, method, floor)


def test_an_honest_variant_is_timed(tmp_path: Path) -> None:
    device = ClockedEmulator()
    found = timed(honest(tmp_path), device=device)
    assert (found.refused, found.op_ms, found.samples_ms) == ("", 1.0, (1.0, 1.0, 1.0))
    call = ["fill x", "fill w", "fill y", "copy x", "copy w", "flush", "record", "launch", "record"]
    assert device.log[-len(call) :] == call


@pytest.mark.parametrize(
    "shape", [ConvShape(700, 1, 4, 3, 2, 1, 1), ConvShape(300, 5, 9, 9, 3, 7, 7)], ids=str
)
@pytest.mark.parametrize("name", ["m1/direct", "m3/tensor_cores_fp16"])
def test_honest_sums_are_within_their_bound(name: str, shape: ConvShape) -> None:
    for _ in range(3):
        assert not timed(name, shape, Method(find(name).precision, 0, 2)).refused


@pytest.mark.parametrize("name", names("timed"))
def test_cheats_with_the_clock(name: str, tmp_path: Path) -> None:
    found = timed(assemble(name, tmp_path))
    assert re.search(expected(name), found.refused)


HALF_SUMS = """
#include <cuda_fp16.h>
extern "C" __global__ void conv_direct(const float* x, const float* w, float* y, int C, int H, int W, int M,
                                       int R, int S) {
  const int P = H - R + 1, Q = W - S + 1, pixel = blockIdx.x * blockDim.x + threadIdx.x, n = blockIdx.z;
  if (pixel >= P * Q) return;
  __half total = __float2half(0.0f);
  for (int first = 0; first < C * R * S; first += 16) {
    float acc = 0.0f;  // of what one instruction adds up
    for (int k = first; k < min(first + 16, C * R * S); k++) {
      const int c = k / (R * S), r = k / S % R, s = k % S;
      const float value = x[((n * C + c) * H + pixel / Q + r) * W + pixel % Q + s];
      acc += __half2float(__float2half(value)) * __half2float(__float2half(w[blockIdx.y * C * R * S + k]));
    }
    total = __float2half(__half2float(total) + acc);
  }
  y[(n * M + blockIdx.y) * P * Q + pixel] = __half2float(total);
}
"""


def test_sums_in_half_between_instructions(tmp_path: Path) -> None:
    folder, shape = honest(tmp_path), ConvShape(40, 4, 22, 21, 3, 7, 7)
    assert not timed(folder, shape, Method("fp16", 0, 3)).refused
    (folder / "kernel.cu").write_text(HALF_SUMS)
    found = timed(folder, shape, Method("fp16", 0, 3))
    assert "timed call is wrong" in found.refused


def test_five_cheats_need_a_clock() -> None:
    assert len(names("timed")) >= 5


def test_work_after_the_clock_has_stopped(tmp_path: Path) -> None:
    assert (
        "after the clock had stopped" in timed(honest(tmp_path), device=ClockedEmulator(late_s=0.02)).refused
    )


def test_faster_than_the_hardware(tmp_path: Path) -> None:
    bytes_per_ms = SHAPE.min_bytes / 1.5  # moving them takes 1.5 ms, and the clock says 1
    folder = honest(tmp_path)
    assert "less than moving its bytes" in timed(folder, floor=Floor(bytes_per_ms, 0, 0.0)).refused
    assert "less than" in timed(folder, floor=Floor(1e30, 0, SHAPE.flops / 1.5)).refused
    assert not timed(folder, floor=Floor(bytes_per_ms, SHAPE.min_bytes // 2, 0.0)).refused


def test_parts_that_fit_the_cache_are_not_faster(tmp_path: Path) -> None:
    """A plan whose scratch is so large that a batch is done in parts chooses how large these are."""
    floor = Floor(SHAPE.min_bytes / 20, SHAPE.min_bytes // 2, 0.0)  # 10 ms for the batch, 1 for a tenth of it
    part = SHAPE.with_batch(SHAPE.N // 10)
    assert floor.ms(part) == 0
    whole = Method("fp32", 0, 3, whole=SHAPE.N)
    found = timed(honest(tmp_path), part, whole, floor)
    assert (found.floor_ms, found.refused) == (pytest.approx(1.0), "")
    floor = Floor(SHAPE.min_bytes / 30, SHAPE.min_bytes // 2, 0.0)
    found = timed(tmp_path / "honest", part, whole, floor)
    assert "less than moving its bytes" in found.refused


def test_floor_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.grading.measure.copy_rates", lambda device: {"copy_gbps": 4000.0})
    device = ClockedEmulator()
    device.max_clock_mhz, device.multiprocessors, device.l2_bytes = 1980.0, 132, 60 << 20  # type: ignore[attr-defined]
    floor = Floor.of(device)
    main = ConvShape(10000, 1, 86, 86, 4, 7, 7)
    assert floor.ms(main) == pytest.approx((main.min_bytes - (60 << 20)) / 4.6e9)  # of an op time of 0.9 ms
    assert floor.ms(SHAPE) < 1e-6


class Subject:
    """A variant that was measured already."""

    head = Head("conv2d", "fp32", 75, "", False)

    def __init__(self, *measured: Measured) -> None:
        self.measured = list(measured)
        self.asked: list[tuple[ConvShape, Method]] = []

    def measure(self, problem: ConvShape, method: Method) -> list[Measured]:
        self.asked.append((problem, method))
        return self.measured


def measured_as(op_ms: float, refused: str = "") -> Measured:
    return Measured(op_ms, (op_ms,), 0.1, (None, None), refused)


def rubric_with(tmp_path: Path, performance: str) -> Rubric:
    path = tmp_path / "rubric.toml"
    path.write_text(
        QUICK.replace("hidden = 3 }", f"hidden = 3, performance = 10 }}\n[performance]\n{performance}")
    )
    return load(path)


@pytest.mark.parametrize(
    ("performance", "points", "said"),
    [
        (
            "batch = 1000\nfull = 10\nnone = 50",
            5.0,
            "30.000 ms at batch 1000; 10 ms earns all points, 50 none",
        ),
        ("batch = 1000\nfull = 5\nnone = 30", 0.0, "30.000 ms"),
        (
            'batch = 1000\nfull = 0.25\nnone = 1\nreference = "m2/unroll_gemm"',
            10 / 3,
            "0.750 of m2/unroll_gemm's",
        ),
    ],
)
def test_points_for_time(performance: str, points: float, said: str, tmp_path: Path) -> None:
    rubric = rubric_with(tmp_path, performance)
    asked, subject = rubric.variants[0], Subject(measured_as(10.0), measured_as(5.0))
    made = Judge(Ground(rubric, None, lambda: 40.0), asked, subject, has_clock=True)  # type: ignore[arg-type]
    outcome = made.performance()
    assert made.op_ms == 30.0, "two layers, each in two parts"
    assert said in outcome.message
    assert outcome.fraction * 10 == pytest.approx(points)
    assert (outcome.status == "passed") == (points > 0)
    assert subject.asked[0] == (ConvShape(1000, 1, 86, 86, 4, 7, 7), Method("fp16", 5, 10))


class Wrong(Subject):
    """One that is right at all shapes but those with three channels, and quick."""

    def planned(self, problem: ConvShape) -> None:
        pass

    def compile(self, planned: object) -> None:
        pass

    def solve(self, problem: ConvShape, arrays: Arrays) -> Arrays:
        return {"y": conv2d_forward(arrays["x"], arrays["w"]) * np.float32(problem.C != 3)}


def test_no_points_for_the_time_of_what_is_wrong_at_hidden_shapes(tmp_path: Path) -> None:
    rubric = rubric_with(tmp_path, "batch = 1000\nfull = 10\nnone = 50")
    found = judge(Ground(rubric, None), rubric.variants[0], Wrong(measured_as(1.0)), has_clock=True)  # type: ignore[arg-type]
    points = {check.name.partition(": ")[2]: (check.status, check.points) for check in found.checks}
    assert points["correct"] == ("passed", 4)
    assert points["hidden"] == ("failed", 0)
    assert points["performance"] == ("passed", 0)
    assert found.op_ms is None, "no place on the leaderboard"


class Scripted(Wrong):
    """One whose calls are right and wrong as written down."""

    def __init__(self, calls: str) -> None:
        super().__init__()
        self.calls = list(calls)

    def solve(self, problem: ConvShape, arrays: Arrays) -> Arrays:
        return {"y": conv2d_forward(arrays["x"], arrays["w"]) * np.float32(self.calls.pop(0) == "r")}


@pytest.mark.parametrize(
    ("calls", "refused"),
    [
        ("rw" + 3 * "rw", "right for the inputs that are shown, wrong for others"),
        ("rw" + "w", ""),
        ("rw" + "rr", ""),
        ("rw" + 2 * "rw" + "w", ""),
    ],
)
def test_what_is_right_now_and_then_is_no_cheat(calls: str, refused: str, tmp_path: Path) -> None:
    """The first call has the inputs that are shown, the second one others."""
    rubric = rubric_with(tmp_path, "batch = 1000\nfull = 10\nnone = 50")
    subject = Scripted(calls)
    found = judge(Ground(rubric, None), rubric.variants[0], subject, has_clock=True)  # type: ignore[arg-type]
    correct = next(check for check in found.checks if check.name.endswith(": correct"))
    assert (correct.status, sum(check.points for check in found.checks)) == ("failed", 0)
    assert refused in found.cheat
    assert bool(refused) == bool(found.cheat)
    assert ("a race" in correct.message) != bool(refused)
    assert not subject.calls


def test_a_time_that_does_not_count(tmp_path: Path) -> None:
    rubric = rubric_with(tmp_path, "batch = 1000\nfull = 10\nnone = 50")
    subject = Subject(measured_as(0.001, "less than moving its bytes takes"))
    made = Judge(Ground(rubric, None), rubric.variants[0], subject, has_clock=True)  # type: ignore[arg-type]
    with pytest.raises(Cheat, match="conv1: less than"):
        made.performance()


def test_no_time_without_a_clock(tmp_path: Path) -> None:
    rubric = rubric_with(tmp_path, "batch = 1000\nfull = 10\nnone = 50")
    outcome = Judge(Ground(rubric, None), rubric.variants[0], Subject(), has_clock=False).performance()  # type: ignore[arg-type]
    assert outcome.status == "skipped"
    assert "the emulator has no clock" in outcome.message


def test_the_executor_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roles, "open_device", lambda name: ClockedEmulator())
    monkeypatch.setattr(Floor, "of", classmethod(lambda cls, device: NO_FLOOR))
    variant = find(honest(tmp_path))
    executor = roles.Executor(str(variant.source), "cuda")
    message = {
        "time": plans.encode_values(variant.planned(SHAPE, 0)),
        "head": astuple(Head.of(variant)),
        "method": asdict(METHOD),
    }
    (answer,) = executor.answer(message, bytearray())
    found = Measured(**json.loads(answer))
    assert (found.op_ms, found.refused) == (1.0, "")


def test_setup_is_not_timed_and_comes_before_the_inputs(tmp_path: Path) -> None:
    device = ClockedEmulator()
    found = timed("networks/lenet/whole", LenetBatch(3, True, 28), Method("fp32", 0, 2), device=device)
    assert (found.refused, found.op_ms) == ("", 2.0), "two launches"
    call = device.log[-device.log[::-1].index("fill images") - 1 :]
    weights = [f"copy {name}" for name in LenetBatch(3).named("weight")]
    assert [word for word in call if word.startswith("copy ")] == [*weights, "copy images"]
    assert call[-5:] == ["flush", "record", "launch", "launch", "record"]


ONE_FOR_ALL = """
extern "C" __global__ void softmax(const float* x, float* y, int N, int L) {
  const int n = blockIdx.x * blockDim.x + threadIdx.x;
  if (n >= N) return;
  const float* row = x + (n < N - N / 16 ? n : 0) * L;  // the last of them take row 0's
  float top = row[0], sum = 0;
  for (int l = 1; l < L; l++) top = fmaxf(top, row[l]);
  for (int l = 0; l < L; l++) sum += expf(row[l] - top);
  for (int l = 0; l < L; l++) y[n * L + l] = expf(row[l] - top) / sum;
}
"""


def test_without_an_audit_more_entries_are_looked_at(tmp_path: Path) -> None:
    """Of an operation without one: the last sixteenth of the batch is wrong."""
    rows = ops.find("softmax").decode([2000, 33])
    assert ops.find("softmax").audit is None
    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "ladders/softmax/v0_naive", folder)
    assert not timed(folder, rows, Method("fp32", 0, 3)).refused
    (folder / "kernel.cu").write_text(ONE_FOR_ALL)
    assert "the output of a timed call is wrong" in timed(folder, rows, Method("fp32", 0, 10)).refused


CHANGED = """
def changed(s: LenetBatch) -> list[Launch]:
    return [*plan(s), Launch("change", (1,), (1,), ("fc2.bias",))]


VARIANT = Variant(op="lenet", plan=changed, scratch=scratch, refuses=refuses, idea="and then other weights")
"""


def test_weights_are_read_only_too(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "networks/lenet/layer_by_layer", folder)
    with (folder / "variant.py").open("a") as file:
        file.write(CHANGED)
    with (folder / "kernel.cu").open("a") as file:
        file.write('extern "C" __global__ void change(float* bias) { bias[0] += 1; }\n')
    found = timed(folder, LenetBatch(2), Method("fp32", 0, 1))
    assert found.refused == "a kernel changed the input fc2.bias; inputs are read only"


@pytest.mark.parametrize("name", [name for name in ops.names() if ops.find(name).timed])
def test_timed_inputs_are_those_of_the_problem(name: str) -> None:
    operation, rng = ops.find(name), np.random.default_rng(0)
    assert operation.timed is not None
    for problem in operation.check:
        for precision in PRECISIONS:
            given = operation.timed(problem, precision, rng)
            known = problem.named("in", "weight")
            assert list(given) == list(known)
            for array in known:
                found = (given[array].shape, given[array].dtype.name)
                assert found == (known[array].shape, known[array].dtype)
