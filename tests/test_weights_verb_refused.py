"""State dicts, files and flags that ``run.py weights`` refuses, with messages that name what is wrong."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
from state_dict_samples import SIZES, Arrays, convert, state
from state_dict_samples import source as source

from mini_dnn.cli import main
from mini_dnn.errors import WeightsError
from mini_dnn.nn import state_dicts
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.models.resnet_arrays import sizes_of
from mini_dnn.nn.weights import load, save
from mini_dnn.nn.zoo import MODELS


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


def test_a_network_of_another_depth_is_reported(tmp_path: Path) -> None:
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
def test_files_that_are_no_state_dicts(
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
        (["fetch", "out.h5", "--image", "64"], "--image has no effect here: it is for 'convert'"),
        (["show", "in.safetensors", "--data", "x"], "--data has no effect here: it is for 'convert'"),
        (["show", "in.safetensors"], "it has no 'format'; 'run.py weights convert' converts state dicts"),
    ],
)
def test_flags_that_make_no_sense_are_refused(
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
    huge = ResNetSizes(8, 1, "small", (4, 4, 6, 800), classes=5)  # is refused before it is built
    save(file, network, replace(info, description=huge.to_json()))
    with pytest.raises(WeightsError, match=r"it contains [\d,]+ numbers, and the network that it describes"):
        MODELS["resnet18"].read(file)
