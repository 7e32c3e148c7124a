"""The course's program: its checks, and the meaning of its figures."""

import json
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from clocked import Clocked, Restless

from mini_dnn.cli import infer, main
from mini_dnn.cli import infer as verb
from mini_dnn.datasets import ImageSet, draw
from mini_dnn.device import Device
from mini_dnn.errors import CheckError, UsageError, VariantError
from mini_dnn.measuring.inference import BASE_BYTES, IMAGE_BYTES, STEPS, Program, find_step
from mini_dnn.measuring.layerwise import Convolutions, Products, by_layer
from mini_dnn.measuring.measure import UNSETTLED, Measured, Setting
from mini_dnn.measuring.whole import classify
from mini_dnn.nn.models import lenet
from mini_dnn.nn.weights import WeightsInfo
from mini_dnn.running.resident import Resident
from mini_dnn.running.timing import Timing
from mini_dnn.variant import find

IMAGES = 6


@pytest.fixture(scope="module")
def program() -> Program:
    data = ImageSet("synthetic", "test", *draw(IMAGES, 3), origin="drawn", note="")
    network = lenet.build(np.random.default_rng(5))
    return Program(network, WeightsInfo("synthetic", {4: 0.25}, 5, ""), Path("none.h5"), data)


@pytest.fixture
def clocked() -> Iterator[Clocked]:
    device = Clocked()
    yield device
    device.close()


@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "fp16_sum"])
def test_a_network_of_any_precision_is_compared(precision: str, program: Program, emulator: Device) -> None:
    variant = replace(find_step("whole"), precision=precision)
    whole = classify(variant, program, IMAGES, "uint8", Setting(emulator, entries=4))
    assert whole.max_error is not None
    assert 0 < whole.max_error < 1e-5
    assert program.share_right(whole.probabilities.argmax(axis=1)) == np.mean(
        program.network.predict(program.images(IMAGES, "float32")) == program.data.labels
    )


def test_a_wrong_probability_is_found(
    program: Program, emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Resident.predict

    def wrong(self: Resident, *args: object) -> np.ndarray:
        found = right(self, *args)  # type: ignore[arg-type]
        found[4, 2] += 2e-4
        return found

    monkeypatch.setattr(Resident, "predict", wrong)
    with pytest.raises(CheckError, match=r"1 of 60 elements differ from float64; the first at \(4, 2\)"):
        classify(find_step("whole"), program, IMAGES, "float32", Setting(emulator, entries=None))
    assert classify(find_step("whole"), program, IMAGES, "float32", Setting(emulator)).max_error is None


def test_op_times_of_a_network_that_fits_as_a_whole(program: Program, clocked: Clocked) -> None:
    timing = Timing(warm_up=0, repeats=3, max_repeats=3)
    whole = classify(find_step("whole"), program, IMAGES, "uint8", Setting(clocked, timing))
    assert (whole.held, whole.timed.samples_ms, whole.state) == (IMAGES, (2.0, 2.0, 2.0), None)
    clocked.free_bytes = lambda: 900_000  # type: ignore[method-assign]
    whole = classify(find_step("whole"), program, IMAGES, "uint8", Setting(clocked, timing))
    assert whole.held < IMAGES
    assert whole.timed.samples_ms == ()
    assert whole.probabilities.shape == (IMAGES, 10)


def test_layers_come_in_their_order(program: Program, emulator: Device) -> None:
    seen: list[Measured] = []
    convolutions = Convolutions(find("m1"), Setting(emulator, entries=2), seen.append)
    program.accuracy(3, convolutions)
    assert [layer.name for layer in seen] == ["conv1", "conv2"]
    assert convolutions.layers == seen
    assert all(layer.problem.N == 3 and layer.comparison and layer.comparison.ok for layer in seen)
    assert seen[0].comparison is not None
    assert seen[0].comparison.elements == 2 * 4 * 80 * 80


def test_a_batch_in_parts_is_classified_alike(program: Program, emulator: Device) -> None:
    setting = Setting(emulator, entries=None)
    parts, whole = Convolutions(find("m1"), setting), Convolutions(find("m1"), setting)
    assert program.accuracy(5, parts, part=2) == program.accuracy(5, whole)
    assert [layer.problem.N for layer in parts.layers] == [2, 2, 2, 2, 1, 1]
    for one, other in zip(by_layer(parts.layers), by_layer(whole.layers), strict=True):
        assert (one.name, one.problem) == (other.name, other.problem)
        assert one.comparison is not None
        assert other.comparison is not None
        assert one.comparison.elements == other.comparison.elements
        assert one.comparison.max_error == other.comparison.max_error
        assert (one.result.steps, one.result.op_ms, one.result.outputs) == (3, None, {})
    assert by_layer(parts.layers)[0].result.layer_ms == sum(p.result.layer_ms for p in parts.layers[::2])


def test_an_error_in_a_later_part_says_where_images_are_counted_from(
    program: Program, emulator: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = program.data.images.copy()
    convolutions = Convolutions(find("m1"), Setting(emulator, entries=None))

    def wrong(self: Convolutions, x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        if np.array_equal(x[0, 0] * 255, images[4, 0]):
            raise CheckError("wrong")
        return right(self, x, w, name)

    right = Convolutions.__call__
    monkeypatch.setattr(Convolutions, "__call__", wrong)
    with pytest.raises(CheckError, match=r"wrong \(images are counted from number 4\)"):
        program.accuracy(6, convolutions, part=2)


def test_parts_bound_the_memory(program: Program) -> None:
    """This includes the memory of layers, of which no outputs are kept."""
    data = replace(program.data, images=np.repeat(program.data.images, 20, 0), labels=np.zeros(120, np.uint8))
    large, peaks = replace(program, data=data), {}
    for part in (10, 120):
        tracemalloc.start()
        large.accuracy(120, Convolutions(find("cpu"), Setting(None)), part=part)
        peaks[part] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peaks[10] < peaks[120] / 2
    assert peaks[120] < BASE_BYTES / 4 + 120 * IMAGE_BYTES


def test_a_batch_without_room_is_refused_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("mini_dnn.measuring.inference.available_bytes", lambda: 300_000_000)
    monkeypatch.setattr(Program, "accuracy", lambda *_: pytest.fail("it works"))
    assert main(["--batch", "10000", "--impl", "cpu", "--data", "synthetic"]) == 2
    assert "--batch 10000: it needs up to 0.49 GB of memory, and this process can use 0.3 GB more" in (
        capsys.readouterr().err
    )
    assert main(["--batch", "10", "--resident", "whole", "--data", "synthetic", "--check"]) == 2
    monkeypatch.setattr("mini_dnn.measuring.inference.available_bytes", lambda: 2_000_000_000)
    words = ["bench", "--impl", "m1", "--batch", "10000", "--data", "synthetic", "--device", "emulator"]
    assert main(words) == 2
    assert "needs up to 2.9 GB" in capsys.readouterr().err


def with_products(program: Program, name: str, device: Device) -> tuple[Program, Products]:
    """The program with a different network, whose linear layers are computed by a variant."""
    network = lenet.build(np.random.default_rng(5))
    return replace(program, network=network), Products(find(name), Setting(device, entries=None))


@pytest.mark.parametrize(("name", "dtype"), [("gemm/v3", "fp32"), ("gemm/v5", "fp16")])
def test_linear_layers_in_any_matrix_product(
    name: str, dtype: str, program: Program, emulator: Device
) -> None:
    """The layers are computed in fp32, or in the type that the variant supports."""
    convolutions = Convolutions(find("cpu"), Setting(None))
    right = program.network.forward(program.images(IMAGES, "float32"))
    program, products = with_products(program, name, emulator)
    program.accuracy(IMAGES, convolutions, products)
    found = program.network.forward(program.images(IMAGES, "float32"))
    np.testing.assert_allclose(found, right, atol=1e-6 if dtype == "fp32" else 1e-3)
    first, second = products.layers[:2]
    assert (first.name, str(first.problem)) == ("fc1", f"(6,1296) @ (1296,32) {dtype} -> fp32, b transposed")
    assert (second.name, str(second.problem)) == ("fc2", f"(6,32) @ (32,10) {dtype} -> fp32, b transposed")
    assert all(layer.comparison and layer.comparison.ok for layer in products.layers)


def test_linear_layers_that_a_variant_cannot_do(program: Program, emulator: Device) -> None:
    _, products = with_products(program, "gemm/v5", emulator)
    w = np.ones((2, 3), np.float32)
    with pytest.raises(VariantError, match="uses linear layers in float16, whose range some numbers"):
        products(np.full((4, 3), 70_000, np.float32), w, "fc")
    products.variant = replace(products.variant, refuses=lambda p: f"no {p.dtype}")
    with pytest.raises(VariantError, match="gemm/v5_mma_async does not support a linear layer: no fp32"):
        products(np.ones((4, 3), np.float32), w, "fc")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--linear", "m1"], "--linear m1/direct: it computes conv2d, but gemm is needed here"),
        (
            ["--linear", "gemm/v0", "--resident", "whole"],
            "--linear needs --impl, because --resident runs every",
        ),
        (["--linear", "gemm/cublas", "--device", "emulator", "--impl", "cpu"], "gemm/cublas needs a GPU"),
        (["--linear", "gemm/v9_none"], "no variant 'gemm/v9_none'"),
    ],
)
def test_wrong_use_of_linear(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--batch", "5", "--data", "synthetic", *words]) == 2
    assert message in capsys.readouterr().err


def test_linear_layers_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "out.json"
    words = ["--impl", "cpu", "--linear", "gemm/v2", "--device", "emulator", "--json", str(file)]
    assert main([*words, "--batch", "5", "--data", "synthetic", "--check"]) == 0
    figures = json.loads(file.read_text())
    assert (figures["impl"], figures["linear"], figures["device"]) == ("cpu", "gemm/v2", "emulator")
    assert [layer["name"] for layer in figures["layers"]] == ["conv1", "conv2", "fc1", "fc2"]
    printed = capsys.readouterr().out
    assert "linear    gemm/v2_tiled: a block loads tiles" in printed
    assert "Linear fc1  (5,1296) @ (1296,32) fp32 -> fp32, b transposed" in printed
    assert printed.count("agrees with float64") == 4


def test_what_the_weights_state(program: Program) -> None:
    assert (program.expected_accuracy(4), program.expected_accuracy(5)) == (0.25, None)
    other = replace(program, info=replace(program.info, dataset="fashion-mnist"))
    assert other.expected_accuracy(4) is None
    program.check_batch(IMAGES)
    with pytest.raises(UsageError, match=r"--batch 7: synthetic has only 6 test images"):
        program.check_batch(IMAGES + 1)


def test_weights_that_are_not_shipped_for_the_substitute_of_the_data(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = replace(program.data, note="using synthetic images: why")
    monkeypatch.setattr("mini_dnn.nn.zoo.Model.load", lambda *_: noted)
    with pytest.raises(
        UsageError, match=r"ResNet-18 for .* 'synthetic' are shipped: .*\. NOTE: using .*: why"
    ):
        Program.load(network="resnet18")


def test_names_of_networks() -> None:
    assert [find_step(name).op for name in STEPS] == ["lenet"] * 4
    assert find_step("networks/lenet/whole").name == find_step("whole").name
    with pytest.raises(VariantError, match="no whole network; --resident takes layers, fused, whole"):
        find_step("m3")
    with pytest.raises(VariantError, match="short names are layers, fused, whole"):
        find_step("hole")


@pytest.mark.parametrize("words", [["--impl", "m1"], ["--resident", "whole"]])
@pytest.mark.parametrize("settled", [True, False])
def test_the_output_says_where_op_times_had_not_settled(
    words: list[str],
    settled: bool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("mini_dnn.running.timing.WARM_UP_S", 0.0)
    monkeypatch.setattr(verb, "open_device", lambda name: Clocked() if settled else Restless())
    file = tmp_path / "out.json"
    assert main([*words, "--batch", "5", "--data", "synthetic", "--repeat", "1", "--json", str(file)]) == 0
    layers = json.loads(file.read_text())["layers"]
    assert capsys.readouterr().out.count(UNSETTLED) == (0 if settled else len(layers))
    assert [layer["settled"] for layer in layers] == [settled] * len(layers)
    assert [layer["state"] for layer in layers] == [None] * len(layers)
    assert all(layer["op_ms"] > 0 for layer in layers)


@pytest.mark.parametrize(
    ("impl", "message"),
    [
        ("networks/lenet/whole", "computes a whole network; use --resident networks/lenet/whole"),
        ("layers/fused", "it computes conv2d_relu_pool, but conv2d is needed here"),
    ],
)
def test_variants_of_other_operations(impl: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--impl", impl]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("found", "batch", "agrees"),
    [(0.8, 10, True), (0.7, 10, False), (0.899, 10_000, True), (0.8989, 10_000, False), (0.9, 7, True)],
)
def test_accuracies_agree_up_to_one_of_a_thousand_images(found: float, batch: int, agrees: bool) -> None:
    assert infer._is_close(found, 0.9, batch) == agrees
