"""The cache of finished images: it is read back, damage is refused, and nobody sees a partial file."""

from concurrent.futures import ThreadPoolExecutor

import h5py
import numpy as np
import pytest

from mini_dnn.datasets import storage

RECIPE = {"source": "a.gz md5:1", "Pillow": "12.0"}


@pytest.fixture
def pixels():
    rng = np.random.default_rng(0)
    return rng.integers(0, 256, (3, 1, 86, 86), dtype=np.uint8), np.array([4, 0, 9], np.uint8)


@pytest.fixture
def path(tmp_path, pixels):
    path = tmp_path / "cache" / "set.h5"
    storage.write(path, RECIPE, pixels)
    return path


def same(found, pixels):
    return found is not None and all(np.array_equal(a, b) for a, b in zip(found, pixels, strict=True))


def test_reads_what_was_written(path, pixels, caplog):
    assert same(storage.read(path, RECIPE), pixels)
    assert caplog.text == ""
    assert [file.name for file in path.parent.iterdir()] == ["set.h5"]


def test_attributes_are_for_people(path):
    with h5py.File(path) as file:
        assert dict(file.attrs) == RECIPE


def test_missing_file_is_no_warning(path, caplog):
    assert storage.read(path.with_name("none.h5"), RECIPE) is None
    assert caplog.text == ""


@pytest.mark.parametrize("recipe", [{**RECIPE, "Pillow": "12.1"}, {**RECIPE, "size": "86x86"}])
def test_another_recipe(path, recipe, caplog):
    assert storage.read(path, recipe) is None
    assert caplog.text == ""


@pytest.mark.parametrize("keep", [0, 100, 512, 2000, 0.5, 0.999])
def test_truncated(path, keep, caplog):
    content = path.read_bytes()
    path.write_bytes(content[: keep if isinstance(keep, int) else int(keep * len(content))])
    assert storage.read(path, RECIPE) is None
    assert "damaged" in caplog.text


def test_any_changed_byte_is_seen(path, pixels):
    content = bytearray(path.read_bytes())
    for position in np.random.default_rng(1).integers(0, len(content), 100).tolist():
        content[position] ^= 0x10
        path.write_bytes(content)
        assert storage.read(path, RECIPE) is None
        content[position] ^= 0x10
    path.write_bytes(content)
    assert same(storage.read(path, RECIPE), pixels)


def test_wrong_shape(path, pixels, caplog):
    storage.write(path, RECIPE, (pixels[0][:, :, :85], pixels[1]))
    assert storage.read(path, RECIPE) is None
    assert "(3, 1, 85, 86)" in caplog.text


def test_not_writable(tmp_path, pixels, caplog):
    (tmp_path / "cache").write_text("a file where the folder should be")
    storage.write(tmp_path / "cache" / "set.h5", RECIPE, pixels)
    assert "cannot be written" in caplog.text


def test_failed_write_leaves_the_old_file(path, pixels, monkeypatch, caplog):
    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(storage, "_seal", full)
    storage.write(path, {"source": "other"}, pixels)
    monkeypatch.undo()
    assert "no space left" in caplog.text
    assert same(storage.read(path, RECIPE), pixels)
    assert [file.name for file in path.parent.iterdir()] == ["set.h5"]


def test_readers_and_writers_at_once(path, pixels, caplog):
    def work(i):
        if i % 2:
            storage.write(path, RECIPE, pixels)
        return same(storage.read(path, RECIPE), pixels)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(48)))
    assert caplog.text == ""
    assert [file.name for file in path.parent.iterdir()] == ["set.h5"]
