"""State dicts of torchvision and timm: conversion and downloads."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import safetensors.numpy
from state_dict_samples import SIZES, Arrays, convert, state
from state_dict_samples import source as source

from mini_dnn.cli import main
from mini_dnn.errors import DataError
from mini_dnn.nn import state_dicts, stores
from mini_dnn.nn.files import describe
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.zoo import MODELS


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
