"""Data sets in shards: archives, and arrays in files."""

import re
import struct
import tarfile
from pathlib import Path

import h5py
import numpy as np
import pytest
from picture_samples import GREY
from shard_samples import archive, png

from mini_dnn.errors import UsageError
from mini_dnn.pictures import stacks
from mini_dnn.pictures.decode import decode
from mini_dnn.pictures.feed import Feed
from mini_dnn.pictures.sources import sources
from mini_dnn.pictures.stacks import Stack


def pixels(*named: str) -> tuple[list[str], np.ndarray]:
    batches = list(Feed(sources(named, None, GREY), GREY, 4, workers=2))
    assert not any(error for batch in batches for error in batch.errors)
    return [n for batch in batches for n in batch.names], np.concatenate([b.pixels for b in batches])


def test_an_archive_in_the_manner_of_webdataset(tmp_path: Path) -> None:
    """Pictures keep the archive's order. Other files are skipped, and names may have any length."""
    long = "x" * 150 + "ü"
    members = {
        "a/0.png": png(0),
        "a/0.cls": b"3",
        f"{long}.JPG": png(1),
        "a/.hidden.png": b"",
        "b.png": png(2),
    }
    name = str(archive(tmp_path / "some.tar", members))
    with tarfile.open(name, "a") as file:
        for kind, target in ((tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "b.png")):
            link = tarfile.TarInfo("link.png")
            link.type, link.linkname = kind, target
            file.addfile(link)
    (batch,) = Feed(sources([name], None, GREY), GREY, 8, workers=1)
    assert [error.partition(" to it")[0] for error in batch.errors[3:]] == ["the archive has only a link"] * 2
    names, found = batch.names[:3], batch.pixels
    assert names == [f"{name}/a/0.png", f"{name}/{long}.JPG", f"{name}/b.png"]
    np.testing.assert_array_equal(found, [decode(png(seed), GREY) for seed in range(3)])


def test_archives_that_cannot_be_read(tmp_path: Path) -> None:
    whole = archive(tmp_path / "whole.tar", {f"{n}.png": png(n) for n in range(3)}).read_bytes()
    cut = tmp_path / "cut.tar"
    cut.write_bytes(whole[: 2 * 512 + 512 + 50])
    (tmp_path / "words.tar").write_bytes(b"words" * 500)
    archive(tmp_path / "empty.tar", {"a.txt": b""})
    for size in ("-1536", "9" * 30):
        with tarfile.open(tmp_path / f"{size[0]}.tar", "w", format=tarfile.PAX_FORMAT) as file:
            member = tarfile.TarInfo("a.png")
            member.pax_headers = {"size": size}
            file.addfile(tarfile.TarInfo("b.png"))
            file.addfile(member)
    (tmp_path / "sum.tar").write_bytes(whole.replace(b"1.png", b"l.png"))
    for name, says, expected in (
        ("cut.tar", "archive is truncated", [False, True, True]),
        ("words.tar", "archive is truncated or damaged", [True]),
        ("sum.tar", "archive is truncated or damaged", [False, True]),
        ("-.tar", "archive is truncated or damaged", [False, True]),
        ("9.tar", "archive is truncated or damaged", [False, True]),
        ("empty.tar", "no file in this archive", [True]),
        ("none.tar", "cannot be read: No such file", [True]),
    ):
        (batch,) = Feed(sources([str(tmp_path / name)], None, GREY), GREY, 4, workers=1)
        assert [bool(re.search(says, error)) for error in batch.errors[-len(expected) :]] == expected
    with pytest.raises(UsageError, match=r"is compressed, .* convert it to a .tar file"):
        sources(["photos.tar.gz"], None, GREY)


def test_arrays_of_pictures_in_files(tmp_path: Path) -> None:
    given = np.random.default_rng(0).integers(0, 256, (10, 12, 12, 1), np.uint8)
    np.save(tmp_path / "x.npy", given)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["images"] = given[..., 0]
        file["labels"] = np.zeros(10)
        file.create_dataset("packed", data=given, chunks=(4, 12, 12, 1), compression="gzip")
        file["deep/down"] = given
        file["planes"] = given.reshape(10, 1, 12, 12)
    for name in ("x.npy", "x.h5:images", "x.h5:packed", "x.h5:deep/down", "x.h5:planes"):
        names, found = pixels(f"{tmp_path}/{name}")
        np.testing.assert_array_equal(found, given)
        assert names[7] == f"{tmp_path}/{name}[7]"
    with pytest.raises(UsageError, match=r"it holds images, packed, planes; name one, as in x\.h5:images"):
        sources([f"{tmp_path}/x.h5"], None, GREY)
    with pytest.raises(UsageError, match="there is no array 'more' in it"):
        sources([f"{tmp_path}/x.h5:more"], None, GREY)
    with h5py.File(tmp_path / "one.h5", "w") as file:
        file["images"] = given
        file["elsewhere"] = h5py.ExternalLink("x.h5", "images")
    np.testing.assert_array_equal(pixels(f"{tmp_path}/one.h5")[1], given)
    with pytest.raises(UsageError, match="there is no array 'elsewhere' in it"):
        sources([f"{tmp_path}/one.h5:elsewhere"], None, GREY)


@pytest.mark.parametrize("header", ["{'descr': ('<f4'\n", "{'descr': 5, 1: 2, (): 3}\n"])
def test_an_array_with_a_damaged_header(header: str, tmp_path: Path) -> None:
    content = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.npy cannot be used: its header is damaged"):
        sources([f"{tmp_path}/x.npy"], None, GREY)


def test_hdf5_with_damaged_metadata(tmp_path: Path) -> None:
    """Whatever byte is damaged, either the file is refused in words, or its pictures can be found."""
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["images"] = np.zeros((2, 12, 12), np.uint8)
    whole, refusals = (tmp_path / "x.h5").read_bytes(), 0
    for i in range(0, len(whole), 3):
        (tmp_path / "x.h5").write_bytes(whole[:i] + bytes([whole[i] ^ 0x55]) + whole[i + 1 :])
        try:
            sources([f"{tmp_path}/x.h5"], None, GREY)
        except UsageError:
            refusals += 1
    assert refusals > 50


def test_a_name_that_the_system_refuses_is_one_picture(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(0))
    names = [f"{tmp_path}/{'x' * 300}.png", f"{tmp_path}/a.png"]
    found = sources(names, None, GREY)
    assert found.count == 2
    assert not found.are_decoded
    (shard,) = found.shards()
    assert len(shard.key("about")) == 64


@pytest.mark.parametrize("block", [0, 512])
def test_an_array_that_lies_in_an_hdf5_file_as_it_is_is_mapped(tmp_path: Path, block: int) -> None:
    """Threads then copy from it in parallel, as from a ``.npy`` file. Other arrays are read by HDF5."""
    given = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 1), np.uint8)
    with h5py.File(tmp_path / "x.h5", "w", userblock_size=block) as file:
        file["before"] = np.arange(5)
        file["images"] = given
        file.create_dataset("chunked", data=given, chunks=(2, 8, 8, 1))
        file.create_dataset("never", given.shape, np.uint8)
    kinds = {"images": np.memmap, "chunked": h5py.Dataset, "never": h5py.Dataset}
    for name, kind in kinds.items():
        with stacks.opened(tmp_path / "x.h5", name) as found:
            assert type(found) is kind
            np.testing.assert_array_equal(found[2:], 0 * given[2:] if name == "never" else given[2:])


def test_shards_of_all_kinds(tmp_path: Path) -> None:
    """All shards are full, except for the last one. Arrays are divided at the ends of shards."""
    np.save(tmp_path / "x.npy", np.zeros((10, 12, 12), np.uint8))
    (tmp_path / "a.png").write_bytes(png(0))
    found = sources([f"{tmp_path}/a.png", f"{tmp_path}/x.npy", f"{tmp_path}/a.png"], None, GREY)
    assert found.count == 12
    shards = list(found.shards(5))
    assert [shard.count for shard in shards] == [5, 5, 2]
    assert [
        (source.first, source.last) if isinstance(source, Stack) else "a"
        for s in shards
        for source in s.sources
    ] == ["a", (0, 4), (4, 9), (9, 10), "a"]
    assert str(shards[2]) == "shard 2 of 2 pictures"
    key = shards[0].key("about")
    assert key == next(iter(found.shards(5))).key("about")
    assert key != shards[0].key("more")
    assert len({shard.key("about") for shard in shards}) == 3
    (tmp_path / "a.png").write_bytes(png(0) + b" ")  # the picture has changed
    assert next(iter(found.shards(5))).key("about") != key
