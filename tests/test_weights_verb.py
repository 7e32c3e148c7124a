"""State dicts of torchvision and timm: conversion, messages that name the wrong array, and downloads."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import safetensors.numpy

from mini_dnn.cli import main
from mini_dnn.errors import DataError, WeightsError
from mini_dnn.nn import state_dicts, stores
from mini_dnn.nn.files import describe
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.models.resnet_arrays import sizes_of
from mini_dnn.nn.weights import load
from mini_dnn.nn.zoo import MODELS

SIZES = ResNetSizes(32, 3, "small", (4, 4, 6, 8), (2, 2, 2, 2), 5)
Arrays = dict[str, np.ndarray]


def state() -> Arrays:
    """A state dict in the format of `torch.nn.Module.state_dict`, with counters of batches."""
    random = np.random.default_rng(3)
    found: Arrays = {}
    for name, shape in SIZES.shapes.items():
        found[name] = random.uniform(0.1, 1, shape).astype(np.float32)
        if name.endswith("running_var"):
            found[name.replace("running_var", "num_batches_tracked")] = np.array(7)
    return found


@pytest.fixture
def source(tmp_path: Path) -> Path:
    safetensors.numpy.save_file(state(), tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors"


def convert(source: Path, out: str = "out.h5", *more: str) -> int:
    return main(["weights", "convert", str(source), str(source.parent / out), "--image", "32", *more])


@pytest.mark.parametrize("out", ["out.h5", "out.npz", "out.safetensors"])
def test_a_state_dict_is_converted(source: Path, out: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert convert(source, out) == 0
    assert "3 channels, images of 32×32, stages of 4, 4, 6, 8, 5 classes" in capsys.readouterr().out
    network, info = MODELS["resnet18"].read(source.parent / out)
    wanted = state()
    for name, parameter in network.parameters().items():
        np.testing.assert_array_equal(parameter.value, wanted[name])
    assert ResNetSizes.from_json(info.description) == SIZES
    assert info.dataset == "unknown"
    assert info.command.startswith("python run.py weights convert ")
    assert info.command.endswith(f"{out} --network resnet18 --image 32")
    assert sorted(path.name for path in source.parent.iterdir()) == ["in.safetensors", out]
    assert main(["weights", "show", str(source.parent / out)]) == 0
    assert "numbers         " in capsys.readouterr().out


def wrapped(name: str) -> Callable[[Arrays], Arrays]:
    return lambda arrays: {f"{name}{key}": array for key, array in arrays.items()}


@pytest.mark.parametrize(
    "change",
    [
        wrapped("module."),
        wrapped("state_dict.model."),
        lambda arrays: {k: a.astype(np.float16) if a.ndim else a for k, a in arrays.items()},
        lambda arrays: {k: a for k, a in arrays.items() if a.ndim},  # no counters
    ],
    ids=["module", "two wrappers", "halves", "no counters"],
)
def test_state_dicts_as_programs_write_them(change: Callable[[Arrays], Arrays], tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", **change(state()))  # type: ignore[arg-type]
    found = state_dicts.read(tmp_path / "in.npz", "resnet18", 32)
    assert found.sizes == SIZES
    for name, array in found.arrays.items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, state()[name], rtol=1e-3)


def test_a_state_dict_in_hdf5_with_dots_in_its_names(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "in.h5", "w") as file:
        for name, array in state().items():
            file[name] = array
    found = state_dicts.read(tmp_path / "in.h5", "resnet18", 32)
    np.testing.assert_array_equal(found.arrays["fc.bias"], state()["fc.bias"])


def test_a_description_says_what_arrays_do_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = replace(SIZES, strides=(1, 1, 2, 1), blocks=(1, 1, 2, 1))
    arrays = {name: np.ones(shape, np.float32) for name, shape in sizes.shapes.items()}
    safetensors.numpy.save_file(arrays, tmp_path / "in.safetensors")
    (tmp_path / "d.json").write_text(sizes.to_json())
    assert convert(tmp_path / "in.safetensors", "out.h5", "--description", str(tmp_path / "d.json")) == 0
    assert ResNetSizes.from_json(str(describe(tmp_path / "out.h5")["description"])) == sizes
    assert f"network   {sizes.title}: 3 channels" in capsys.readouterr().out
    (tmp_path / "d.json").write_text(replace(sizes, classes=6).to_json())
    more = ("--force", "--description", str(tmp_path / "d.json"))
    assert convert(tmp_path / "in.safetensors", "out.h5", *more) == 2
    assert "'fc.weight' is (5, 8), and (6, 8) is expected" in capsys.readouterr().err
    assert convert(tmp_path / "in.safetensors", "out.h5", *more, "--image", "64") == 2
    assert f"--image 64: {tmp_path / 'd.json'} states 32; remove --image" in capsys.readouterr().err


def put(name: str, value: Any) -> Callable[[Arrays], None]:
    return lambda arrays: arrays.__setitem__(name, value)


def drop(*names: str) -> Callable[[Arrays], None]:
    return lambda arrays: [arrays.pop(name) for name in names] and None


def spoil(name: str, value: float) -> Callable[[Arrays], None]:
    return lambda arrays: arrays[name].flat.__setitem__(1, value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("layer2.0.bn1.bias", "fc.bias"), "missing: 'layer2.0.bn1.bias', 'fc.bias'"),
        (put("layer1.0.conv3.weight", np.zeros((1, 1, 1, 1), np.float32)), "'layer1.0.conv3.weight'"),
        (put("fc.bias", np.zeros(7, np.float32)), r"'fc.bias' is \(7,\), and \(5,\) is expected"),
        (put("fc.bias", np.zeros(5)), "'fc.bias' is float64, which float32 does not hold exactly"),
        (put("fc.bias", np.zeros(5, np.int64)), "'fc.bias' is int64, which"),
        (
            drop("conv1.weight"),
            "'conv1.weight' is missing: this is not a residual network.*found: 'bn1.bias'",
        ),
        (spoil("bn1.weight", np.nan), "'bn1.weight' has NaN or infinite values: 1 of "),
        (spoil("fc.weight", -np.inf), "'fc.weight' has NaN or infinite values: 1 of "),
        (spoil("bn1.running_var", -1), "'bn1.running_var' has a negative variance"),
        (
            drop(*(name for name in state() if name.startswith("layer4.1"))),
            r"it has 2 \+ 2 \+ 2 \+ 1 blocks in its stages, and resnet18 has 2 \+ 2 \+ 2 \+ 2",
        ),
        (
            drop(*(name for name in SIZES.shapes if name.startswith("layer1.0.") and "conv1" not in name)),
            "missing: 'layer1.0.bn1.weight'.* and 3 more",
        ),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    change: Callable[[Arrays], None], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrays = state()
    change(arrays)
    safetensors.numpy.save_file(arrays, tmp_path / "in.safetensors")
    with pytest.raises(WeightsError, match=message):
        state_dicts.read(tmp_path / "in.safetensors", "resnet18", 32)
    assert convert(tmp_path / "in.safetensors") == 2
    said = capsys.readouterr().err
    assert "cannot convert" in said
    assert "Next: " in said
    assert [path.name for path in tmp_path.iterdir()] == ["in.safetensors"]


def test_a_network_of_another_depth_is_told(tmp_path: Path) -> None:
    sizes = ResNetSizes(32, 3, "small", (2, 2, 2, 2), (3, 4, 6, 3), 5)
    arrays = {name: np.ones(shape, np.float32) for name, shape in sizes.shapes.items()}
    safetensors.numpy.save_file(arrays, tmp_path / "in.safetensors")
    with pytest.raises(WeightsError, match=r"resnet18 has 2 \+ 2 \+ 2 \+ 2; it fits --network resnet34"):
        state_dicts.read(tmp_path / "in.safetensors", "resnet18")
    assert state_dicts.read(tmp_path / "in.safetensors", "resnet34").sizes == sizes_of(sizes.shapes)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("in.safetensors", None, "there is no such file"),
        ("in.safetensors", b"", "it is not a valid safetensors file; it may be truncated or damaged"),
        ("in.npz", b"PK\x03\x04", "it is not a valid NPZ file; it may be truncated"),
        ("in.bin", b"weights", "it is not a valid safetensors, NPZ or HDF5 file"),
        ("in.pth", b"\x80\x02}q\x00.", "it is pickled, as PyTorch writes .pth files"),
    ],
)
def test_files_that_are_none(
    name: str, content: bytes | None, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert convert(tmp_path / name) == 2
    assert message in capsys.readouterr().err


def test_a_state_dict_cut_short_is_named(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = source.read_bytes()
    for length in (100, len(whole) // 2, len(whole) - 1):
        source.write_bytes(whole[:length])
        assert convert(source) == 2
        said = capsys.readouterr().err
        assert str(source) in said
        assert "truncated or damaged" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["convert", "in.safetensors"], "expects IN OUT; found 1 files"),
        (["show"], "expects FILE; found 0 files"),
        (["convert", "in.safetensors", "out.pth"], "ends in .h5, .hdf5, .npz, .safetensors"),
        (["convert", "in.safetensors", "in.safetensors"], "name another file for the result"),
        (["convert", "in.safetensors", "none/out.h5"], "there is no folder"),
        (["convert", "in.safetensors", "old.h5"], "old.h5 already exists"),
        (["convert", "in.safetensors", "out.h5", "--image", "0"], "--image 0"),
        (
            ["fetch", "out.h5", "--image", "64"],
            "--image has no effect here: it is for 'convert'",
        ),
        (["show", "in.safetensors", "--data", "x"], "--data has no effect here: it is for 'convert'"),
        (
            ["show", "in.safetensors"],
            "it has no 'format'; 'run.py weights convert' converts state dicts",
        ),
    ],
)
def test_flags_without_sense_are_refused(
    source: Path,
    words: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(source.parent)
    Path("old.h5").write_text("precious")
    assert main(["weights", *words]) == 2
    assert message in capsys.readouterr().err
    assert Path("old.h5").read_text() == "precious"
    assert sorted(path.name for path in Path().iterdir()) == ["in.safetensors", "old.h5"]


def test_force_replaces_what_is_there(source: Path) -> None:
    (source.parent / "out.h5").write_text("old")
    assert convert(source, "out.h5", "--force", "--data", "cifar10") == 0
    assert describe(source.parent / "out.h5")["dataset"] == "cifar10"


def test_our_own_files_keep_what_they_say(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A conversion to another kind of file and back."""
    assert convert(source, "a.h5", "--data", "mine") == 0
    folder = source.parent
    for old, new in (("a.h5", "b.npz"), ("b.npz", "c.safetensors"), ("c.safetensors", "d.h5")):
        words = ["weights", "convert", str(folder / old), str(folder / new)]
        assert main([*words, "--image", "64"]) == 2
        assert f"--image has no effect here: {folder / old} says this itself" in capsys.readouterr().err
        assert main(words) == 0
    first, last = (describe(folder / name) for name in ("a.h5", "d.h5"))
    assert first == last
    with stores.opened(folder / "c.safetensors") as store:
        assert set(store.arrays()) == set(SIZES.shapes)


@pytest.mark.parametrize("network", ["lenet", "vit"])
def test_our_own_files_of_other_networks_are_refused(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = MODELS[network].weights("fashion-mnist")
    assert main(["weights", "convert", str(source), str(tmp_path / "out.npz")]) == 2
    assert "only those can be converted; other networks are read from" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_description_of_another_network_is_refused(source: Path) -> None:
    """The description of the network must match the arrays."""
    assert convert(source) == 0
    file = source.parent / "out.h5"
    network, info = MODELS["resnet18"].read(file)
    with pytest.raises(
        WeightsError, match=r"it is for another network: layer 14 is fc Linear\(8 -> 5\); expected fc"
    ):
        load(
            file, resnet.build(ResNetSizes(32, 3, "small", (4, 4, 6, 8), classes=6), np.random.default_rng(0))
        )
    assert network.architecture == info.architecture


@contextmanager
def given(folder: Path, wanted: Mapping[str, str]) -> Iterator[tuple[Path, str]]:
    assert wanted == {"model.safetensors": f"sha256:{state_dicts.PUBLISHED['resnet18'].sha256}"}
    yield folder, "a mirror"


def test_published_weights_are_fetched_and_converted(
    source: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source.rename(source.parent / "model.safetensors")
    monkeypatch.setattr(state_dicts, "download", lambda wanted, *_: given(source.parent, wanted))
    out = source.parent / "out.h5"
    assert main(["weights", "fetch", str(out)]) == 0
    info = describe(out)
    assert info["dataset"] == "imagenet"
    assert "centre" not in str(info["preprocessing"])
    assert "224×224" in str(info["preprocessing"])
    assert "1,000" not in capsys.readouterr().out  # the number of ImageNet's classes does not apply here


def test_without_a_network_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise DataError("cannot be reached")

    monkeypatch.setattr(state_dicts, "download", refuse)
    assert main(["weights", "fetch", str(tmp_path / "out.h5")]) == 2
    said = capsys.readouterr().err
    published = state_dicts.PUBLISHED["resnet18"]
    assert published.folder + published.name in said
    assert published.sha256 in said
    assert "run.py weights convert model.safetensors resnet18-imagenet.h5" in said
    assert main(["weights", "fetch", str(tmp_path / "out.h5"), "--network", "resnet34"]) == 2
    assert "no address of weights of resnet34 is known" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
