"""Residual networks as data: sizes, names, shapes, descriptions, folded batch norms; and their training."""

import json
from math import prod
from pathlib import Path

import numpy as np
import pytest

from mini_dnn.cli import main
from mini_dnn.datasets import ImageSet, fashion_mnist
from mini_dnn.datasets.fashion_mnist import resize
from mini_dnn.datasets.synthetic import draw
from mini_dnn.errors import ShapeError
from mini_dnn.nn.layer import Running
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import RESNET18, RESNET34, ResNetSizes
from mini_dnn.nn.models.resnet_arrays import fold, sizes_of
from mini_dnn.nn.network import Network
from mini_dnn.nn.numpy_padded import padded_forward
from mini_dnn.nn.train import Settings, Trainer, predict
from mini_dnn.nn.workers import Workers
from mini_dnn.nn.zoo import MODELS

SMALL = ResNetSizes(8, 1, "small", (4, 4, 6, 8), (1, 1, 1, 1), 10)
LARGE = ResNetSizes(33, 3, "imagenet", (4, 6, 8, 10), (2, 1, 1, 2), 5, (1, 2, 1, 2))


def rng(seed: int = 7) -> np.random.Generator:
    return np.random.default_rng(seed)


def trained(sizes: ResNetSizes) -> Network:
    """A network whose norms contain numbers as after a training."""
    network = resnet.build(sizes, rng(), np.float64)
    for parameter in network.parameters().values():
        if parameter.value.ndim == 1:
            parameter.value[:] = rng().uniform(0.5, 1.5, parameter.value.shape)
    return network


@pytest.mark.parametrize(
    ("sizes", "parameters", "flops"), [(RESNET18, 11_689_512, 3.628e9), (RESNET34, 21_797_672, 7.328e9)]
)
def test_the_known_networks_have_their_sizes(sizes: ResNetSizes, parameters: int, flops: float) -> None:
    """The numbers are torchvision's. Its documentation counts a product and a sum as one operation."""
    shapes = {name: shape for name, shape in sizes.shapes.items() if "running" not in name}
    assert sum(map(prod, shapes.values())) == parameters
    assert sizes.flops == pytest.approx(flops, rel=1e-3)
    assert [conv.P for conv in sizes.convolutions][-1] == 7


@pytest.mark.parametrize("sizes", [SMALL, LARGE, resnet.FASHION, resnet.CIFAR10])
def test_the_network_has_the_names_and_shapes_that_its_sizes_say(sizes: ResNetSizes) -> None:
    network = resnet.build(sizes, rng())
    found = {name: parameter.value.shape for name, parameter in network.parameters().items()}
    assert found == sizes.shapes
    assert list(found)[:6] == [
        "conv1.weight",
        *(f"bn1.{a}" for a in resnet.NORM_ARRAYS),
        "layer1.0.conv1.weight",
    ]
    x = rng().random((2, sizes.channels, sizes.image, sizes.image), np.float32)
    sides = {conv.name: conv.P for conv in sizes.convolutions}
    for block in sizes.all_blocks:
        assert sides[block.conv2.name] == block.conv2.H
    y = network.forward(x)
    assert y.shape == (2, sizes.classes)
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-5)


def test_its_name_follows_from_its_blocks() -> None:
    assert (RESNET18.title, RESNET34.title) == ("ResNet-18", "ResNet-34")


@pytest.mark.parametrize("sizes", [SMALL, LARGE, RESNET34])
def test_a_description_comes_back_and_shapes_tell_the_sizes(sizes: ResNetSizes) -> None:
    assert ResNetSizes.from_json(sizes.to_json()) == sizes
    if sizes.strides == (1, 2, 2, 2):  # the shapes do not determine the strides
        assert sizes_of(sizes.shapes, sizes.image) == sizes


def test_what_a_description_leaves_out_is_resnet_18s() -> None:
    text = '{"format": "mini_dnn.resnet/1", "widths": [8, 16, 32, 64], "classes": 7}'
    assert ResNetSizes.from_json(text) == ResNetSizes(widths=(8, 16, 32, 64), classes=7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, '"format": "mini_dnn.resnet/1"'),
        ({"depth": 18}, "no field depth in a description; expected one of image, channels"),
        ({"widths": [1, 2, 3]}, "widths must be 4 integers"),
        ({"widths": "1234"}, "widths must be 4 integers"),
        ({"widths": 7}, "widths must be 4 integers"),
        ({"blocks": [2, 2, 2, 0]}, "blocks must be 4 integers of 1 or more"),
        ({"strides": [1, 2, 2, 1.5]}, "strides must be 4 integers"),
        ({"classes": True}, "classes must be an integer"),
        ({"image": -1}, "image must be an integer"),
        ({"image": 65_537}, "image must be an integer of 1 or more, up to 65,536; found 65537"),
        ({"widths": [1, 2, 3, 1 << 40]}, "widths must be 4 integers of 1 or more, up to 65,536; found"),
        ({"stem": "large"}, "stem is one of imagenet, small; found 'large'"),
        ({"stem": ["small"]}, "stem is one of"),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        ResNetSizes.from_json(json.dumps({**json.loads(SMALL.to_json()), **change}))


@pytest.mark.parametrize("text", ["", "[]", "{", "7", "[" * 100_000])
def test_what_is_no_description_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match=r"description of (a|the) network is"):
        ResNetSizes.from_json(text)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("conv1.weight", None, "'conv1.weight' is missing: this is not a residual network of basic blocks"),
        ("conv1.weight", (4, 1, 5, 5), "a stem has filters of 7×7 or 3×3"),
        ("layer3.0.conv1.weight", None, "'layer3.0.conv1.weight' is missing"),
        ("fc.weight", (8,), r"'fc.weight' is \(8,\); expected 2 axes"),
    ],
)
def test_shapes_of_another_network_are_refused(
    name: str, shape: tuple[int, ...] | None, message: str
) -> None:
    shapes = {n: s for n, s in {**SMALL.shapes, name: shape}.items() if s is not None}
    with pytest.raises(ShapeError, match=message):
        sizes_of(shapes)


@pytest.mark.parametrize("sizes", [SMALL, LARGE])
def test_folded_batch_norms_are_the_norms(sizes: ResNetSizes) -> None:
    """Each convolution with its norm is compared separately."""
    network = trained(sizes)
    arrays = {name: parameter.value for name, parameter in network.parameters().items()}
    folded = fold(sizes, arrays)
    assert {name: array.shape for name, array in folded.items()} == sizes.folded_shapes
    assert list(folded) == list(sizes.folded_shapes)
    for conv in sizes.convolutions:
        x = rng().standard_normal((1, conv.C, conv.H, conv.H))
        weight, bias, mean, variance = (
            arrays[f"{conv.norm}.{array}"][:, None, None] for array in resnet.NORM_ARRAYS
        )
        y = padded_forward(x, arrays[f"{conv.name}.weight"], conv.stride, conv.padding)
        wanted = (y - mean) / np.sqrt(variance + 1e-5) * weight + bias
        y = padded_forward(x, folded[f"{conv.name}.weight"], conv.stride, conv.padding)
        np.testing.assert_allclose(y + folded[f"{conv.name}.bias"][:, None, None], wanted, rtol=1e-10)


def test_folding_rounds_once() -> None:
    arrays = {n: p.value.astype(np.float32) for n, p in trained(SMALL).parameters().items()}
    exact = fold(SMALL, {name: array.astype(np.float64) for name, array in arrays.items()})
    for name, array in fold(SMALL, arrays).items():
        assert array.dtype == np.float32
        np.testing.assert_array_equal(array, exact[name].astype(np.float32))


def images(count: int, side: int = 8) -> ImageSet:
    drawn, labels = draw(count, 3)
    return ImageSet("synthetic", "train", resize(drawn[:, 0], side), labels, "drawn", "")


def test_training_learns_and_moves_running_means() -> None:
    data = images(40)
    network = resnet.build(SMALL, rng())
    before = {name: parameter.value.copy() for name, parameter in network.parameters().items()}
    trainer = Trainer(network, data, data, Settings(epochs=30, batch=10, rate=1e-2, decay=0.01), rng())
    trainer.run()
    losses = [result.loss for result in trainer.history]
    assert losses[-1] < 0.5 * losses[0]
    assert (predict(network, data.images) == data.labels).mean() > 0.7  # uses the running means
    for name, parameter in network.parameters().items():
        assert (parameter.value != before[name]).any(), name
    state = {name.partition(".")[2] for name in trainer._optimizer.state()}
    assert not any(name.endswith(("running_mean", "running_var")) for name in state)


def test_workers_give_running_means_of_all_parts() -> None:
    """Several processes give the same result as one process."""
    body = Network(dict(list(resnet.build(SMALL, rng()).layers.items())[:-1]))
    x, labels = rng().random((6, 1, 8, 8), np.float32), np.arange(6)
    running = [p for p in body.parameters().values() if isinstance(p, Running)]
    found = []
    with Workers(body, 6, 4, 2) as workers:
        workers.step(x, labels)
        found = [parameter.grad.copy() for parameter in running]
    wanted = [np.zeros_like(parameter.value) for parameter in running]
    for part in (slice(0, 4), slice(4, 6)):
        body.forward(x[part], training=True)
        for total, parameter in zip(wanted, running, strict=True):
            total += parameter.grad * np.float32(len(x[part]) / 6)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_the_verb_writes_weights_that_describe_their_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Training in processes, and files of any kind; without options the checkpoint is HDF5."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mini_dnn.datasets.load", lambda name, split, *_: images(16))
    # The description is edited during the training
    monkeypatch.setattr("mini_dnn.cli.train.check_room", lambda *_: Path("d.json").write_text("{}"))
    Path("d.json").write_text(SMALL.to_json())
    words = ["train", "--network", "resnet18", "--data", "synthetic", "--epochs", "1", "--batch", "8"]
    assert main([*words, "--out", "w.safetensors", "--description", "d.json"]) == 0
    assert "epoch  1 of 1: loss" in capsys.readouterr().out
    network, info = MODELS["resnet18"].read(Path("w.safetensors"))
    assert ResNetSizes.from_json(info.description) == SMALL
    assert (network.parameters()["bn1.running_mean"].value != 0).any()
    assert info.command.startswith(
        "python run.py train --network resnet18 --data synthetic --epochs 1 --batch 8"
    )
    assert info.command.endswith(" --description d.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["d.json", "w.safetensors"]


@pytest.mark.parametrize(
    ("change", "words", "message"),
    [
        ({}, "--network lenet", "--description needs --network resnet18: LeNet has only one size"),
        (
            {"classes": 9},
            "",
            r"images (1, 8, 8) and 9 classes; synthetic has images (1, 8, 8) and 10 classes",
        ),
        ({"channels": 3}, "", r"describes a network for images (3, 8, 8)"),
        ({"stem": "none"}, "", "stem is one of imagenet, small"),
        (None, "", "cannot be read: No such file or directory"),
    ],
)
def test_a_description_that_does_not_fit_is_refused(
    change: dict[str, object] | None,
    words: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mini_dnn.datasets.load", lambda name, split, *_: images(16))
    if change is not None:
        Path("d.json").write_text(json.dumps({**json.loads(SMALL.to_json()), **change}))
    given = ["train", "--network", "resnet18", "--data", "synthetic", "--description", "d.json"]
    assert main([*given, *words.split()]) == 2
    assert message in capsys.readouterr().err


SHIPPED = MODELS["resnet18"].weights("fashion-mnist")


@pytest.mark.skipif(not SHIPPED.is_file(), reason="no weights of ResNet-18 are shipped")
def test_the_shipped_weights_describe_their_network_and_reach_the_accuracy_they_state() -> None:
    network, info = MODELS["resnet18"].read(SHIPPED)
    assert ResNetSizes.from_json(info.description) == resnet.FASHION
    assert network.architecture == info.architecture
    if fashion_mnist.named_folder(None) is None:
        pytest.skip("FASHION_MNIST_DIR names no folder with Fashion-MNIST")
    data = MODELS["resnet18"].load("fashion-mnist", "test")
    assert (predict(network, data.images[:100]) == data.labels[:100]).mean() == info.accuracies[100]
