"""Latency, growth and throughput: what is measured of a network that serves, and when it is refused."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mini_dnn import datasets
from mini_dnn.cli import bench_serving as verb
from mini_dnn.cli import main
from mini_dnn.datasets import ImageSet
from mini_dnn.device.emulator import EmulatorDevice
from mini_dnn.errors import CheckError, DeviceError
from mini_dnn.measuring import bench
from mini_dnn.measuring import serving as bench_serving
from mini_dnn.measuring.serving import IMAGES, WARM_UP, ServingBench, forms
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.running.resident import ResidentLenet, find_step
from mini_dnn.running.timing import Timing
from mini_dnn.variant import find

TIMING = Timing(warm_up=0, repeats=6, max_repeats=6, cold_cache=True)
RATE = 50.0  # GB/s, made up


class Clocked(EmulatorDevice):
    """The emulator with a clock on which each launch takes a millisecond."""

    has_clock = True
    now_ms = 0.0
    flushes = 0

    def launch(self, *args: Any, **more: Any) -> None:
        self.now_ms += 1.0
        super().launch(*args, **more)

    def record(self, stream: int = 0) -> float:
        return self.now_ms

    def elapsed_ms(self, start: float, end: float) -> float:  # type: ignore[override]
        return end - start

    def flush_cache(self) -> None:
        self.flushes += 1


@pytest.fixture
def device() -> Iterator[Clocked]:
    clocked = Clocked()
    yield clocked
    clocked.close()


@pytest.fixture(scope="module")
def network() -> Network:
    return lenet.build(np.random.default_rng(5))


@pytest.fixture(scope="module")
def data() -> ImageSet:
    images, labels = datasets.draw(IMAGES, 1)
    return ImageSet("synthetic", "test", images, labels, "drawn", "")


@pytest.fixture
def serving(
    network: Network, data: ImageSet, device: Clocked, monkeypatch: pytest.MonkeyPatch
) -> ServingBench:
    monkeypatch.setattr(bench, "ceilings", lambda device: {"h2d_gbps": RATE})
    return ServingBench(network, data, device, TIMING)


def test_latency(serving: ServingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what comes after the warm-up counts, and each image has its own answer."""
    clock = iter(
        np.cumsum([step for n in range(WARM_UP + 100) for step in (7, 1000 * max(1, n - WARM_UP + 1))])
    )
    monkeypatch.setattr(bench_serving, "perf_counter_ns", lambda: int(next(clock)))
    row = serving.latency(find_step("whole"), "uint8", 100, use_graph=True)
    found = [row[f"{at}_us"] for at in ("p50", "p90", "p99", "max")]
    assert found == pytest.approx([50.5, 90.1, 99.01, 100])
    assert row["requests"] == 100
    assert row["graph"] is True
    assert row["op_ms"] == 2  # two launches; the copies to constant memory are made once
    assert row["repeats"] == 6
    assert row["max_error"] < 1e-5
    assert len(row["code_hash"]) == 64


def test_a_wrong_answer_is_no_latency(serving: ServingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ResidentLenet.respond
    answers = [0]

    def respond(self: ResidentLenet, images: np.ndarray) -> np.ndarray:
        answers[0] += 1
        return right(self, images) + (answers[0] == WARM_UP + 3) * np.float32(0.01)

    monkeypatch.setattr(ResidentLenet, "respond", respond)
    with pytest.raises(CheckError, match=r"1 of 200 images differ .* first image 2:"):
        serving.latency(find_step("whole"), "uint8", 10, use_graph=False)


def test_growth(serving: ServingBench, device: Clocked) -> None:
    for batch in (1, 7):
        row = serving.growth_of_network(find_step("whole"), batch)
        assert (row["layer"], row["batch"], row["parts"], row["op_ms"]) == ("lenet", batch, 1, 2)
        assert 0 < row["max_error"] < 1e-5
    row = serving.growth_of_convolution(find("m2"), "conv2", 3)
    assert (row["variant"], row["layer"], row["batch"], row["op_ms"]) == ("m2/unroll_gemm", "conv2", 3, 3)
    assert row["flops"] == 2 * 16 * 196 * 3 * 34 * 34
    assert device.flushes == 18


def test_throughput(serving: ServingBench, device: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_serving, "PASSES", 3)
    clock = iter([10.0, 10.4, 20.0, 20.8, 30.0, 30.6])  # seconds: passes of 0.4, 0.8 and 0.6
    monkeypatch.setattr(bench_serving, "perf_counter", lambda: next(clock))
    row = serving.throughput(find_step("whole"), "uint8", batch=40, batches=3)
    assert row["batch_ms"] == pytest.approx(200)
    assert row["batch_ms_of_passes"] == pytest.approx([400 / 3, 800 / 3, 200])
    assert row["images_per_s"] == pytest.approx(200)
    assert row["image_bytes"] == 86 * 86
    assert row["copy_ms"] == pytest.approx(40 * 86 * 86 / RATE / 1e6)
    assert row["op_ms"] == 2
    assert row["over_longer"] == pytest.approx(100)  # the kernels are longer
    assert device.flushes == 6
    assert row["max_error"] < 1e-5


def test_every_batch_is_looked_at(serving: ServingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    right = ResidentLenet.serve_in_place

    def wrong(self: ResidentLenet, fill: Any) -> Iterator[np.ndarray]:
        for at, found in enumerate(right(self, fill)):
            yield np.where(at == 2, np.nan, found)

    monkeypatch.setattr(ResidentLenet, "serve_in_place", wrong)
    with pytest.raises(CheckError, match="batch 2 of 4 differs"):
        serving.throughput(find_step("whole"), "uint8", batch=2, batches=4)


def test_too_little_memory(serving: ServingBench, device: Clocked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "free_bytes", lambda: 4_000_000)
    with pytest.raises(
        DeviceError, match=r"has room for 4 batches of \d+ images here, not of 150; take a sm"
    ):
        serving.throughput(find_step("whole"), "float32", batch=150)
    row = serving.growth_of_network(find_step("whole"), 150)
    assert row["parts"] > 1
    assert row["op_ms"] is None


def test_forms(data: ImageSet) -> None:
    published = ImageSet("fashion-mnist", "test", data.images, data.labels, "", "")
    assert forms(find_step("whole"), published) == ["float32", "uint8", "uint8-28"]
    assert forms(find_step("whole"), data) == ["float32", "uint8"]
    assert forms(find_step("fused"), published) == ["float32", "uint8"]


def test_command_line(
    data: ImageSet,
    device: Clocked,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(bench, "ceilings", lambda device: {"h2d_gbps": RATE})
    monkeypatch.setattr(verb, "open_device", lambda name: device)
    monkeypatch.setattr(verb.datasets, "load", lambda *args: data)
    monkeypatch.setattr(bench_serving, "PASSES", 1)
    monkeypatch.setattr(bench_serving, "BATCHES", 2)
    out = tmp_path / "serving.json"
    words = ["bench", "--latency", "--growth", "--throughput", "--impl", "m1,m3", "--batch", "1,4"]
    words += ["--requests", "5", "--send", "uint8", "--budget", "0.1", "--out", str(out)]
    assert main(words) == 0
    record = json.loads(out.read_text())
    assert record["schema"] == "serving-1"
    assert {"started", "commit", "dirty", "device", "versions", "method", "memory"} <= set(record)
    assert [(row["send"], row["graph"]) for row in record["latency"]] == [("uint8", True), ("uint8", False)]
    convolutions = [(name, f"conv{at}") for name in ("m1/direct", "layers/custom") for at in (1, 2)]
    of_a_batch = [*convolutions, ("networks/lenet/whole", "lenet")]
    found = [(row["variant"], row["layer"], row["batch"]) for row in record["growth"]]
    assert found == [(*key, batch) for batch in (1, 4) for key in of_a_batch]
    assert [(row["batch"], row["send"]) for row in record["throughput"]] == [(1, "uint8"), (4, "uint8")]
    printed = capsys.readouterr().out
    assert re.search(r"^latency +networks/lenet/whole +uint8 +one graph +us: p50 \d", printed, re.M)
    assert re.search(r"^throughput +networks/lenet/whole .* images/s", printed, re.M)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--latency", "--device", "emulator"], r"--latency: these are times, and there are none on the CPU"),
        (["--growth", "--throughput", "--device", "emulator"], r"--growth --throughput: .* --device cuda"),
        (["--latency", "--impl", "m1"], r"--impl goes with --growth here"),
        (["--latency", "--batch", "5"], r"--batch goes with --growth or --throughput here"),
        (["--growth", "--send", "uint8"], r"--send goes with --latency or --throughput here"),
        (["--growth", "--requests", "5"], r"--requests goes with --latency here"),
        (["--resident", "whole"], r"--resident goes with .*; 'run.py --resident whole' classifies"),
        (["--growth", "--sweep"], r"--sweep times convolutions"),
        (["--latency", "--requests", "0"], r"--requests 0: expected one request or more"),
        (["--latency", "--resident", "m3"], r"layers/custom computes one conv2d and no whole network"),
    ],
)
def test_wrong_use(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.gpu
@pytest.mark.gpu_alone
def test_on_a_gpu(network: Network, data: ImageSet, cuda: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    serving = ServingBench(network, data, cuda, TIMING)
    for use_graph in (True, False):
        row = serving.latency(find_step("whole"), "float32", 50, use_graph)
        assert row["op_ms"] > 0
        assert 0 < row["p50_us"] <= row["p90_us"] <= row["p99_us"] <= row["max_us"]
    row = serving.throughput(find_step("whole"), "float32", 100, batches=4)
    assert row["batch_ms"] > row["copy_ms"] / 2
    assert serving.growth_of_network(find_step("whole"), 10)["op_ms"] > 0
    assert serving.growth_of_convolution(find("m3"), "conv1", 10)["op_ms"] > 0
