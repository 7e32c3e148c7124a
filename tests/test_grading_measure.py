"""Honest measurement: real kernels on the emulator, with a clock that the tests set."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
from grading_helpers import QUICK, assemble, expected, honest, names
from grading_stand_in import IDLE_MS, NO_FLOOR, ClockedEmulator

from mini_dnn.grading import decoding, plans
from mini_dnn.grading.checks import Cheat, Ground, Judge
from mini_dnn.grading.confined import roles
from mini_dnn.grading.credit import judge
from mini_dnn.grading.measure import Floor, Measured, Method, measure
from mini_dnn.grading.plans import Head, Planned
from mini_dnn.grading.rubric import Rubric, load
from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.variant import find

SHAPE = ConvShape(40, 2, 9, 8, 3, 3, 2)
METHOD = Method("fp32", warm_up=1, repeats=3)


def measured(folder: Path, device: ClockedEmulator | None = None, floor: Floor = NO_FLOOR) -> Measured:
    return measure(find(folder), SHAPE, device or ClockedEmulator(), METHOD, floor)


@pytest.fixture(autouse=True)
def on_a_busy_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.grading.measure.LATE_MS", IDLE_MS)


def test_an_honest_variant_is_timed(tmp_path: Path) -> None:
    device = ClockedEmulator()
    found = measured(honest(tmp_path), device)
    assert (found.refused, found.op_ms, found.samples_ms) == ("", 1.0, (1.0, 1.0, 1.0))
    call = ["fill x", "fill w", "fill y", "copy x", "copy w", "flush", "record", "launch", "record"]
    assert device.log[-len(call) :] == call


@pytest.mark.parametrize(
    "shape", [ConvShape(700, 1, 4, 3, 2, 1, 1), ConvShape(300, 5, 9, 9, 3, 7, 7)], ids=str
)
@pytest.mark.parametrize("name", ["m1/direct", "m3/tensor_cores_fp16"])
def test_honest_sums_are_within_their_bound(name: str, shape: ConvShape) -> None:
    variant = find(name)
    for _ in range(3):
        method = Method(variant.precision, 0, 2)
        assert not measure(variant, shape, ClockedEmulator(), method, NO_FLOOR).refused


@pytest.mark.parametrize("name", names("timed"))
def test_cheats_with_the_clock(name: str, tmp_path: Path) -> None:
    found = measured(assemble(name, tmp_path))
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
    assert not measure(find(folder), shape, ClockedEmulator(), Method("fp16", 0, 3), NO_FLOOR).refused
    (folder / "kernel.cu").write_text(HALF_SUMS)
    found = measure(find(folder), shape, ClockedEmulator(), Method("fp16", 0, 3), NO_FLOOR)
    assert "timed call is wrong" in found.refused


def test_five_cheats_need_a_clock() -> None:
    assert len(names("timed")) >= 5


def test_work_after_the_clock_has_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.grading.measure.LATE_MS", 10.0)
    assert "after the clock had stopped" in measured(honest(tmp_path), ClockedEmulator(late_s=0.02)).refused


def test_faster_than_the_hardware(tmp_path: Path) -> None:
    bytes_per_ms = SHAPE.min_bytes / 1.5  # moving them takes 1.5 ms, and the clock says 1
    assert (
        "less than moving its bytes" in measured(honest(tmp_path), floor=Floor(bytes_per_ms, 0, 0.0)).refused
    )
    assert "less than" in measured(honest(tmp_path), floor=Floor(1e30, 0, SHAPE.flops / 1.5)).refused
    assert not measured(honest(tmp_path), floor=Floor(bytes_per_ms, SHAPE.min_bytes // 2, 0.0)).refused


def test_parts_that_fit_the_cache_are_not_faster(tmp_path: Path) -> None:
    """A plan whose scratch is so large that a batch is done in parts chooses how large these are."""
    floor = Floor(SHAPE.min_bytes / 20, SHAPE.min_bytes // 2, 0.0)  # 10 ms for the batch, 1 for a tenth of it
    part = SHAPE.with_batch(SHAPE.N // 10)
    assert floor.ms(part) == 0
    whole = Method("fp32", 0, 3, whole=SHAPE.N)
    found = measure(find(honest(tmp_path)), part, ClockedEmulator(), whole, floor)
    assert (found.floor_ms, found.refused) == (pytest.approx(1.0), "")
    floor = Floor(SHAPE.min_bytes / 30, SHAPE.min_bytes // 2, 0.0)
    found = measure(find(tmp_path / "honest"), part, ClockedEmulator(), whole, floor)
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

    head = Head("fp32", 75, "", False)

    def __init__(self, *measured: Measured) -> None:
        self.measured = list(measured)
        self.asked: list[tuple[ConvShape, Method]] = []

    def measure(self, shape: ConvShape, method: Method) -> list[Measured]:
        self.asked.append((shape, method))
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

    def plan(self, shape: ConvShape) -> Planned:
        return Planned(shape, "", {}, {}, ())

    def compile(self, defines: object) -> None:
        pass

    def convolve(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return conv2d_forward(x, w) * np.float32(x.shape[1] != 3)


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

    def convolve(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return conv2d_forward(x, w) * np.float32(self.calls.pop(0) == "r")


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
    folder = honest(tmp_path)
    planned = decoding.decode(plans.encode(find(folder), SHAPE, 0).encode(), SHAPE)
    executor = roles.Executor(str(folder / "kernel.cu"), "cuda")
    message = {
        "time": plans.encode_planned(planned),
        "head": ["fp32", 75, "", False],
        "method": asdict(METHOD),
    }
    found = Measured(**json.loads(executor.answer(message, bytearray())))
    assert (found.op_ms, found.refused) == (1.0, "")
