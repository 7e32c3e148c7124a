"""Weights files: saved numbers are read back bit for bit, and no damaged file is accepted."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest

from mini_dnn.datasets import draw
from mini_dnn.errors import WeightsError
from mini_dnn.nn import files, weights
from mini_dnn.nn.layers import Flatten, Linear, Softmax
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.nn.train import predict
from mini_dnn.nn.weights import WeightsInfo, load, save
from mini_dnn.nn.zoo import MODELS

INFO = WeightsInfo("fashion-mnist", {100: 0.92, 1000: np.float64(0.911)}, 3, "python run.py train --seed 3")


def lenet_of(seed: int) -> Network:
    return lenet.build(np.random.default_rng(seed))


def small(seed: int, dtype: type = np.float32) -> Network:
    """A network with few numbers, so that each byte of its file can be damaged in turn."""
    return Network(
        {"flat": Flatten(), "fc": Linear(3, 2, np.random.default_rng(seed), dtype), "p": Softmax()}
    )


def bits(network: Network) -> dict[str, bytes]:
    return {name: parameter.value.tobytes() for name, parameter in network.parameters().items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A valid file of LeNet from seed 1."""
    save(tmp_path / "w.h5", lenet_of(1), INFO)
    return tmp_path / "w.h5"


def refused(path: Path, message: str) -> None:
    """Loading reports the reason and the next step, and does not change the network."""
    network = lenet_of(2)
    with pytest.raises(WeightsError, match=message) as caught:
        load(path, network)
    assert str(path) in str(caught.value)
    assert "Next: " in str(caught.value)
    assert bits(network) == bits(lenet_of(2))


def test_what_is_saved_comes_back_bit_for_bit(path: Path) -> None:
    network = lenet_of(2)
    info = load(path, network)
    assert bits(network) == bits(lenet_of(1))
    stated = replace(info, created_with="", architecture="", checksum="")
    assert stated == INFO
    assert info.architecture == network.architecture
    assert len(info.checksum) == 64
    assert f"NumPy {np.__version__}" in info.created_with
    assert info.preprocessing == "uint8 / 255, bilinear 28 -> 86 (Pillow)"
    assert path.stat().st_size < 300_000


def test_other_tools_find_the_parameters_and_attributes(path: Path) -> None:
    with h5py.File(path) as file:
        assert file["conv1/weight"].shape == (4, 1, 7, 7)
        assert file["fc2/bias"].dtype == np.float32
        assert file.attrs["accuracy_100"] == 0.92
        assert file.attrs["command"].decode() == INFO.command


def test_float32_weights_fill_a_float64_network_exactly(path: Path) -> None:
    network = lenet.build(np.random.default_rng(2), np.float64)
    load(path, network)
    wanted = lenet_of(1).parameters()
    for name, parameter in network.parameters().items():
        assert parameter.value.dtype == np.float64
        np.testing.assert_array_equal(parameter.value, wanted[name].value)


def test_float64_weights_are_not_rounded_silently(tmp_path: Path) -> None:
    save(tmp_path / "w.h5", lenet.build(np.random.default_rng(1), np.float64), INFO)
    refused(tmp_path / "w.h5", r"'conv1.weight' is .* float64; the network has .* float32")


def test_a_missing_file(tmp_path: Path) -> None:
    refused(tmp_path / "none.h5", r"no such file.*run.py train")


def test_a_folder(tmp_path: Path) -> None:
    refused(tmp_path, "it is a folder; expected a file")


def test_a_file_that_is_not_hdf5(path: Path) -> None:
    path.write_text("conv1 0.1 0.2")
    refused(path, "not a valid HDF5 file")


def test_a_file_of_another_network(tmp_path: Path) -> None:
    save(tmp_path / "w.h5", small(0), INFO)
    refused(
        tmp_path / "w.h5",
        r"another network: layer 1 is flat Flatten; expected conv1 Conv2d\(1 -> 4, 7x7\)\. Next",
    )


def test_an_hdf5_file_of_something_else(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["images"] = np.zeros(3)
    refused(tmp_path / "w.h5", "not a file of kind 'weights', format 1: found 'None'")


def test_a_checkpoint_is_no_weights_file(tmp_path: Path) -> None:
    network = lenet_of(1)
    files.write_arrays(tmp_path / "c.h5", "checkpoint", network.architecture, weights.values(network), {})
    refused(tmp_path / "c.h5", "found 'checkpoint'")


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    network = lenet_of(1)
    network.parameters()["conv2.weight"].value[0, 1, 2, 3] = np.nan
    save(tmp_path / "w.h5", network, INFO)
    refused(tmp_path / "w.h5", "'conv2.weight' has NaN or infinite values: 1 of 3,136")


def test_a_file_without_the_attributes_of_weights(tmp_path: Path) -> None:
    network = lenet_of(1)
    files.write_arrays(tmp_path / "w.h5", "weights", network.architecture, weights.values(network), {})
    with pytest.raises(WeightsError, match=r"an attribute is missing.*dataset"):
        load(tmp_path / "w.h5", lenet_of(2))


def drop(file: h5py.File) -> None:
    del file["fc1/bias"]


def reshape(file: h5py.File) -> None:
    value = file["fc1/bias"][...]
    del file["fc1/bias"]
    file["fc1/bias"] = value[:-1]


def turn_into_group(file: h5py.File) -> None:
    del file["fc1/bias"]
    file.create_group("fc1/bias")


def change(file: h5py.File) -> None:
    file["conv2/weight"][0, 1, 2, 3] += 1e-6


def swap(file: h5py.File) -> None:
    value = file["fc1/weight"][...]
    file["fc1/weight"][...] = value[::-1]


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (drop, "'fc1.bias' is missing"),
        (turn_into_group, "'fc1.bias' is missing"),
        (reshape, r"'fc1.bias' is \(31,\) float32; the network has \(32,\) float32"),
        (change, "checksum"),
        (swap, "checksum"),
        (lambda file: file.attrs.pop("checksum"), "checksum"),
        (lambda file: file.attrs.pop("architecture"), "another network: layer 1 is None"),
        (lambda file: file.attrs.pop("dataset"), "checksum"),
        (lambda file: file.attrs.__setitem__("accuracy_100", 0.99), "checksum"),
        (lambda file: file.attrs.__setitem__("format", 2), "format 1: found 'weights', 2"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_is_wrong_is_named(path: Path, harm: object, message: str) -> None:
    with h5py.File(path, "r+") as file:
        harm(file)  # type: ignore[operator]
    network = lenet_of(2)
    with pytest.raises(WeightsError, match=message):
        load(path, network)


def test_a_write_that_fails_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    message = (
        r"No space left on device; the older file is unchanged\. Next: free some space on that disk, or "
    )
    with pytest.raises(WeightsError, match=message):
        save(path, lenet_of(2), INFO)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("suffix", [".h5", ".npz", ".safetensors"])
def test_a_write_that_fails_in_the_middle_is_one_error(tmp_path: Path, suffix: str) -> None:
    """HDF5 would print an error for each array that it has in memory, and crash when the process ends."""
    if suffix == ".safetensors":
        pytest.importorskip("safetensors")
    code = (
        "import resource, sys\nfrom pathlib import Path\nimport numpy as np\n"
        "from mini_dnn.errors import WeightsError\nfrom mini_dnn.nn.files import write_arrays\n"
        "arrays = {f'l{i}/a': np.full(700, i, np.float32) for i in range(40)}\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))\n"
        "try:\n    write_arrays(Path(sys.argv[1]), 'weights', 'a', arrays, {})\n"
        "except WeightsError as error:\n    print(error)\n"
    )
    path = tmp_path / f"w{suffix}"
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    why = "File too large; no file was written. Next: name another folder"
    assert done.stdout == f"cannot write the weights to {path}: {why}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsError, match=r"to .*file/w\.h5: a file is where a folder is needed"):
        save(tmp_path / "file" / "w.h5", lenet_of(1), INFO)


@pytest.mark.parametrize(
    ("network", "dataset", "least", "most_bytes"),
    [
        ("lenet", "fashion-mnist", 0.91, 300_000),
        ("lenet", "synthetic", 0.95, 300_000),
        ("resnet18", "fashion-mnist", 0.92, 1_000_000),
        ("vit", "fashion-mnist", 0.89, 4_000_000),
    ],
)
def test_the_shipped_weights_are_good_and_small(
    network: str, dataset: str, least: float, most_bytes: int, rng: np.random.Generator
) -> None:
    path = MODELS[network].weights(dataset)
    if not path.is_file():
        pytest.skip(f"no weights of {network} are shipped")
    info = load(path, MODELS[network].make(dataset, rng))
    assert info.dataset == dataset
    assert sorted(info.accuracies) == [100, 1000, 10000]
    assert info.accuracies[10000] >= least
    flags = "" if network == "lenet" else f"--network {network} "
    assert info.command.startswith(f"python run.py train {flags}--data {dataset} ")
    assert path.stat().st_size < most_bytes


def test_the_shipped_weights_reach_the_accuracy_they_state() -> None:
    network = lenet_of(0)
    info = load(lenet.default_weights("synthetic"), network)
    images, labels = draw(100)
    assert (predict(network, images) == labels).mean() == pytest.approx(info.accuracies[100])


def test_a_file_that_may_not_be_read_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "w.h5").write_bytes(b"x")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(files.stores, "opened", refuse)
    with pytest.raises(WeightsError, match="you may not read it; change its permissions"):
        load(tmp_path / "w.h5", lenet.build(np.random.default_rng(0)))
