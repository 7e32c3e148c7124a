"""Fashion-MNIST: where it is searched, which files are refused, and how it is resized; the public `load`."""

import gzip
import hashlib
import os
import struct

import numpy as np
import pytest

from mini_dnn import datasets
from mini_dnn.datasets import cifar10, fashion_mnist, idx, synthetic
from mini_dnn.datasets.fashion_mnist import IdxFile, Source
from mini_dnn.errors import DataError, ShapeError, UsageError

NOWHERE = "http://127.0.0.1:9/"  # the discard port: nothing listens there


def idx_bytes(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def md5(content):
    return hashlib.md5(content).hexdigest()


def publish(folder, images, labels, packed=True):
    """Write a tiny data set of one split into a folder, and return the Source that describes it."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, content in (("images", images), ("labels", labels)):
        content = content if isinstance(content, bytes) else idx_bytes(content)
        gz = gzip.compress(content, mtime=0)
        files.append(IdxFile(name, md5(gz), md5(content)))
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gz if packed else content)
    return Source({"test": tuple(files)}, (NOWHERE,))


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch):
    monkeypatch.delenv(fashion_mnist.VARIABLE, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def tiny():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (7, 28, 28), dtype=np.uint8), np.arange(7, dtype=np.uint8)


@pytest.mark.parametrize("packed", [True, False])
def test_named_folder(tmp_path, tiny, packed):
    source = publish(tmp_path / "set", *tiny, packed)
    images, labels, origin = fashion_mnist.load("test", tmp_path / "set", tmp_path / "data", source)
    assert images.shape == (7, 1, 86, 86)
    assert images.dtype == labels.dtype == np.uint8
    assert np.array_equal(labels, tiny[1])
    assert origin == f"data_dir={tmp_path / 'set'}"


def test_images_before_they_were_resized(tmp_path, tiny):
    source = publish(tmp_path / "set", *tiny)
    for named in (tmp_path / "set", None):
        root = tmp_path / "data"
        if named is None:
            publish(root / fashion_mnist.NAME, *tiny)
        small, labels, _ = fashion_mnist.load_published("test", named, root, source)
        np.testing.assert_array_equal(small, tiny[0][:, None])
        np.testing.assert_array_equal(labels, tiny[1])
    with pytest.raises(UsageError, match="drawn at 86×86"):
        datasets.load_small(datasets.ImageSet("synthetic", "test", small, tiny[1], "", ""))


def test_environment_variable_comes_after_the_argument(tmp_path, tiny, monkeypatch):
    source = publish(tmp_path / "set", *tiny)
    monkeypatch.setenv(fashion_mnist.VARIABLE, str(tmp_path / "set"))
    assert fashion_mnist.load("test", None, tmp_path / "data", source)[2].startswith("FASHION_MNIST_DIR=")
    with pytest.raises(DataError, match="there is no folder"):
        fashion_mnist.load("test", tmp_path / "elsewhere", tmp_path / "data", source)


@pytest.mark.parametrize("load", [fashion_mnist.load, fashion_mnist.load_published, cifar10.load])
def test_folders_that_the_system_does_not_find(load, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(DataError, match=f"there is no folder {tmp_path}/home/set"):
        load("test", "~/set", tmp_path)
    with pytest.raises(DataError, match=r"there is no folder|cannot be read: File name too long"):
        load("test", "a" * 300, tmp_path)


def test_own_folder_is_the_last_place(tmp_path, tiny, monkeypatch):
    monkeypatch.setenv(fashion_mnist.VARIABLE, "")  # a variable that is set but empty names no folder
    source = publish(tmp_path / fashion_mnist.NAME, *tiny)
    assert fashion_mnist.load("test", None, tmp_path, source)[2] == "cache"


def test_missing_file_in_a_named_folder(tmp_path, tiny):
    source = publish(tmp_path / fashion_mnist.NAME, *tiny)  # the set is there, but another folder was named
    (tmp_path / "set").mkdir()
    with pytest.raises(
        DataError, match=r"set has neither images\.gz nor images\. .*data_dir=.*put images\.gz"
    ):
        fashion_mnist.load("test", tmp_path / "set", tmp_path, source)


@pytest.mark.parametrize("packed", [True, False])
def test_damaged_file_in_a_named_folder(tmp_path, tiny, packed):
    source = publish(tmp_path / "set", *tiny, packed)
    fashion_mnist.load("test", tmp_path / "set", tmp_path, source)  # a cache must not hide the damage
    path = tmp_path / "set" / ("labels.gz" if packed else "labels")
    path.write_bytes(path.read_bytes()[:-1])
    file = source.splits["test"][1]
    with pytest.raises(DataError) as caught:
        fashion_mnist.load("test", tmp_path / "set", tmp_path, source)
    for part in (str(path), md5(path.read_bytes()), file.packed_md5 if packed else file.unpacked_md5):
        assert part in str(caught.value)


def test_nothing_found_and_no_network(tmp_path, tiny):
    source = publish(tmp_path / "set", *tiny)
    with pytest.raises(DataError) as caught:
        fashion_mnist.load("test", None, tmp_path / "data", source)
    for part in (NOWHERE, "cannot be reached", "images.gz and labels.gz", "FASHION_MNIST_DIR", "synthetic"):
        assert part in str(caught.value)


def test_cache_outlives_its_files_but_not_its_recipe(tmp_path, tiny, monkeypatch):
    source = publish(tmp_path / "set", *tiny)
    first = fashion_mnist.load("test", tmp_path / "set", tmp_path, source)
    second = fashion_mnist.load("test", None, tmp_path, source)
    assert np.array_equal(first[0], second[0])
    assert second[2] == "cache"
    monkeypatch.setattr("PIL.__version__", "0.0")
    with pytest.raises(DataError, match="is not available"):
        fashion_mnist.load("test", None, tmp_path, source)


def test_works_where_nothing_can_be_written(tmp_path, tiny, caplog):
    source = publish(tmp_path / "set", *tiny)
    (tmp_path / "data").write_text("a file where the folder should be")
    images, _, _ = fashion_mnist.load("test", tmp_path / "set", tmp_path / "data", source)
    assert len(images) == 7
    assert "cannot be written" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x08", "too short"),
        (struct.pack(">BBBBI", 0, 0, 8, 1, 0), "too short"),
        (struct.pack(">BBBBIII", 0, 0, 9, 3, 0, 0, 0), "starts with 00 00 09 03"),
        (struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 2, 2) + bytes(7), "should have 24 bytes, but it has 23"),
        (struct.pack(">BBBBIII", 0, 0, 8, 3, 2, 2, 2) + bytes(9), "should have 24 bytes, but it has 25"),
        (struct.pack(">BBBBIII", 0, 0, 8, 3, *3 * (2**32 - 1,)), "should have 792281624"),
    ],
)
def test_idx_refuses(content, message):
    with pytest.raises(DataError, match=f"^some file: .*{message}"):
        idx.parse(content, 3, "some file")


def test_idx_keeps_the_order_of_axes():
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    assert np.array_equal(idx.parse(idx_bytes(array), 3, "some file"), array)


@pytest.mark.parametrize(
    ("labels", "message"),
    [(np.arange(6), "has 7 images, but labels has 6 labels"), (np.arange(7) + 4, "label 10; expected 0…9")],
)
def test_labels_must_fit(tmp_path, tiny, labels, message):
    source = publish(tmp_path / "set", tiny[0], labels.astype(np.uint8))
    with pytest.raises(DataError, match=message):
        fashion_mnist.load("test", tmp_path / "set", tmp_path, source)


def test_resize_is_bilinear_with_half_pixel_centres(tmp_path, tiny):
    source = publish(tmp_path / "set", *tiny)
    images, _, _ = fashion_mnist.load("test", tmp_path / "set", tmp_path, source)
    at = np.clip((np.arange(86) + 0.5) * 28 / 86 - 0.5, 0, 27)  # position of an output pixel, in input pixels
    low = np.minimum(at.astype(int), 26)
    weights = np.zeros((86, 28))
    weights[np.arange(86), low] = 1 - (at - low)
    weights[np.arange(86), low + 1] = at - low
    expected = np.einsum("pi,nij,qj->npq", weights, tiny[0], weights)
    assert np.abs(images[:, 0] - expected).max() <= 1.01  # rounded twice, once per axis


def test_to_float():
    x = datasets.to_float(np.array([0, 51, 255], np.uint8))
    assert x.dtype == np.float32
    assert x.tolist() == [0.0, np.float32(0.2), 1.0]
    with pytest.raises(ShapeError, match="uint8"):
        datasets.to_float(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mnist",), "no data set 'mnist'; choose one of auto, fashion-mnist, synthetic"),
        (("synthetic", "dev"), "no split 'dev'; choose one of train, test"),
        (("synthetic", "test", "somewhere"), "data_dir=somewhere"),
    ],
)
def test_load_refuses(arguments, message):
    with pytest.raises(UsageError, match=message):
        datasets.load(*arguments)


@pytest.mark.parametrize("name", ["auto", "fashion-mnist"])
def test_a_damaged_named_folder_is_never_passed_over(tmp_path, name):
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(b"damaged")
    with pytest.raises(DataError, match="bef4ecab320f06d8554ea6380940ec79"):
        datasets.load(name, "test", tmp_path)


def test_auto_says_why_it_took_the_substitute(monkeypatch):
    def unavailable(split, data_dir):
        raise DataError("no network")

    monkeypatch.setattr(fashion_mnist, "load", unavailable)
    monkeypatch.setattr(synthetic, "load", lambda split: (*datasets.draw(3, 0, split), "drawn from seed 0"))
    found = datasets.load("auto", "train")
    assert (found.name, found.split, found.origin) == ("synthetic", "train", "drawn from seed 0")
    assert found.note == datasets.SUBSTITUTED
    assert datasets.load("synthetic").note == ""
    with pytest.raises(DataError, match="no network"):
        datasets.load("fashion-mnist")


REAL = os.environ.get(fashion_mnist.VARIABLE)


@pytest.mark.skipif(not REAL, reason="FASHION_MNIST_DIR is not set")
def test_the_published_files(tmp_path):
    images, labels, _ = fashion_mnist.load("test", REAL, tmp_path)
    assert images.shape == (10_000, 1, 86, 86)
    assert np.bincount(labels).tolist() == [1000] * 10
    assert labels[:4].tolist() == [9, 2, 1, 1]
    assert images[:, 0, 0, 0].mean() < 1  # the background is black
    assert 60 < images.mean() < 85
