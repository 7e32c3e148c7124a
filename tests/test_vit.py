"""Vision transformers of any size: shapes, training in parts, and the shipped weights."""

import re
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path

import numpy as np
import pytest
from gradients import STEP

from mini_dnn.cli import main
from mini_dnn.datasets import ImageSet
from mini_dnn.datasets.fashion_mnist import resize
from mini_dnn.datasets.synthetic import draw
from mini_dnn.errors import MiniDnnError, ShapeError, UsageError
from mini_dnn.nn.loss import softmax_cross_entropy
from mini_dnn.nn.models.vit import PRESETS, VitSizes, build
from mini_dnn.nn.network import Network
from mini_dnn.nn.train import Settings, Trainer, shifted
from mini_dnn.nn.weights import WeightsInfo, load, save
from mini_dnn.nn.workers import Workers, _work, both_ways
from mini_dnn.nn.zoo import MODELS
from mini_dnn.paths import ROOT

SMALL = VitSizes(image=8, patch=4, channels=2, width=32, depth=2, heads=1, mlp_ratio=2, classes=3)
TINY = VitSizes(image=28, patch=14, channels=1, width=32, depth=1, heads=1, mlp_ratio=1, classes=10)


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def image_set(split: str, n: int) -> ImageSet:
    images, labels = draw(n, split=split)
    return ImageSet("synthetic", split, resize(images[:, 0], 28), labels, "drawn", "")


def bits(network: Network) -> dict[str, bytes]:
    return {name: parameter.value.tobytes() for name, parameter in network.parameters().items()}


def logits(network: Network) -> Network:
    return Network(dict(list(network.layers.items())[:-1]))


def test_the_whole_network_has_the_gradients_of_central_differences() -> None:
    network = logits(build(SMALL, rng(), np.float64))
    x, labels = rng().standard_normal((3, 2, 8, 8)), np.array([0, 2, 1])

    def loss() -> float:
        return softmax_cross_entropy(network.forward(x), labels)[0]

    network.backward(softmax_cross_entropy(network.forward(x, training=True), labels)[1])
    for name, parameter in network.parameters().items():
        value = parameter.value.reshape(-1)
        for i in rng().integers(0, value.size, 2):
            before = value[i]
            value[i] = before + STEP
            above = loss()
            value[i] = before - STEP
            below = loss()
            value[i] = before
            wanted = (above - below) / (2 * STEP)
            assert parameter.grad.reshape(-1)[i] == pytest.approx(wanted, rel=1e-5, abs=1e-9), name


def test_shapes_of_the_presets() -> None:
    assert [PRESETS[f"base-{side}"].tokens for side in (224, 384, 512)] == [197, 577, 1025]
    assert {s.head_width for name, s in PRESETS.items() if "-2" in name or "-5" in name} == {64}
    assert (PRESETS["fashion-mnist"].tokens, PRESETS["fashion-mnist"].head_width) == (50, 32)
    network = build(PRESETS["tiny-224"], rng())
    count = sum(parameter.value.size for parameter in network.parameters().values())
    assert count == 5_717_416  # DeiT-tiny with 1,000 classes
    assert {parameter.value.dtype for parameter in network.parameters().values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"patch": 3}, "patches of 3 do not fill an image of 8"),
        ({"heads": 2}, "2 heads share a width of 32: each must have 32, 64, 128"),
        ({"width": 96, "heads": 5}, "5 heads share a width of 96"),
        ({"depth": 0}, "1 or more"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(wrong: dict[str, int], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        replace(SMALL, **wrong)


def test_the_page_has_the_presets_sizes() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|(.+)\|$", (ROOT / "docs" / "vit.md").read_text(), re.MULTILINE)
    found = {}
    for names, cells in rows:
        if cells.count("|") < 5:
            continue  # the header of the table of layers
        _, patch, width, depth, heads, tokens = (cell.strip() for cell in cells.split("|"))
        counts = tokens.replace("1,025", "1025").split(", ")
        for name, count in zip(re.findall("`([^`]+)`", names), counts, strict=False):
            found[name] = (patch, width, depth, heads, count)
    for name, s in PRESETS.items():
        heads = f"{s.heads} of {s.head_width}"
        assert found[name] == (str(s.patch), str(s.width), str(s.depth), heads, str(s.tokens))


def test_names_of_parameters_and_layers() -> None:
    network = build(SMALL, rng())
    assert {"patches.linear.weight", "positions.class", "positions.position"} < set(network.parameters())
    assert {"attention2.heads.qkv.weight", "mlp1.down.bias", "norm.weight"} < set(network.parameters())
    with pytest.raises(ShapeError, match="layer 'patches' does not fit"):
        network.forward(np.zeros((1, 1, 8, 8), np.float32))
    seen: list[str] = []
    network.multiply_with(lambda x, w, name: seen.append(name) or x @ w.T)  # type: ignore[func-returns-value]
    network.attend_with(lambda qkv, scale, name: seen.append(name) or qkv[:, :, 0])  # type: ignore[func-returns-value]
    network.forward(np.zeros((1, 2, 8, 8), np.float32))
    first = ["patches.linear", "attention1.heads.qkv", "attention1.heads", "attention1.heads.out", "mlp1.up"]
    assert seen[:5] == first


def test_gradients_in_parts_are_those_of_the_whole() -> None:
    """They agree up to rounding, and any number of processes gives the same bits."""
    x, labels = rng().standard_normal((7, 2, 8, 8)), np.array([0, 1, 2, 0, 1, 2, 0])
    whole, *others = (logits(build(SMALL, rng(), np.float64)) for _ in range(3))
    losses = [both_ways(whole, x, labels, 7)]
    for count, network in enumerate(others, start=1):
        with Workers(network, 8, 3, count) as workers:
            losses.append(workers.step(x, labels))
            np.testing.assert_array_equal(
                workers.predict(np.zeros((3, 2, 8, 8), np.float32)),
                network.predict(np.zeros((3, 2, 8, 8), np.float32)),
            )
    assert losses[0] == pytest.approx(losses[1])
    assert losses[1] == losses[2]
    one, two = (network.parameters() for network in others)
    for name, parameter in whole.parameters().items():
        np.testing.assert_allclose(one[name].grad, parameter.grad, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(one[name].grad, two[name].grad)


def test_an_error_of_a_layer_and_a_worker_that_ends_are_reported() -> None:
    network = logits(build(SMALL, rng()))
    with Workers(network, 2, 2, 1) as workers:
        with pytest.raises(ShapeError, match="labels from 0 to 2; found 7 to 7") as caught:
            workers.step(np.zeros((2, 2, 8, 8), np.float32), np.full(2, 7))
        assert "in softmax_cross_entropy" in caught.value.__notes__[0]
        workers._pipes[0].send(None)  # this ends the worker
        with pytest.raises(MiniDnnError, match="a process of the training ended unexpectedly"):
            workers.step(np.zeros((2, 2, 8, 8), np.float32), np.zeros(2, np.uint8))


def test_a_worker_ends_quietly_if_the_trainer_stops_in_the_middle() -> None:
    """As after Ctrl-C, when the pipe is closed before the worker has answered."""
    network = logits(build(SMALL, rng()))
    shared = np.concatenate([p.value.reshape(-1) for p in network.parameters().values()])
    ours, theirs = Pipe()
    ours.send(("predict", [np.zeros((1, 2, 8, 8), np.float32)]))
    ours.close()
    _work(theirs, network, shared, shared.copy(), 2)


def test_a_training_in_parts_learns_and_starts_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train, test = image_set("train", 48), image_set("test", 20)
    settings = Settings(epochs=3, batch=16, rate=3e-3, seed=1, decay=0.05, muon=True, shift=1, part=16)

    def trainer() -> Trainer:
        random = np.random.default_rng(settings.seed)
        return Trainer(build(TINY, random), train, test, settings, random)

    whole = trainer()
    whole.run()
    assert whole.history[-1].loss < whole.history[0].loss
    stopped = trainer()
    monkeypatch.setattr(stopped, "settings", replace(settings, epochs=2))
    stopped.run()
    monkeypatch.setattr(stopped, "settings", settings)
    stopped.save(tmp_path / "c.h5")
    resumed = trainer()
    resumed.restore(tmp_path / "c.h5")
    resumed.run()
    assert bits(resumed.network) == bits(whole.network)


def test_images_are_shifted_by_a_few_pixels_and_padded_with_zeros() -> None:
    images = rng().integers(1, 255, (60, 1, 6, 5), np.uint8)
    found = shifted(images, 2, rng())
    assert found.shape == images.shape
    seen = set()
    for before, after in zip(images[:, 0], found[:, 0], strict=True):
        padded = np.pad(before, 2)
        at = [(r, c) for r, c in np.ndindex(5, 5) if (padded[r : r + 6, c : c + 5] == after).all()]
        assert len(at) == 1
        seen.add(at[0])
    assert len(seen) > 15


def test_the_verb_trains_a_transformer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sets = {split: image_set(split, 16) for split in ("train", "test")}
    sides = []

    def given(name: str, split: str, data_dir: Path | None, side: int) -> ImageSet:
        sides.append(side)
        return sets[split]

    monkeypatch.setattr("mini_dnn.datasets.load", given)
    assert main(["train", "--network", "vit", "--data", "synthetic", "--epochs", "1", "--batch", "8"]) == 0
    assert sides == [28, 28]
    file = Path("checkpoints/vit-synthetic.h5")
    info = load(file, MODELS["vit"].make("synthetic", rng()))
    assert info.command.startswith("python run.py train --network vit --data synthetic --epochs 1 --batch 8")
    assert info.preprocessing == "uint8 / 255"
    assert "epoch  1 of 1: loss" in capsys.readouterr().out


def test_a_network_says_which_data_it_takes() -> None:
    with pytest.raises(UsageError, match="'cifar10' needs --network vit"):
        MODELS["lenet"].load("cifar10", "test")
    assert MODELS["vit"].make("cifar10", rng()).forward(np.zeros((1, 3, 32, 32), np.float32)).shape == (1, 10)


def test_weights_in_halves_fill_the_network(tmp_path: Path) -> None:
    """Such a file is half as large."""
    network, other = (build(SMALL, np.random.default_rng(seed)) for seed in (1, 2))
    for parameter in network.parameters().values():
        parameter.value = parameter.value.astype(np.float16)
    save(tmp_path / "w.h5", network, WeightsInfo("synthetic", {}, 1, ""))
    load(tmp_path / "w.h5", other)
    for name, parameter in other.parameters().items():
        assert parameter.value.dtype == np.float32
        np.testing.assert_array_equal(parameter.value, network.parameters()[name].value)
