"""Vision transformers as operations: problems, networks that stay on a device, and `run.py`."""

import re
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from mini_dnn import ops
from mini_dnn.cli import main
from mini_dnn.datasets import ImageSet
from mini_dnn.datasets.synthetic import draw
from mini_dnn.device import Device
from mini_dnn.errors import DeviceError, ShapeError, UsageError
from mini_dnn.measuring.inference import Program
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.nn.models.vit import BASE, VitSizes, build
from mini_dnn.nn.weights import WeightsInfo, save
from mini_dnn.ops.compare import compare_all
from mini_dnn.ops.vit import VitShape, score_bound
from mini_dnn.running.execute import compile_others
from mini_dnn.running.resident import Resident
from mini_dnn.variant import Launch, find
from mini_dnn.variant.export import expand

BYTES = 227 * 1024
VIT = ops.find("vit")
PROBLEM = VIT.check[1]
SIZES = VitSizes(image=28, patch=7, channels=1, width=32, depth=2, heads=1, mlp_ratio=2, classes=10)
NETWORKS = ("networks/vit/layer_by_layer", "networks/vit/fused")


@pytest.mark.parametrize("problem", VIT.check, ids=str)
def test_weights_are_those_of_the_network(problem: VitShape) -> None:
    network = build(problem.sizes, np.random.default_rng(0))
    assert problem.weights == {name: p.value.shape for name, p in network.parameters().items()}
    arrays = VIT.inputs(problem, 0)
    found, given = VIT.of(arrays["images"], *(arrays[n] for n in problem.weights), heads=problem.heads)
    assert found == problem
    assert given.keys() == arrays.keys()


def test_work_of_a_large_one() -> None:
    problem = VitShape(1, **vars(BASE))
    assert problem.T == 197
    assert sum(np.prod(shape) for shape in problem.weights.values()) == 86_567_656  # as published
    assert problem.flops == pytest.approx(35.1e9, rel=1e-2)


def test_problems_that_are_not_transformers() -> None:
    images = np.zeros((2, 3, 12, 12), np.float32)
    with pytest.raises(ShapeError, match="found 3 weights; expected 4 of patches"):
        VIT.of(images, *[np.zeros((2, 2), np.float32)] * 3, heads=1)
    with pytest.raises(ShapeError, match="expected \\(N, channels, side, side\\)"):
        VIT.of(images[0], heads=1)
    with pytest.raises(ShapeError, match="expected \\(N, channels, side, side\\)"):
        VIT.of(images[:, :0], *[np.zeros((2, 2), np.float32)] * 20, heads=1)
    with pytest.raises(ShapeError, match="found 20 weights; expected 4 of patches"):
        VIT.of(images, *[np.zeros((0, 2), np.float32)] * 20, heads=1)
    with pytest.raises(ShapeError, match="dtype is 'bf16'"):
        replace(PROBLEM, dtype="bf16")
    arrays = VIT.inputs(PROBLEM, 0)
    weights = [arrays[name] for name in PROBLEM.weights]
    with pytest.raises(ShapeError, match="weights have the shapes"):
        VIT.of(images, *weights[:-1], np.zeros(5, np.float32), heads=2)


def test_mistakes_lie_outside_of_the_bound() -> None:
    arrays = VIT.inputs(PROBLEM, 0)
    right, bound = VIT.answer(PROBLEM, arrays), VIT.bound(PROBLEM, arrays, "fp16")
    found = list(VIT.mistakes(PROBLEM, arrays))
    assert len(found) == 5
    for sentence, wrong in found:
        assert not compare_all(wrong, right, bound).ok, sentence
    assert score_bound(PROBLEM, arrays, "fp32") < score_bound(PROBLEM, arrays, "fp16") / 100


def test_a_probability_that_fp32_cannot_hold_is_right_as_zero() -> None:
    arrays = dict(VIT.inputs(PROBLEM, 0))
    arrays["head.bias"] = arrays["head.bias"] - np.float32(120) * (np.arange(PROBLEM.classes) == 0)
    right, bound = VIT.answer(PROBLEM, arrays), VIT.bound(PROBLEM, arrays, "fp32")
    assert 0 < right["probabilities"].min() < 1e-46
    assert compare_all({"probabilities": right["probabilities"].astype(np.float32)}, right, bound).ok


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_that_stays_on_a_device(name: str, quick_emulator: Device) -> None:
    """Batches of other sizes than it was opened for, of one image and of more."""
    arrays = dict(VIT.inputs(PROBLEM, 0))
    images = arrays.pop("images")
    variant = find(name)
    right = VIT.answer(PROBLEM, {"images": images, **arrays})
    bound = VIT.bound(PROBLEM, {"images": images, **arrays}, variant.precision)
    for batch in (1, 2):
        resident = Resident(variant, PROBLEM.with_batch(batch), arrays, quick_emulator)
        found = resident.predict(images)
        resident.close()
        assert compare_all({"probabilities": found}, right, bound).ok


def test_launches_of_the_fused_one() -> None:
    """There are five per block. Behind the last attention only the class tokens are computed."""
    planned = find("networks/vit/fused").planned(replace(PROBLEM, depth=3), BYTES)
    words = [
        step.code.source.parent.parent.name if step.code else step.kernel
        for step in planned.steps
        if isinstance(step, Launch)
    ]
    block = ["linear", "attention", "linear", "linear", "linear"]
    assert words == ["cut", "linear", *block * 3, "linear", "softmax"]
    lines = [array.shape[:2] for name, (_, array) in planned.views.items() if name.endswith("_y")]
    assert lines == [(3, 10)] * 10 + [(3, 1)] * 4
    text = re.sub(r"\s*//\s*", " ", expand(find("networks/vit/fused"), PROBLEM, "a test", BYTES))
    assert "linear_v2_ahead_linear<<<" in text
    assert "attention_v9_final_attention<<<" in text


def test_a_gpu_newer_than_hopper_cannot_run_what_the_fused_one_calls() -> None:
    newer = Mock(arch=100, has_clock=True, max_shared_bytes=BYTES)
    fused = find("networks/vit/fused")
    with pytest.raises(DeviceError, match="vit/fused needs a GPU of sm_90, the only one with wgmma"):
        compile_others(fused.planned(PROBLEM, BYTES), newer)
    assert Classifier.load("vit").best(newer).name == "networks/vit/layer_by_layer"


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Weights of a small network in the place of the transformer."""
    images, labels = draw(20, split="test")
    small = ImageSet("synthetic", "test", images[:, :, ::3, ::3][:, :, :28, :28].copy(), labels, "drawn", "")
    monkeypatch.setattr("mini_dnn.datasets.load", lambda *_: small)
    monkeypatch.setattr("mini_dnn.nn.zoo.vit_sizes", lambda name: SIZES)
    monkeypatch.setattr("mini_dnn.measuring.inference.vit_sizes", lambda name: SIZES)
    network = build(SIZES, np.random.default_rng(5))
    save(tmp_path / "w.h5", network, WeightsInfo("synthetic", {}, 1, ""))
    return tmp_path / "w.h5"


@pytest.mark.exhaustive
@pytest.mark.parametrize("words", ["--resident fused --send uint8", "--resident layers"])
def test_images_are_classified_on_the_device(
    words: str, program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--batch", "3", "--check", "--device", "emulator", "--weights", str(program)]
    assert main(["--network", "vit", *words.split(), *more]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"The vision transformer  \(3,1,28,28\) (uint8|float32), 17 tokens of 32", printed)
    assert "agrees with float64: max error" in printed
    assert "Test Accuracy: " in printed


def test_images_are_not_resized_on_the_device(program: Path) -> None:
    with pytest.raises(UsageError, match="uses images of the original size; use --send uint8"):
        Program.load("synthetic", weights=program, network="vit").images(2, "uint8-28")
