"""Latency, growth and throughput of a network that serves: measurements, and when they are refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clocked import Clocked

from mini_dnn import datasets, ops
from mini_dnn.cli import bench_serving as verb
from mini_dnn.cli import main
from mini_dnn.datasets import ImageSet
from mini_dnn.device import Device
from mini_dnn.errors import CheckError, DeviceError
from mini_dnn.measuring import bench
from mini_dnn.measuring import serving as bench_serving
from mini_dnn.measuring.bench import CHECKED
from mini_dnn.measuring.inference import Program, find_step
from mini_dnn.measuring.measure import Setting
from mini_dnn.measuring.serving import ENTRIES, WARM_UP, Service, ServingBench
from mini_dnn.nn.models import lenet
from mini_dnn.nn.weights import WeightsInfo
from mini_dnn.running.resident import Resident
from mini_dnn.running.timing import Timing
from mini_dnn.variant import find

TIMING = Timing(warm_up=0, repeats=6, max_repeats=6)
RATE = 50.0  # GB/s, made up
NETWORK = ops.find("lenet")


@pytest.fixture
def device() -> Iterator[Clocked]:
    clocked = Clocked()
    yield clocked
    clocked.close()


@pytest.fixture(scope="module")
def program() -> Program:
    images, labels = datasets.draw(ENTRIES, 1)
    data = ImageSet("synthetic", "test", images, labels, "drawn", "")
    network = lenet.build(np.random.default_rng(5))
    return Program(network, WeightsInfo("synthetic", {}, 5, ""), Path("none.h5"), data)


@pytest.fixture
def serving(device: Clocked, monkeypatch: pytest.MonkeyPatch) -> ServingBench:
    monkeypatch.setattr(bench, "ceilings", lambda device: {"h2d_gbps": RATE})
    return ServingBench(Setting(device, TIMING, CHECKED), "synthetic")


def whole(program: Program, send: str, entries: int = ENTRIES) -> Service:
    return program.service(find_step("whole"), send, entries)


def test_latency(serving: ServingBench, program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only measurements after the warm-up count, and each image gets its own answer."""
    clock = iter(
        np.cumsum([step for n in range(WARM_UP + 100) for step in (7, 1000 * max(1, n - WARM_UP + 1))])
    )
    monkeypatch.setattr(bench_serving, "perf_counter_ns", lambda: int(next(clock)))
    row = serving.latency(whole(program, "uint8"), 100, use_graph=True)
    found = [row.p50_us, row.p90_us, row.p99_us, row.max_us]
    assert found == pytest.approx([50.5, 90.1, 99.01, 100])
    assert row.requests == 100
    assert row.graph is True
    assert row.op_ms == 2  # two launches; the copies to constant memory are made once
    assert row.repeats == 6
    assert row.settled is True
    assert row.max_error < 1e-5
    assert row.code_hash is not None
    assert len(row.code_hash) == 64


def test_a_wrong_answer_is_no_latency(
    serving: ServingBench, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Resident.respond
    answers = [0]

    def respond(self: Resident, images: np.ndarray) -> np.ndarray:
        answers[0] += 1
        return right(self, images) + (answers[0] == WARM_UP + 3) * np.float32(0.01)

    monkeypatch.setattr(Resident, "respond", respond)
    with pytest.raises(CheckError, match=r"10 of 2000 elements differ from float64; the first at \(2, 0\)"):
        serving.latency(whole(program, "uint8"), 10, use_graph=False)


def test_what_has_no_data_set_is_served_at_random(serving: ServingBench) -> None:
    problem = NETWORK.course["uint8"].with_batch(5)
    row = serving.latency(Service.at_random(find_step("whole"), "uint8", problem), 10, use_graph=True)
    assert row.max_error < 1e-4
    row = serving.throughput(Service.at_random(find_step("whole"), "uint8", problem), batches=2)
    assert (row.batch, row.accuracy) == (5, None)


def test_growth(serving: ServingBench, device: Clocked) -> None:
    problem = NETWORK.course["float32"]
    for batch in (1, 7):
        row = serving.growth(find_step("whole"), "float32", problem.with_batch(batch))
        assert (row.op, row.problem, row.batch, row.parts, row.op_ms) == ("lenet", "float32", batch, 1, 2)
        assert 0 < row.max_error < 1e-4
    conv2 = ops.find("conv2d").course["conv2"].with_batch(3)
    row = serving.growth(find("m2"), "conv2", conv2)
    assert (row.variant, row.problem, row.batch, row.op_ms) == ("m2/unroll_gemm", "conv2", 3, 3)
    assert row.flops == 2 * 16 * 196 * 3 * 34 * 34
    assert device.flushes == 18


@pytest.mark.exhaustive
def test_throughput(
    serving: ServingBench, program: Program, device: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_serving, "PASSES", 3)
    clock = iter([10.0, 10.4, 20.0, 20.8, 30.0, 30.6])  # seconds: passes of 0.4, 0.8 and 0.6
    monkeypatch.setattr(bench_serving, "perf_counter", lambda: next(clock))
    row = serving.throughput(whole(program, "uint8", 40), batches=3)
    assert row.batch_ms == pytest.approx(200)
    assert row.batch_ms_of_passes == pytest.approx([400 / 3, 800 / 3, 200])
    assert row.images_per_s == pytest.approx(200)
    assert row.image_bytes == 86 * 86
    assert row.copy_ms == pytest.approx(40 * 86 * 86 / RATE / 1e6)
    assert row.op_ms == 2
    assert row.over_longer == pytest.approx(100)  # the kernels take longer than the copies
    assert device.flushes == 6
    assert row.max_error < 1e-5
    assert row.accuracy is not None


def test_every_batch_is_looked_at(
    serving: ServingBench, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Resident.serve_in_place
    for wrong_by in (np.nan, 2e-4):

        def wrong(self: Resident, fill: Any, wrong_by: float = wrong_by) -> Iterator[np.ndarray]:
            for at, found in enumerate(right(self, fill)):
                yield found + np.float32(wrong_by if at == 2 else 0)

        monkeypatch.setattr(Resident, "serve_in_place", wrong)
        with pytest.raises(CheckError, match="batch 2 of 4 differs"):
            serving.throughput(whole(program, "uint8", 2), batches=4)


@pytest.mark.exhaustive
def test_too_little_memory(
    serving: ServingBench, program: Program, device: Clocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device, "free_bytes", lambda: 4_000_000)
    with pytest.raises(
        DeviceError, match=r"has room for 4 batches of \d+ entries here, not of 150; use a sm"
    ):
        serving.throughput(whole(program, "float32", 150))
    row = serving.growth(find_step("whole"), "float32", NETWORK.course["float32"].with_batch(150))
    assert row.parts > 1
    assert row.op_ms == 2 * row.parts
    assert row.repeats == 0


def test_forms(program: Program) -> None:
    data = program.data
    published = ImageSet("fashion-mnist", "test", data.images, data.labels, "", "")
    of_published = Program(program.network, program.info, program.weights_file, published)
    assert of_published.forms(find_step("whole")) == ["float32", "uint8", "uint8-28"]
    assert program.forms(find_step("whole")) == ["float32", "uint8"]
    assert of_published.forms(find_step("fused")) == ["float32", "uint8"]


@pytest.mark.exhaustive
def test_command_line(
    program: Program,
    device: Clocked,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench, "ceilings", lambda device: {"h2d_gbps": RATE})
    monkeypatch.setattr(verb, "open_device", lambda name: device)
    monkeypatch.setattr(verb.Program, "load", lambda *args: program)
    monkeypatch.setattr(verb, "PUBLISHED", TIMING)
    monkeypatch.setattr(bench_serving, "PASSES", 1)
    monkeypatch.setattr(bench_serving, "BATCHES", 2)
    out = tmp_path / "serving.json"
    words = ["bench", "--latency", "--growth", "--throughput", "--impl", "m1,m3", "--batch", "1,4"]
    words += ["--requests", "5", "--send", "uint8", "--resident", "tensor", "--budget", "0.1"]
    assert main([*words, "--out", str(out)]) == 0
    record = json.loads(out.read_text())
    assert record["schema"] == "serving-3"
    assert {"started", "commit", "dirty", "device", "versions", "method", "memory"} <= set(record)
    assert [(row["send"], row["graph"]) for row in record["latency"]] == [("uint8", True), ("uint8", False)]
    convolutions = [(name, f"conv{at}") for name in ("m1/direct", "layers/custom") for at in (1, 2)]
    of_a_batch = [*convolutions, ("networks/lenet/tensor_cores", "float32")]
    found = [(row["variant"], row["problem"], row["batch"]) for row in record["growth"]]
    assert found == [(*key, batch) for batch in (1, 4) for key in of_a_batch]
    assert [(row["batch"], row["send"]) for row in record["throughput"]] == [(1, "uint8"), (4, "uint8")]
    printed = capsys.readouterr().out
    name = "networks/lenet/tensor_cores"  # longer than any column was, but a space must still follow
    assert re.search(rf"^latency +{name} uint8 +one graph +us: p50 \d", printed, re.M)
    assert re.search(rf"^throughput +{name} uint8 .* images/s", printed, re.M)
    assert re.search(r"^growth +m1/direct +conv1 +batch +1  op \d", printed, re.M)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--latency", "--device", "emulator"], r"--latency: times are not available on the CPU"),
        (["--growth", "--throughput", "--device", "emulator"], r"--growth --throughput: .* --device cuda"),
        (["--latency", "--impl", "m1"], r"--impl needs --growth here"),
        (["--latency", "--batch", "5"], r"--batch needs --growth or --throughput here"),
        (["--growth", "--send", "uint8"], r"--send needs --latency or --throughput here"),
        (["--growth", "--requests", "5"], r"--requests needs --latency here"),
        (["--resident", "whole"], r"--resident needs .*; 'run.py --resident whole' classifies"),
        (["--growth", "--sweep"], r"--sweep is for the times of single operations; remove it, or --growth"),
        (["--latency", "--requests", "0"], r"--requests 0: expected 1 or more requests"),
        (["--growth", "--shapes", "1,1,9,9,1,3,3"], r"--shapes is for the times of single operations"),
        (
            ["--throughput", "--gpus", "2", "--device", "emulator", "--send", "RGB"],
            r"--send RGB: lenet does not support",
        ),
        (["--latency", "--resident", "m3"], r"layers/custom computes one conv2d and no whole network"),
    ],
)
def test_wrong_use(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.gpu
@pytest.mark.gpu_alone
def test_on_a_gpu(program: Program, cuda: Device) -> None:
    serving = ServingBench(Setting(cuda, TIMING, CHECKED), "synthetic")
    for use_graph in (True, False):
        row = serving.latency(whole(program, "float32"), 50, use_graph)
        assert row.op_ms
        assert 0 < row.p50_us <= row.p90_us <= row.p99_us <= row.max_us
    found = serving.throughput(whole(program, "float32", 100), batches=4)
    assert found.batch_ms > found.copy_ms / 2
    assert serving.growth(find_step("whole"), "float32", NETWORK.course["float32"].with_batch(10)).op_ms
    assert serving.growth(find("m3"), "conv1", ops.find("conv2d").course["conv1"].with_batch(10)).op_ms
