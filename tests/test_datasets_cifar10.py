"""CIFAR-10 from tiny files in its format: where it is searched, and which files are refused."""

import hashlib
import io
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mini_dnn import datasets
from mini_dnn.datasets import cifar10
from mini_dnn.datasets.cifar10 import RECORD, Source
from mini_dnn.errors import DataError, UsageError

NOWHERE = "http://127.0.0.1:9/"  # the discard port: nothing listens there
FILES = ("one.bin", "two.bin")


@pytest.fixture(autouse=True)
def nothing_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(cifar10.VARIABLE, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")


def records(seed: int) -> np.ndarray:
    """Three images in the format of a file."""
    found = np.random.default_rng(seed).integers(0, 256, (3, RECORD), np.uint8)
    found[:, 0] = (seed, 9, 0)
    return found


def publish(folder: Path, contents: dict[str, bytes] | None = None) -> Source:
    """Write an archive of two files into a folder, and return the Source that describes it."""
    folder.mkdir(parents=True, exist_ok=True)
    contents = contents or {name: records(i).tobytes() for i, name in enumerate(FILES)}
    with tarfile.open(folder / "tiny.tar.gz", "w:gz") as archive:
        for name, content in contents.items():
            info = tarfile.TarInfo(f"bin/{name}")
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    md5 = hashlib.md5((folder / "tiny.tar.gz").read_bytes()).hexdigest()
    return Source("tiny.tar.gz", md5, "bin", {"train": FILES, "test": FILES[1:]}, 3, (NOWHERE,))


def test_the_format(tmp_path: Path) -> None:
    source = publish(tmp_path)
    images, labels, origin = cifar10.load("train", tmp_path, tmp_path / "data", source)
    assert (images.shape, images.dtype) == ((6, 3, 32, 32), np.uint8)
    np.testing.assert_array_equal(labels, [0, 9, 0, 1, 9, 0])
    assert origin == f"data_dir={tmp_path}"
    record = records(1)[2]  # label, then 1,024 bytes of each colour, line by line
    assert images[5, 1, 3, 4] == record[1 + 1024 + 3 * 32 + 4]
    assert cifar10.load("test", tmp_path, tmp_path, source)[0].shape == (3, 3, 32, 32)


@pytest.mark.parametrize("inside", ["", "bin"])
def test_files_that_were_unpacked(tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = publish(tmp_path / "published")
    folder = tmp_path / "set" / inside
    folder.mkdir(parents=True)
    for i, name in enumerate(FILES):
        (folder / name).write_bytes(records(i).tobytes())
    monkeypatch.setenv("CIFAR10_DIR", str(tmp_path / "set"))
    _, labels, origin = cifar10.load("train", None, tmp_path / "data", source)
    assert len(labels) == 6
    assert origin == f"CIFAR10_DIR={tmp_path / 'set'}"


def test_the_cache_is_used_and_what_is_missing_is_looked_for_on_the_network(tmp_path: Path) -> None:
    source = publish(tmp_path / "cifar10")
    assert cifar10.load("test", None, tmp_path, source)[2] == "cache"
    with pytest.raises(DataError, match="is not available: there is no folder") as caught:
        cifar10.load("test", None, tmp_path / "other", source)
    for part in (NOWHERE, "cannot be reached", "tiny.tar.gz", "CIFAR10_DIR"):
        assert part in str(caught.value)


def test_a_damaged_archive(tmp_path: Path) -> None:
    source = publish(tmp_path)
    with (tmp_path / "tiny.tar.gz").open("ab") as file:
        file.write(b"x")
    with pytest.raises(DataError, match=r"is damaged: its MD5 is .* as published.*was named by data_dir"):
        cifar10.load("test", tmp_path, tmp_path, source)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (records(0).tobytes()[:-1], "9218 bytes, but 3 images of 3073 bytes have 9219: it is truncated"),
        (b"\x0a" + records(0).tobytes()[1:], "label 10; expected 0…9"),
    ],
)
def test_files_that_are_no_cifar10(tmp_path: Path, content: bytes, message: str) -> None:
    source = publish(tmp_path, {FILES[0]: records(0).tobytes(), FILES[1]: content})
    with pytest.raises(DataError, match=f"two.bin: {message}"):
        cifar10.load("test", tmp_path, tmp_path, source)


def test_a_folder_without_the_files(tmp_path: Path) -> None:
    source = replace(publish(tmp_path / "published"), folder="bin")
    with pytest.raises(DataError, match=r"has neither tiny.tar.gz nor two.bin. The folder was named by"):
        cifar10.load("test", tmp_path, tmp_path, source)
    with pytest.raises(DataError, match="there is no folder"):
        cifar10.load("test", tmp_path / "none", tmp_path, source)
    os.mkfifo(tmp_path / "two.bin")  # nobody writes to it
    with pytest.raises(DataError, match=r"two.bin cannot be read: expected a regular file, found a pipe"):
        cifar10.load("test", tmp_path, tmp_path, source)


def test_what_is_published() -> None:
    source = cifar10.PUBLISHED
    assert [len(source.splits[split]) * source.records for split in ("train", "test")] == [50_000, 10_000]
    assert all(mirror.endswith("/") for mirror in source.mirrors)


def test_the_public_load(monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = np.zeros((2, 3, 32, 32), np.uint8), np.zeros(2, np.uint8)
    monkeypatch.setattr(cifar10, "load", lambda split, data_dir: (images, labels, f"{split} {data_dir}"))
    found = datasets.load("cifar10", "train", "folder")
    assert (found.name, found.split, found.origin, found.images.shape) == (
        "cifar10",
        "train",
        "train folder",
        (2, 3, 32, 32),
    )
    with pytest.raises(UsageError, match="no garments with a side of 30 pixels; available are 86 and 28"):
        datasets.load("synthetic", "test", side=30)
