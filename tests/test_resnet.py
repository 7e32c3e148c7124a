"""Residual networks and their convolutions as operations, networks that stay on a device, and `run.py`."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from take_home_helpers import files_of

from mini_dnn import ops
from mini_dnn.cli import main
from mini_dnn.datasets import ImageSet
from mini_dnn.datasets.synthetic import draw
from mini_dnn.device import Device
from mini_dnn.errors import ShapeError, UsageError, VariantError
from mini_dnn.grading.plans import encode
from mini_dnn.measuring.inference import find_step
from mini_dnn.nn.models.resnet import RESNET18, RESNET34, ResNetSizes, build
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.nn.zoo import MODELS
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.ops.hints import hint
from mini_dnn.ops.resnet import ResNetShape, pixels
from mini_dnn.plans import implicit_rows
from mini_dnn.running.compute import best
from mini_dnn.running.resident import Resident
from mini_dnn.running.runner import run
from mini_dnn.variant import Launch, RoundTrip, find, names
from mini_dnn.variant.export import expand

CONV, RESNET = ops.find("conv2d_padded"), ops.find("resnet")
LAYER, SMALL, BYTES = CONV.check[2], RESNET.check[1], 227 * 1024
SIZES = ResNetSizes(28, 1, "small", (8, 8, 16, 16), (1, 1, 1, 1), 10)
RUNGS = [f"networks/resnet18/{rung}" for rung in ("v3_shared", "v4_tensor_cores", "v6_graph")]
FP32 = [f"networks/resnet18/{rung}" for rung in ("v0_transfers", "v1_conv_bn", "v2_layers", "v3_shared")]


def test_the_layers_of_a_network_are_the_courses_problems() -> None:
    """20 convolutions are 15 distinct problems, and their FLOPs are the published ones."""
    network = ResNetShape.like(RESNET18, 1)
    layers = {network.layer(c) for c in RESNET18.convolutions}
    course = {replace(p, N=1, dtype="fp32", layout="nchw") for p in CONV.course.values()}
    assert layers == {replace(p, relu=False, residual=False) for p in course}
    assert len(course) == 15
    assert network.flops == pytest.approx(3.63e9, rel=1e-2)
    assert ResNetShape.like(RESNET34, 1).flops == pytest.approx(7.34e9, rel=1e-2)
    weights = {name: np.prod(sides) for name, sides in network.weights.items() if "running" not in name}
    assert sum(weights.values()) == 11_689_512  # as published


@pytest.mark.parametrize("problem", RESNET.check, ids=str)
def test_the_answer_is_the_frameworks(problem: ResNetShape) -> None:
    arrays = RESNET.inputs(problem, 0)
    network = build(problem.sizes, np.random.default_rng(0), np.float64)
    for name, parameter in network.parameters().items():
        parameter.value[:] = arrays[name]
    scores = RESNET.answer(problem, arrays)["scores"]
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    expected = powers / powers.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(network.forward(pixels(problem, arrays)), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1,2,9,9,3,3,1,3", "padding is 3 with a filter of 3 x 3; expected 0 to 2"),
        ("1,2,4,9,3,7,1,1", "larger than the image 4 x 9 with padding 1"),
        ("1,2,9,9,3,3,0", "at least 1, but stride = 0"),
        ("1,2,9,9,3,3,1,1,0,0,bf16", "dtype is 'bf16'; expected one of fp32, fp16"),
    ],
)
def test_what_a_convolution_may_not_be(text: str, words: str) -> None:
    with pytest.raises(ShapeError, match=re.escape(words)):
        CONV.parse(text)


def test_arrays_that_are_no_problem() -> None:
    x, w, bias = (
        np.zeros((1, 2, 5, 5), np.float32),
        np.zeros((3, 2, 3, 3), np.float32),
        np.zeros(3, np.float32),
    )
    problem, _ = CONV.of(x, w, bias, stride=2, padding=1)
    assert problem == PaddedShape(1, 2, 5, 5, 3, 3, 2, 1)
    with pytest.raises(ShapeError, match="bias is \\(3,\\) float16; expected \\(3,\\) float32"):
        CONV.of(x, w, bias.astype(np.float16))
    with pytest.raises(ShapeError, match=r"found 3 arrays, .*; expected x, the residual, w and bias"):
        CONV.of(x, w, bias, residual=True)
    with pytest.raises(ShapeError, match=r"found 2 arrays, .*; expected x, w and bias. Without a bias"):
        CONV.of(x, w)
    with pytest.raises(ShapeError, match="expected x and w of four axes"):
        CONV.of(x[0], w, bias)
    images = np.zeros((1, 1, 8, 8), np.float32)
    weights = [np.zeros(shape, np.float32) for shape in SMALL.weights.values()]
    assert RESNET.of(images, *weights, blocks="1-1-1-1")[0] == SMALL
    with pytest.raises(ShapeError, match="found 62 weights, 9 of them filters larger than a pixel"):
        RESNET.of(images, *weights)
    with pytest.raises(ShapeError, match="weights have the shapes"):
        RESNET.of(images, *weights[:-1], np.zeros(5, np.float32), blocks="1-1-1-1")
    with pytest.raises(ShapeError, match="found 3 weights, 1 of them"):
        RESNET.of(images, weights[0], *weights[-2:], blocks="0-0-0-0")
    with pytest.raises(ShapeError, match=r"fc\.bias is float64, which float32 cannot hold exactly"):
        RESNET.of(images, *weights[:-1], weights[-1].astype(np.float64), blocks="1-1-1-1")
    with pytest.raises(ShapeError, match="widths is '8-x'; expected four numbers"):
        replace(SMALL, widths="8-x")


@pytest.mark.parametrize(
    ("N", "C", "R", "name"),
    [
        (1, 64, 127, "conv2d_padded/v3_wgmma"),
        (1, 64, 128, "conv2d_padded/v2_wmma"),  # a tensor map has windows of at most 127 x 127
        (2**20, 8, 127, "conv2d_padded/v2_wmma"),  # more than 2^31 pixels are computed in parts
    ],
)
def test_the_best_convolution_for_a_problem(N: int, C: int, R: int, name: str, emulator: Device) -> None:
    problem = PaddedShape(N, C, 200, 200, 64, R, dtype="fp16", layout="nhwc")
    assert best(CONV, problem, emulator).name == name


def test_rows_of_a_tile_fit_in_a_stage() -> None:
    """The rows of a tile and the two around them are a stage; more would overwrite the next one."""
    for W in range(1, 200):
        problem = PaddedShape(1, 64, 8, W, 64, 3, padding=1, dtype="fp16", layout="nhwc")
        lines = (implicit_rows.PIXELS // (W + 2) + 2) * (W + 2)
        assert bool(implicit_rows.fault(problem)) == (lines > 2 * implicit_rows.PIXELS)


@pytest.mark.parametrize("op", ["conv2d_padded", "resnet"])
def test_mistakes_are_found_and_named(op: str) -> None:
    operation, problem = ops.find(op), {"conv2d_padded": LAYER, "resnet": RESNET.check[2]}[op]
    arrays = operation.inputs(problem, 0)
    right, bound = operation.answer(problem, arrays), operation.bound(problem, arrays, "fp16")
    for sentence, wrong in operation.mistakes(problem, arrays):
        assert not compare_all(wrong, right, bound).ok, sentence
    sentence, wrong = next(iter(operation.mistakes(problem, arrays)))
    assert sentence in hint(operation, problem, arrays, wrong, "fp32")


@pytest.mark.parametrize("name", FP32)
def test_scores_in_fp32_are_those_of_float64(name: str, emulator: Device) -> None:
    """The errors are far below 1e-5 of the largest score, which is the requirement."""
    problem = RESNET.check[2]
    arrays = RESNET.inputs(problem, 1)
    scores = RESNET.answer(problem, arrays)["scores"]
    found = run(find(name), problem, arrays, emulator).y
    assert np.abs(found - scores).max() <= 2e-6 * np.abs(scores).max()


def test_a_network_that_stays_on_a_device(emulator: Device) -> None:
    """Batches of other sizes than it was opened for. Round trips are part of the replayed work."""
    problem = replace(SMALL, N=3)
    arrays = dict(RESNET.inputs(problem, 0))
    right = RESNET.answer(problem, arrays)["scores"]
    images = arrays.pop("images")
    resident = Resident(find("networks/resnet18/v1_conv_bn"), problem.with_batch(2), arrays, emulator)
    found = resident.predict(images)
    resident.close()
    np.testing.assert_allclose(found, right, atol=1e-5)


def test_round_trips_of_the_first_rungs() -> None:
    """The first rung copies each result, the second copies results of norms, and the third copies nothing."""
    trips = []
    for rung in ("v0_transfers", "v1_conv_bn", "v2_layers"):
        steps = find(f"networks/resnet18/{rung}").planned(RESNET.course["batch-1"], BYTES).steps
        launches = [step for step in steps if isinstance(step, Launch)]
        assert len(launches) == 69
        trips.append(len(steps) - len(launches))
        assert all(isinstance(step, RoundTrip) for step in steps if not isinstance(step, Launch))
    assert trips == [68, 20, 0]


def test_the_first_kernel_of_the_fast_rungs() -> None:
    """Strips if 8 divides the side, windows for a small stem, and parts for any other image."""
    variant, course = find("networks/resnet18/v6"), RESNET.course["batch-1"]
    firsts = {
        "one image": course,
        "many": replace(course, N=64),
        "odd": replace(course, image=225),
        "small": replace(course, image=32, stem="small", widths="16-32-32-64"),
    }
    steps = {name: variant.planned(problem, BYTES).steps[0] for name, problem in firsts.items()}
    launches = {name: (step.kernel, step.grid) for name, step in steps.items() if isinstance(step, Launch)}
    assert launches == {
        "one image": ("stem_in_strips", (4 * 28, 1, 1)),  # a block for each step
        "many": ("stem_in_strips", (4 * 2, 64, 1)),
        "odd": ("stem_and_pool", (29 * 5, 1, 1)),
        "small": ("take_windows", (32,)),
    }
    assert len(variant.planned(firsts["small"], BYTES).steps) == len(variant.planned(course, BYTES).steps) + 1


def test_a_round_trip_in_words(tmp_path: Path) -> None:
    """A plan is shown with its round trips; formats that cannot express them refuse it."""
    (tmp_path / "kernel.cu").write_text('extern "C" __global__ void twice(const float* x, float* y) {}\n')
    (tmp_path / "variant.py").write_text(
        "from mini_dnn.variant import Launch, RoundTrip, Variant\n\n"
        "VARIANT = Variant(op='softmax', idea='a test', plan=lambda s: "
        "[Launch('twice', (1,), (1,), ('x', 'y')), RoundTrip('y')])\n"
    )
    variant, problem = find(str(tmp_path)), ops.find("softmax").check[0]
    assert "copy y from the GPU and back" in expand(variant, problem, "a test", BYTES)
    with pytest.raises(UsageError, match="sends buffers to the host and back"):
        files_of(variant, problem)
    with pytest.raises(VariantError, match="a submission keeps its buffers on the device"):
        encode(variant.planned(problem, BYTES))


def test_a_round_trip_of_a_buffer_that_is_not_there(tmp_path: Path, emulator: Device) -> None:
    (tmp_path / "kernel.cu").write_text('extern "C" __global__ void nothing() {}\n')
    (tmp_path / "variant.py").write_text(
        "from mini_dnn.variant import RoundTrip, Variant\n\n"
        "VARIANT = Variant(op='softmax', idea='a test', plan=lambda s: [RoundTrip('z')])\n"
    )
    problem = ops.find("softmax").check[0]
    with pytest.raises(VariantError, match="a round trip names a buffer 'z'; expected one of x, y"):
        run(find(str(tmp_path)), problem, ops.find("softmax").inputs(problem, 0), emulator)


@pytest.mark.parametrize("name", RUNGS)
def test_the_shipped_network_gives_the_classes_of_numpy(name: str, emulator: Device) -> None:
    """The images are drawn garments, which are enough for several classes."""
    model = MODELS["resnet18"]
    network, info = model.read(model.weights("fashion-mnist"))
    images = draw(8, split="test")[0][:, :, ::3, ::3][:, :, :28, :28].copy()
    problem = ResNetShape.of(images, ResNetSizes.from_json(info.description))
    given = {"mean": np.zeros(1, np.float32), "deviation": np.ones(1, np.float32)}
    given |= {name: parameter.value for name, parameter in network.parameters().items()}
    resident = Resident(find(name), problem.with_batch(4), given, emulator)
    found = resident.predict(images).argmax(axis=1)
    resident.close()
    np.testing.assert_array_equal(found, network.forward(images / np.float32(255)).argmax(axis=1))
    assert len(set(found)) > 2


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of a small network in the place of ResNet-18, and images for it."""
    images, labels = draw(20, split="test")
    small = ImageSet("synthetic", "test", images[:, :, ::3, ::3][:, :, :28, :28].copy(), labels, "drawn", "")
    monkeypatch.setattr("mini_dnn.datasets.load", lambda *_: small)
    info = WeightsInfo("synthetic", {}, 1, "", description=SIZES.to_json())
    save(tmp_path / "w.h5", build(SIZES, np.random.default_rng(5)), info)
    return tmp_path / "w.h5"


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("--resident tensor --send uint8", "ResNet-18  (3,1,28,28) uint8, 4 blocks of 8-8-16-16 channels"),
        pytest.param(
            *("--impl conv2d_padded/v2", "Conv2d layer3.0.downsample.0  3 x (8,14,14)"),
            marks=pytest.mark.exhaustive,
        ),
    ],
)
def test_images_are_classified(
    words: str, shown: str, weights: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--batch", "3", "--check", "--device", "emulator", "--weights", str(weights)]
    assert main(["--network", "resnet18", *words.split(), *more]) == 0
    printed = capsys.readouterr().out
    assert shown in printed
    assert "agrees with float64: max error" in printed
    assert "Test Accuracy: " in printed


def test_steps_of_the_network() -> None:
    assert find_step("shared", "resnet18").name == "networks/resnet18/v3_shared"
    with pytest.raises(VariantError, match="computes resnet: add --network resnet18"):
        find_step("networks/resnet18/v2_layers", "vit")
    with pytest.raises(VariantError, match=r"one softmax and no whole network; .* has op='resnet'"):
        find_step("softmax/v0_naive", "resnet18")
    assert {"networks/resnet18/v0_transfers", "conv2d_padded/v2_wmma"} <= set(names())
