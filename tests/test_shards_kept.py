"""The shards that an interrupted ``run.py classify`` keeps, and the files that it locks."""

import csv
import errno
import io
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from shard_samples import stops_after
from shard_samples import words as words

from mini_dnn.cli import main
from mini_dnn.cli.classified import Writer
from mini_dnn.errors import UsageError
from mini_dnn.measuring.kept import Answers, Kept
from mini_dnn.pictures.sources import File, Shard


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_run_goes_on(
    error: BaseException,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The same command computes only the missing shards, and the results are those of a single run."""
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    assert main([*words, "--csv", str(whole)]) == 1
    assert not (tmp_path / "whole.csv.parts").exists()
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stops_after(14, error))
        assert main([*words, "--csv", str(parts)]) != 0
    assert "parts.csv.parts keeps the complete shards; use the same command to" in capsys.readouterr().err
    assert not parts.exists()
    assert len(list((tmp_path / "parts.csv.parts").iterdir())) == 3
    done: list[int] = []
    save_shard = Kept.save
    monkeypatch.setattr(Kept, "save", lambda self, n, answers: (done.append(n), save_shard(self, n, answers)))
    capsys.readouterr()
    assert main([*words, "--csv", str(parts)]) == 1
    assert done == [3, 4, 5]
    assert parts.read_bytes() == whole.read_bytes()
    assert not (tmp_path / "parts.csv.parts").exists()
    err = capsys.readouterr().err
    assert "2 of 23 pictures could not be read" in err
    assert err.count("it is not a picture") == 2
    table = list(csv.DictReader(io.StringIO(parts.read_text())))
    assert len(table) == 21 * 2 + 2


def test_other_code_computes_all_shards_again(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    csv_file = ["--csv", str(tmp_path / "x.csv")]
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stops_after(14, KeyboardInterrupt()))
        assert main([*words, *csv_file]) == 130
    done: list[int] = []
    save_shard = Kept.save
    monkeypatch.setattr(Kept, "save", lambda self, n, answers: (done.append(n), save_shard(self, n, answers)))
    monkeypatch.setattr("mini_dnn.cli.classify.digest", lambda: "a hash of other code")
    assert main([*words, *csv_file]) == 1
    assert done == [0, 1, 2, 3, 4, 5]


def test_what_is_kept_belongs_to_what_was_asked(tmp_path: Path) -> None:
    shard = Shard(0, (File("x", b"data"),), 1)
    answers = Answers(["x"], [""], np.array([[1, 0]]), np.array([[0.75, 0.25]]))
    kept = Kept(tmp_path / "parts", ["network", 2])
    assert kept.load(shard) is None
    kept.save(0, answers)
    found = Kept(tmp_path / "parts", ["network", 2]).load(shard)
    assert found is not None
    assert found.names == ["x"]
    np.testing.assert_array_equal(found.probabilities, answers.probabilities)
    assert Kept(tmp_path / "parts", ["another", 2]).load(shard) is None
    (file,) = (tmp_path / "parts").iterdir()
    file.write_bytes(file.read_bytes()[:100])  # it is damaged, so it is computed again
    assert kept.load(shard) is None
    (tmp_path / "parts" / "mine.npz").write_bytes(b"mine")
    kept.remove()
    assert [path.name for path in (tmp_path / "parts").iterdir()] == ["mine.npz"]
    (tmp_path / "file.parts").write_bytes(b"mine")
    with pytest.raises(UsageError, match="is not a folder"):
        Kept(tmp_path / "file.parts", None)


def test_stored_answers_are_read_when_it_is_their_turn(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a missing shard is computed, the others do not wait in memory. An empty file is missing."""
    words += ["--shard", "1"]
    whole, parts = tmp_path / "whole.csv", tmp_path / "parts.csv"
    assert main([*words, "--csv", str(whole)]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stops_after(22, KeyboardInterrupt()))
        assert main([*words, "--csv", str(parts)]) == 130
    stored = sorted((tmp_path / "parts.csv.parts").iterdir(), key=lambda file: file.stat().st_mtime_ns)
    assert len(stored) == 22
    stored[1].write_bytes(b"")
    made, alive, make = weakref.WeakSet[Answers](), [0], Answers.__init__

    def counted(self: Answers, *given: Any) -> None:
        make(self, *given)
        made.add(self)
        alive.append(len(made))

    monkeypatch.setattr(Answers, "__init__", counted)
    assert main([*words, "--csv", str(parts)]) == 1
    assert parts.read_bytes() == whole.read_bytes()
    assert max(alive) < 8


def test_a_second_run_to_the_same_files_is_refused(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    seen: list[str] = []
    real = Writer.add

    def meanwhile(writer: Writer, answers: Answers, labels: Sequence[int] | None) -> None:
        real(writer, answers, labels)
        if not seen:
            for more in (["--force", "--csv"], ["--jsonl", f"{tmp_path}/out/y.jsonl", "--csv"]):
                assert main([*words, *more, f"{tmp_path}/link/x.csv"]) == 2
                seen.append(capsys.readouterr().err)

    monkeypatch.setattr(Writer, "add", meanwhile)
    assert main([*words, "--csv", f"{tmp_path}/out/x.csv"]) == 1
    assert len(seen) == 2
    assert all(f"another run is writing {tmp_path}/out/x.csv; wait until it ends" in said for said in seen)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["x.csv"]
    assert main([*words, "--csv", f"{tmp_path}/out/x.csv", "--force"]) == 1  # and then it is not locked


@pytest.mark.parametrize("flag", ["--csv", "--parquet"])
def test_shards_are_kept_until_the_results_are_on_the_disk(
    flag: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if flag == "--parquet":
        pytest.importorskip("pyarrow")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert main([*words, flag, str(tmp_path / "x")]) == 2
    said = capsys.readouterr().err
    assert "No space left on device" in said
    assert "x.parts keeps the complete shards" in said
    assert not (tmp_path / "x").exists()
    assert len(list((tmp_path / "x.parts").iterdir())) == 6
