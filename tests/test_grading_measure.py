"""Honest measurement of real kernels on the emulator, with a clock that the tests control."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, astuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from grading_helpers import assemble, expected, honest, names
from grading_stand_in import IDLE_MS, NO_FLOOR, ClockedEmulator

from mini_dnn import ops
from mini_dnn.grading import plans
from mini_dnn.grading.confined import roles
from mini_dnn.grading.guards import guard_bytes
from mini_dnn.grading.measure import Floor, Measured, Method, measure
from mini_dnn.grading.plans import Head
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
    """Measure a variant at a problem."""
    variant, device = find(name), device or ClockedEmulator()
    planned = variant.planned(problem, device.max_shared_bytes)
    return measure(variant.operation, planned, device, method, floor)


@pytest.fixture(autouse=True)
def on_a_busy_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.grading.measure.LATE_MS", IDLE_MS)


def test_an_honest_variant_is_timed(tmp_path: Path) -> None:
    device = ClockedEmulator()
    found = timed(honest(tmp_path), device=device)
    assert (found.refused, found.op_ms, found.samples_ms) == ("", 1.0, (1.0, 1.0, 1.0))
    call = ["fill x", "fill w", "fill y", "copy x", "copy w", "flush", "record", "launch", "record"]
    log = [line for line in device.log if not line.endswith("and its guards")]
    assert log[-len(call) :] == call


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


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("-3", "3 floats before"),
        ("N * M * P * Q + 1", "2 floats after"),
        ("-5001", "5001 floats before"),
        ("N * M * P * Q + 5000", "5001 floats after"),
    ],
)
def test_who_writes_beside_a_buffer_is_seen(at: str, said: str, tmp_path: Path) -> None:
    """Writes far from the buffer are noticed, too, because an eighth of the buffer lies on each side."""
    folder, floats = honest(tmp_path), int(said.split()[0])
    shape = SHAPE if floats < 5 else ConvShape(500, 2, 20, 20, 1, 1, 1)
    kernel = (folder / "kernel.cu").read_text()
    end = kernel.rindex("}")
    index = at.replace("N", "gridDim.z")
    written = f"  if (threadIdx.x + blockIdx.x + blockIdx.y + blockIdx.z == 0) y[{index}] = 1;\n"
    (folder / "kernel.cu").write_text(kernel[:end] + written + kernel[end:])
    found = timed(folder, shape, Method("fp32", 0, 1)).refused
    assert f"a kernel wrote {4 * floats:,} bytes {said.split()[-1]} the buffer 'y'" in found
    assert "run.py check" in found  # what to do next


def test_how_much_lies_beside_a_buffer() -> None:
    sizes = (0, 4, 32768, 32772, 1 << 20, 8 << 20, 1 << 34)
    assert [guard_bytes(n) for n in sizes] == [4096, 4096, 4096, 8192, 1 << 17, 1 << 20, 1 << 20]


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


@pytest.mark.parametrize("busy_s", [0.0, 1.0])
def test_work_after_the_clock_has_stopped(
    busy_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is not mistaken for a host that is busy with other work, on which all waits take long."""
    for late_s, told in ((0.0, ""), (0.02, "the device continued to work for 20.00 ms after the clock had")):
        device = ClockedEmulator(late_s, busy_s)
        host = SimpleNamespace(perf_counter=lambda device=device: device.host_s)
        monkeypatch.setattr("mini_dnn.grading.measure.time", host)
        monkeypatch.setattr("mini_dnn.grading.measure.LATE_MS", 0.2)
        found = timed(honest(tmp_path), device=device)
        assert found.refused.startswith(told)
        assert bool(found.refused) == bool(told)


def test_faster_than_the_hardware(tmp_path: Path) -> None:
    bytes_per_ms = SHAPE.min_bytes / 1.5  # moving them takes 1.5 ms, and the clock says 1
    folder = honest(tmp_path)
    assert (
        "less than the time that moving its bytes takes"
        in timed(folder, floor=Floor(bytes_per_ms, 0, 0.0)).refused
    )
    assert "less than" in timed(folder, floor=Floor(1e30, 0, SHAPE.flops / 1.5)).refused
    assert not timed(folder, floor=Floor(bytes_per_ms, SHAPE.min_bytes // 2, 0.0)).refused


def test_parts_that_fit_the_cache_are_not_faster(tmp_path: Path) -> None:
    """If a batch is computed in parts, the plan's scratch memory determines their size."""
    floor = Floor(SHAPE.min_bytes / 20, SHAPE.min_bytes // 2, 0.0)  # 10 ms for the batch, 1 for a tenth of it
    part = SHAPE.with_batch(SHAPE.N // 10)
    assert floor.ms(part) == 0
    whole = Method("fp32", 0, 3, whole=SHAPE.N)
    found = timed(honest(tmp_path), part, whole, floor)
    assert (found.floor_ms, found.refused) == (pytest.approx(1.0), "")
    floor = Floor(SHAPE.min_bytes / 30, SHAPE.min_bytes // 2, 0.0)
    found = timed(tmp_path / "honest", part, whole, floor)
    assert "less than the time that moving its bytes takes" in found.refused


def test_floor_of_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.grading.measure.copy_rates", lambda device: {"copy_gbps": 4000.0})
    device = ClockedEmulator()
    device.max_clock_mhz, device.multiprocessors, device.l2_bytes = 1980.0, 132, 60 << 20  # type: ignore[attr-defined]
    floor = Floor.of(device)
    main = ConvShape(10000, 1, 86, 86, 4, 7, 7)
    assert floor.ms(main) == pytest.approx((main.min_bytes - (60 << 20)) / 4.6e9)  # for an op time of 0.9 ms
    assert floor.ms(SHAPE) < 1e-6


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


def test_setup_is_not_timed_and_comes_before_the_inputs() -> None:
    device = ClockedEmulator()
    found = timed("networks/lenet/whole", LenetBatch(3, True, 28), Method("fp32", 0, 2), device=device)
    assert (found.refused, found.op_ms) == ("", 2.0), "two launches"
    call = device.log[-device.log[::-1].index("fill images") - 1 :]
    weights = [f"copy {name}" for name in LenetBatch(3).named("weight")]
    copied = [word for word in call if word.startswith("copy ") and not word.endswith("and its guards")]
    assert copied == [*weights, "copy images"]
    assert call[-5:] == ["flush", "record", "launch", "launch", "record"]


def test_without_an_audit_more_entries_are_looked_at(tmp_path: Path) -> None:
    """The operation has no audit, and the last sixteenth of the batch is wrong."""
    rows = ops.find("softmax").decode([2000, 33])
    assert ops.find("softmax").audit is None
    folder = tmp_path / "mine"
    shutil.copytree(ROOT / "ladders/softmax/v0_naive", folder)
    assert not timed(folder, rows, Method("fp32", 0, 3)).refused
    kernel = folder / "kernel.cu"
    right = kernel.read_text()
    # The result of row 0 instead
    kernel.write_text(right.replace("(long long)n * L;", "(n < N - N / 16 ? n : 0) * L;"))
    assert kernel.read_text() != right
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
    assert found.refused == "a kernel changed the input fc2.bias; inputs are read-only"


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
