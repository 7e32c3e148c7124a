"""Pictures become batches in order, and wrong lists of pictures are refused."""

import io
import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path

import h5py
import numpy as np
import pytest
from picture_samples import GREY, PNG, SMALL, noise, saved

from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.measuring.elsewhere import plain, source_of
from mini_dnn.pictures import feed as feeding
from mini_dnn.pictures import sources as listing
from mini_dnn.pictures.feed import Batch, Feed
from mini_dnn.pictures.labels import Labels
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.sources import File, Source, sources
from mini_dnn.pictures.stacks import Stack


def batches(named: Iterable[Source], size: int = 4, recipe: Recipe = GREY) -> list[Batch]:
    return list(Feed(named, recipe, size, workers=2))


def test_folders_lists_and_single_files_in_order(tmp_path: Path) -> None:
    for name in ("b.png", "a.JPG", "deep/er/z.png", "deep/c.png", ".hidden.png", "words.txt"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(PNG)
    (tmp_path / "list").write_text(f"{tmp_path}/words.txt\n\n{tmp_path}/b.png\n")
    named = sources([str(tmp_path), f"{tmp_path}/none.png"], str(tmp_path / "list"), GREY)
    names = [Path(source.name).relative_to(tmp_path).as_posix() for source in named]
    assert names == ["a.JPG", "b.png", "deep/c.png", "deep/er/z.png", "none.png", "words.txt", "b.png"]
    found = batches(named)
    assert [name for batch in found for name in batch.names] == [source.name for source in named]
    errors = [bool(error) for batch in found for error in batch.errors]
    assert errors == [False, False, False, False, True, False, False]
    assert sum(len(batch.pixels) for batch in found) == 6


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    (batch,) = batches(sources([str(tmp_path)], None, GREY))
    assert batch.names == [str(tmp_path)]
    assert "no file in this folder has the extension of a picture" in batch.errors[0]
    assert batch.pixels.shape == (0, 12, 12, 1)


def test_batches_are_full_of_what_could_be_decoded() -> None:
    files = [File(f"{i}", saved(np.full((16, 16), i, np.uint8)) if i % 3 else b"") for i in range(17)]
    found = batches(files)
    assert [batch.pixels[:, 0, 0, 0].tolist() for batch in found] == [
        [1, 2, 4, 5],
        [7, 8, 10, 11],
        [13, 14, 16],
    ]
    assert [name for batch in found for name in batch.names] == [str(i) for i in range(17)]
    assert [bool(error) for batch in found for error in batch.errors] == [i % 3 == 0 for i in range(17)]


def test_pictures_are_decoded_only_a_little_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[bytes] = []

    def counted(source: bytes, recipe: Recipe) -> np.ndarray:
        started.append(source)
        return np.zeros(recipe.shape, np.uint8)

    monkeypatch.setattr(feeding.decoding, "decode", counted)
    feed = iter(Feed([File(str(i), b"x") for i in range(100)], GREY, 4, workers=2))
    next(feed)
    assert len(started) <= 4 + 2 * 4 + 2
    feed.close()  # type: ignore[attr-defined]  # a generator
    assert len(started) < 100


@pytest.mark.exhaustive
def test_processes_decode_many_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "MANY", 5)
    monkeypatch.setattr(feeding, "SMALL", 1)
    for i in range(9):
        (tmp_path / f"{i}.png").write_bytes(saved(np.full((16, 16), i, np.uint8)) if i != 4 else b"")
    # It is large, so a lock is used
    (tmp_path / "5.png").write_bytes(saved(np.full((5000, 4000), 5, np.uint8)))
    found = batches(sources([str(tmp_path)], None, GREY), size=3)
    assert [batch.pixels[:, 0, 0, 0].tolist() for batch in found] == [[0, 1, 2], [3, 5, 6], [7, 8]]
    assert ["empty" in error for batch in found for error in batch.errors] == [i == 4 for i in range(9)]


@pytest.mark.exhaustive
def test_a_process_that_ends_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "MANY", 1)
    monkeypatch.setattr(feeding, "SMALL", 0)
    monkeypatch.setattr(feeding, "_begin", ends)
    with pytest.raises(MiniDnnError, match="ended unexpectedly"):
        batches([File("x", PNG)])


def ends(lock: object) -> None:
    os._exit(1)


def test_finished_pixels_are_mapped_to_memory(tmp_path: Path) -> None:
    pixels = noise(10 * 12, 12, 1).reshape(10, 12, 12)
    np.save(tmp_path / "pictures.npy", pixels)
    named = sources([str(tmp_path / "pictures.npy")], None, GREY)
    assert named.count == 10
    (stack,) = named
    assert isinstance(stack, Stack)
    for _, _, part in stack.batches(4):
        assert isinstance(part, np.memmap) or isinstance(part.base, np.memmap)
    found = batches([*named, File("one", PNG)])
    assert [len(batch.pixels) for batch in found] == [4, 4, 2, 1]
    np.testing.assert_array_equal(np.concatenate([b.pixels for b in found])[:10, ..., 0], pixels)
    assert found[1].names[0] == f"{tmp_path}/pictures.npy[4]"


@pytest.mark.parametrize("suffix", [".npy", ".h5"])
def test_finished_planes_are_the_same_pictures(suffix: str, tmp_path: Path) -> None:
    """The bytes have the order that networks read, so that they need no conversion."""
    pixels = noise(5 * 12, 12, 3).reshape(5, 12, 12, 3)
    files = [tmp_path / f"{name}{suffix}" for name in ("pixels", "planes")]
    for file, array in zip(files, (pixels, np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))), strict=True):
        if suffix == ".npy":
            np.save(file, array)
        else:
            with h5py.File(file, "w") as opened:
                opened["pictures"] = array
    for file in files:
        (stack,) = sources([str(file)], None, SMALL)
        assert isinstance(stack, Stack)
        assert source_of(json.loads(json.dumps(plain(stack)))) == stack
        parts = [part for _, _, part in stack.part(1, 5).batches(3)]
        assert [part.shape for part in parts] == [(3, 12, 12, 3), (1, 12, 12, 3)]
        np.testing.assert_array_equal(np.concatenate(parts), pixels[1:])
    assert parts[0].transpose(0, 3, 1, 2).flags.c_contiguous


def test_wrong_pixels_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.npy"
    whole = io.BytesIO()
    np.save(whole, np.zeros((4, 12, 12, 1), np.uint8))
    cut = whole.getvalue()[:-9]
    wrong = {
        "uint8; expected": np.zeros((4, 12, 11, 1), np.uint8),
        "float32; expected": np.zeros((4, 12, 12, 1), np.float32),
        "cannot be used": np.array([{}], object),
        r"\(0, 12": np.zeros((0, 12, 12, 1), np.uint8),
    }
    for says, array in wrong.items():
        np.save(file, array, allow_pickle=True)
        with pytest.raises(UsageError, match=says):
            sources([str(file)], None, GREY)
    file.write_bytes(cut)
    with pytest.raises(UsageError, match="cannot be used"):
        sources([str(file)], None, GREY)


def test_byte_order_marks_of_editors_belong_to_no_line(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"\xef\xbb\xbfa.png\r\nb.png\r\n")
    found = sources([], str(tmp_path / "list"), GREY)
    assert [source.name for source in found if isinstance(source, File)] == ["a.png", "b.png"]
    (tmp_path / "labels").write_bytes(b"\xef\xbb\xbf1\r\nbag\r\n")
    assert list(Labels(str(tmp_path / "labels"), ("bag", "shoe"))) == [1, 0]


def test_wrong_lists_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        sources([], str(tmp_path / "none"), GREY)
    (tmp_path / "list").write_bytes(b"a\0b")
    with pytest.raises(UsageError, match="is not a text file"):
        sources([], str(tmp_path / "list"), GREY)
    monkeypatch.setattr(listing, "MOST_LIST_BYTES", 3)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\nbc")))
    with pytest.raises(UsageError, match="--list - has more than 3 bytes; divide it"):
        sources([], "-", GREY)
    with pytest.raises(UsageError, match="no pictures are named"):
        sources([], None, GREY)
    with pytest.raises(UsageError, match="standard input is named twice"):
        sources(["-"], "-", GREY)


@pytest.mark.parametrize("many", [False, pytest.param(True, marks=pytest.mark.exhaustive)])
def test_pillow_says_nothing_that_names_no_file(
    many: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Neither in threads nor in processes, which print it. The error of a picture has its name."""
    monkeypatch.setattr(feeding, "MANY", 1 if many else 100)
    monkeypatch.setattr(feeding, "SMALL", 0)
    damaged = bytearray(saved(noise(16, 16), "TIFF"))
    entry = damaged.index(b"\x15\x01\x03\0\x01\0\0\0\x03\0")  # SamplesPerPixel, a short: 3
    damaged[entry + 8] = 99
    (batch,) = batches([File("x.tif", bytes(damaged))])
    assert "not a picture" in batch.errors[0]
    assert caplog.records == []
    assert capfd.readouterr().err == ""
    assert logging.getLogger("PIL").level == logging.NOTSET
