"""Before ``run.py train`` begins: its files can be written, have room, and belong to no other training."""

import errno
import os
from pathlib import Path

import pytest
from training_samples import TEST, TRAIN, trainer

from mini_dnn import datasets
from mini_dnn.cli import main
from mini_dnn.cli import train as verb
from mini_dnn.errors import WeightsError
from mini_dnn.nn.files import check_room
from mini_dnn.nn.train import Trainer


def words_of(folder: Path, *more: str) -> list[str]:
    words = ["train", "--data", "synthetic", "--epochs", "1", "--limit", "32", "--out", str(folder / "w.h5")]
    return [*words, *more]


def test_a_second_training_to_the_same_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(datasets, "load", lambda name, split, *_: TRAIN if split == "train" else TEST)
    (tmp_path / "link").symlink_to(tmp_path)
    seen = []

    def meanwhile(trainer: Trainer, checkpoint: Path) -> None:
        for words in (
            words_of(tmp_path / "link"),
            words_of(tmp_path, "--force"),
            [*words_of(tmp_path)[:-1], str(tmp_path / "x.h5"), "--checkpoint", str(checkpoint)],
        ):
            assert main(words) == 2
            seen.append(capsys.readouterr().err)

    with monkeypatch.context() as patch:
        patch.setattr(verb, "_train", meanwhile)
        assert main(words_of(tmp_path)) == 0
    assert all("another training is writing" in said for said in seen)
    assert len(seen) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "w.h5"]
    assert main(words_of(tmp_path, "--force")) == 0  # and then it is not locked any more


@pytest.mark.parametrize("which", ["--out", "--checkpoint"])
def test_a_target_that_cannot_be_written_is_reported_first(
    which: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(datasets, "load", lambda name, split, *_: TRAIN if split == "train" else TEST)
    monkeypatch.setattr(verb, "_train", lambda *_: pytest.fail("it trains"))
    (tmp_path / "file").write_text("")
    os.mkfifo(tmp_path / "pipe")
    for path in ("/proc/w.h5", str(tmp_path / "file" / "w.h5"), str(tmp_path / "pipe")):
        assert main(words_of(tmp_path, which, path, "--force")) == 2
        assert "cannot write the" in capsys.readouterr().err


def test_room_for_the_files_is_there_before_the_first_epoch(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="cannot write the weights"):
        check_room(tmp_path / "w.h5", "weights", 1 << 60)
    check_room(tmp_path / "new" / "w.h5", "weights", 1000)
    assert list((tmp_path / "new").iterdir()) == []
    learner = trainer()
    learner.save(tmp_path / "c.h5")
    assert (tmp_path / "c.h5").stat().st_size <= learner.checkpoint_bytes


def test_room_for_a_second_checkpoint_is_there_before_the_first_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """A checkpoint is written beside the one that it replaces."""
    free = 3 * trainer().checkpoint_bytes // 2

    def allocate(file: int, start: int, nbytes: int) -> None:
        if nbytes > free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(datasets, "load", lambda name, split, *_: TRAIN if split == "train" else TEST)
    monkeypatch.setattr(verb, "_train", lambda *_: pytest.fail("it trains"))
    monkeypatch.setattr(os, "posix_fallocate", allocate)
    assert main(words_of(tmp_path)) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'w.checkpoint.h5'}: No space left on device; no file was written. Next: free" in said
