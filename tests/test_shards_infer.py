"""``run.py infer`` with pictures in shards, shards as items of an engine, and files of labels."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
from picture_samples import GREY
from shard_samples import stops_after
from shard_samples import words as words

from mini_dnn import datasets
from mini_dnn.cli import main
from mini_dnn.cli.classified import Writer
from mini_dnn.errors import UsageError
from mini_dnn.measuring.answers import Job
from mini_dnn.measuring.elsewhere import as_plain, plain, source_of
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.pictures.labels import Labels
from mini_dnn.pictures.sources import File, sources
from mini_dnn.variant import find
from mini_dnn.variant.scaffold import create


@pytest.mark.exhaustive
def test_infer_reads_shards_as_classify_does(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is the same, also after an interruption. If labels are given, so is the accuracy."""
    given = [k % 6 for k in range(23)]
    (tmp_path / "y.txt").write_text("".join(f"{k}\n" if k % 2 else f"class {k}\n" for k in given))
    np.save(tmp_path / "y.npy", np.array(given, np.uint8))
    with h5py.File(tmp_path / "y.h5", "w") as file:
        file["labels"] = np.array(given)
    infer = ["infer", "--pictures", *words[1:]]
    assert main([*words, "--csv", str(tmp_path / "plain.csv")]) == 1
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "add", stops_after(14, KeyboardInterrupt()))
        assert main([*infer, "--csv", str(tmp_path / "x.csv"), "--labels", f"{tmp_path}/y.npy"]) == 130
    assert len(list((tmp_path / "x.csv.parts").iterdir())) == 3
    said = []
    for name in ("y.npy", "y.txt", "y.h5:labels"):
        capsys.readouterr()
        files = ["--csv", str(tmp_path / "x.csv"), "--json", str(tmp_path / "x.json"), "--force"]
        assert main([*infer, *files, "--labels", f"{tmp_path}/{name}"]) == 1
        out, err = capsys.readouterr()
        assert "2 of 23 pictures could not be read" in err
        assert "\nlimit     " in out
        said.append(re.findall(r"Test Accuracy: .*", out))
    table = list(csv.DictReader(io.StringIO((tmp_path / "x.csv").read_text())))
    lines = [",".join(line.split(",")[:-1]) for line in (tmp_path / "x.csv").read_text().splitlines()]
    assert lines == (tmp_path / "plain.csv").read_text().splitlines()
    known = {row["file"]: int(row["label"]) for row in table}
    assert list(known.values()) == given
    right = sum(row["rank"] == "1" and row["class"] == row["label"] for row in table)
    assert said == [[f"Test Accuracy: {right / 21:.4f} ({right} of 21 pictures)"]] * 3
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["accuracy"] == right / 21
    assert [row["label"] for row in found["pictures"]] == given


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--pictures", "x.tar", "--labels", "short.txt"], "has 2 labels for 23 pictures; expected one for"),
        (["--pictures", "x.tar", "--labels", "wrong.txt"], "line 2 is 'six'; expected a class a line"),
        (["--pictures", "x.tar", "--labels", "wrong.npy"], "label 1 is 6; expected a class a line"),
        (["--pictures", "x.tar", "--labels", "none.txt"], "none.txt cannot be used: No such file"),
        (["--pictures", "x.tar", "--check"], "--check is for the test images of a data set"),
        (["--pictures", "x.tar", "--impl", "m3"], "--impl m3 runs single layers"),
        (["--pictures", "x.tar", "--impl", "cpu", "--resident", "layers"], "cannot be combined"),
        (["--labels", "short.txt"], "--labels needs --pictures"),
    ],
)
def test_wrong_use_of_infer(
    flags: list[str],
    says: str,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("1\n2\n")
    (tmp_path / "wrong.txt").write_text("1\nsix\n")
    np.save("wrong.npy", np.array([5, 6]))
    network = words[words.index("--network") : words.index("--impl")]
    assert main(["infer", *network, *words[words.index("--weights") :][:4], *flags]) == 2
    assert says in capsys.readouterr().err


def test_lenet_classifies_pictures_as_it_does_test_images() -> None:
    """LeNet gets 28 x 28 bytes, and enlarges them itself like those of the data set."""
    images, _ = datasets.draw(3, seed=1)
    small = datasets.resize(images[:, 0], 28)[:, 0, ..., None]
    lenet = Classifier.load("lenet")
    (found,) = lenet.on_host([small], Spent())
    given = datasets.to_float(datasets.resize(small[..., 0]))
    np.testing.assert_array_equal(found, lenet.network.forward(given))


def test_a_worker_finds_the_variant_that_was_named_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its folder and its home may be others."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = create(str(tmp_path / "my/own"), find("networks/resnet18/v1_conv_bn"))
    job = Job("resnet18", None, GREY, "", None, 1, 1, False)
    for impl in ("~/my/own", "./my/own", "my/own", str(folder)):
        assert as_plain(replace(job, impl=impl))["impl"] == str(folder)
    assert as_plain(job)["impl"] == ""


@pytest.mark.exhaustive
def test_by_an_engine_as_by_this_process(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each shard is an item, and completed shards are not computed again."""
    tables = []
    for more in ([], ["--executor", "local"]):
        assert main([*words, "--csv", str(tmp_path / "x.csv"), "--force", *more]) == 1
        tables.append((tmp_path / "x.csv").read_bytes())
    assert tables[0] == tables[1]
    assert not (tmp_path / "x.csv.parts").exists()
    capsys.readouterr()
    for more, says in (
        (["--executor", "local"], "needs a results file"),
        (["--executor", "local", "--gpus", "2"], "one GPU per worker"),
        (["--profile", "x.toml"], "--profile x.toml needs --executor"),
    ):
        assert main([*words[:2], *more]) == 2
        assert says in capsys.readouterr().err
    with pytest.raises(UsageError, match="standard input can be read only here"):
        plain(File("standard input", b""))
    np.save(tmp_path / "x.npy", np.zeros((3, 12, 12), np.uint8))
    named = [str(tmp_path / "x.npy"), str(tmp_path / "x.tar"), str(tmp_path / "none.png"), "no.tar"]
    for source in sources(named, None, GREY):
        again = source_of(json.loads(json.dumps(plain(source))))
        assert str(again) == str(source)


def test_labels_that_are_names(tmp_path: Path) -> None:
    """Empty lines are skipped. A name that several classes have says nothing, but their numbers do."""
    labels = Labels(str(tmp_path / "y.txt"), ("crane", "bag", "crane"))
    (tmp_path / "y.txt").write_text("bag\n\n2\n 0 \n\n")
    assert list(labels) == [1, 2, 0]
    (tmp_path / "y.txt").write_text("bag\n\ncrane\n")
    with pytest.raises(UsageError, match="line 3 is 'crane', which is the name of several classes"):
        labels.check(2)
