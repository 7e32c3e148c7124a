"""Weights in HDF5, NPZ and safetensors: they are read back unchanged, and nothing is unpickled."""

import io
import pickle
import struct
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy

from mini_dnn.errors import UsageError, WeightsError
from mini_dnn.nn import stores
from mini_dnn.nn.files import describe, read_arrays, write_arrays
from mini_dnn.nn.layers import Flatten, Linear, Softmax
from mini_dnn.nn.network import Network
from mini_dnn.nn.weights import WeightsInfo, is_ours, load, save

SUFFIXES = (".h5", ".hdf5", ".npz", ".safetensors")
INFO = WeightsInfo("synthetic", {100: 0.75}, 3, "python run.py", "none", description='{"a": "ß"}')
suffixes = pytest.mark.parametrize("suffix", SUFFIXES)


def test_without_the_library_only_its_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "w.safetensors", small(1), INFO)
    monkeypatch.setitem(sys.modules, "safetensors.numpy", None)
    for suffix in (".h5", ".npz"):
        save(tmp_path / f"w{suffix}", small(1), INFO)
        load(tmp_path / f"w{suffix}", small(2))
    for use in (lambda path: load(path, small(1)), describe, lambda path: save(path, small(1), INFO)):
        with pytest.raises(UsageError, match="pip install safetensors"):
            use(tmp_path / "w.safetensors")
    assert len(list(tmp_path.iterdir())) == 3


def small(seed: int) -> Network:
    layers = {"flat": Flatten(), "fc": Linear(3, 2, np.random.default_rng(seed)), "p": Softmax()}
    return Network(layers)


def bits(network: Network) -> dict[str, bytes]:
    return {name: parameter.value.tobytes() for name, parameter in network.parameters().items()}


class Harmful:
    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return pytest.fail, ("it was unpickled",)


@suffixes
def test_what_is_saved_comes_back(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    save(path, small(1), INFO)
    network = small(2)
    info = load(path, network)
    assert bits(network) == bits(small(1))
    assert replace(info, created_with="", architecture="", checksum="") == INFO
    said = describe(path)
    assert (said["numbers"], said["description"], said["kind"]) == (8, INFO.description, "weights")
    assert is_ours(path)
    steps = {"steps": np.array(3)}  # a checkpoint has an array without axes
    write_arrays(path, "checkpoint", "", steps, {})
    assert read_arrays(path, "checkpoint", "", steps)[0] == steps
    assert list(tmp_path.iterdir()) == [path]


def test_other_tools_read_the_files(tmp_path: Path) -> None:
    for suffix in (".npz", ".safetensors"):
        save(tmp_path / f"w{suffix}", small(1), INFO)
    wanted = {name: parameter.value for name, parameter in small(1).parameters().items()}
    loaded = safetensors.numpy.load_file(tmp_path / "w.safetensors")
    with np.load(tmp_path / "w.npz", allow_pickle=False) as archive:
        for name, value in wanted.items():
            np.testing.assert_array_equal(loaded[name], value)
            np.testing.assert_array_equal(archive[name], value)
    assert set(loaded) == set(wanted)


def test_npz_files_have_only_our_arrays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Older versions of NumPy store each argument by name as an array, including options of newer ones."""
    given: dict[str, object] = {}
    monkeypatch.setattr(np, "savez", lambda file, **arguments: given.update(arguments))
    save(tmp_path / "w.npz", small(1), INFO)
    assert set(given) == {*small(1).parameters(), stores.ATTRIBUTES}


@suffixes
def test_a_file_cut_short_anywhere_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    save(path, small(1), INFO)
    whole = path.read_bytes()
    for length in range(0, len(whole), 61):
        path.write_bytes(whole[:length])
        network = small(2)
        with pytest.raises(WeightsError, match=r"truncated or damaged"):
            load(path, network)
        with pytest.raises(WeightsError, match=r"truncated or damaged"):
            describe(path)
        assert bits(network) == bits(small(2))


@pytest.mark.parametrize(("suffix", "step"), [(".h5", 31), (".npz", 11), (".safetensors", 5)])
def test_a_damaged_byte_is_refused_or_harmless(suffix: str, step: int, tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    save(path, small(1), INFO)
    whole = path.read_bytes()
    info, refusals = load(path, small(2)), 0
    for i in range(0, len(whole), step):
        path.write_bytes(whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :])
        network = small(2)
        try:
            assert load(path, network) == info  # an unused byte
            assert bits(network) == bits(small(1))
        except WeightsError:
            refusals += 1
            assert bits(network) == bits(small(2))
    assert refusals > 50


def npz(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/") + ".npy", content)
    return path


def npy(array: np.ndarray, **more: bool) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **more)
    return file.getvalue()


def with_header(text: str) -> bytes:
    """An array of NumPy's format with any text as its header."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode()


def refused(path: Path, message: str) -> None:
    with pytest.raises(WeightsError, match=message):
        describe(path)
    with pytest.raises(WeightsError, match="cannot use"):
        load(path, small(1))


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    words = r"weights_only=True\), 'w.safetensors'\)"
    objects = npy(np.array([Harmful()], object), allow_pickle=True)
    for name, content in (("w.pth", pickle.dumps(Harmful())), ("w.h5", pickle.dumps(Harmful(), 2))):
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name, words)
    refused(npz(tmp_path / "w.npz", a=objects), words)
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as archive:  # the format of PyTorch's files
        archive.writestr("w/data.pkl", pickle.dumps(Harmful()))
    refused(tmp_path / "w.pt", words)


def test_a_file_cannot_ask_for_any_memory(tmp_path: Path) -> None:
    """The sizes in its headers may be wrong."""
    huge = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40,)}
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, huge)  # type: ignore[arg-type]
    refused(
        npz(tmp_path / "w.npz", a=header.getvalue()), r"'a' is \(1099511627776,\) float32, but has 0 bytes"
    )
    text = b'{"a":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}}'
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(text)) + text)
    refused(tmp_path / "w.safetensors", "truncated or damaged")
    np.savez_compressed(tmp_path / "b.npz", a=np.zeros(1_000_000))
    refused(tmp_path / "b.npz", r"its arrays take 8,000,128 bytes, and [\d,]+ in the file")
    with zipfile.ZipFile(tmp_path / "c.npz", "w") as archive:
        archive.writestr("readme.txt", "x")
    refused(tmp_path / "c.npz", r"it is not an NPZ file: it contains 'readme\.txt'")


def test_a_header_with_an_open_bracket_is_damaged(tmp_path: Path) -> None:
    refused(npz(tmp_path / "w.npz", a=with_header("{'descr': ('<f4'\n")), "truncated or damaged")


def test_arrays_in_other_orders_and_types(tmp_path: Path) -> None:
    """Column-major arrays, halves and bfloat16 become float32."""
    weight = np.asfortranarray(np.arange(6, dtype=np.float16).reshape(2, 3))
    np.savez(tmp_path / "w.npz", **{"fc.weight": weight})
    with stores.opened(tmp_path / "w.npz") as store:
        assert store.arrays() == {"fc.weight": ((2, 3), np.dtype(np.float16))}
        np.testing.assert_array_equal(store.read("fc.weight"), weight)
        with pytest.raises(KeyError, match="is missing"):
            store.read("fc.bias")
        assert store.attributes == {}
    bfloats = {"a.b": np.ones(3, ml_dtypes.bfloat16)}
    safetensors.numpy.save_file(bfloats, tmp_path / "w.safetensors")
    with stores.opened(tmp_path / "w.safetensors") as store:
        ((shape, dtype),) = store.arrays().values()
        assert shape == (3,)
        assert stores.exact(dtype, np.dtype(np.float32))
        np.testing.assert_array_equal(store.read("a.b").astype(np.float32), [1, 1, 1])
    for kind, is_exact in (("float64", False), ("int64", False), ("float16", True), ("float32", True)):
        assert stores.exact(np.dtype(kind), np.dtype(np.float32)) == is_exact
