"""Folders of submissions: their names in results, and where the files in them are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from grading_helpers import QUICK, honest

from mini_dnn.errors import UsageError
from mini_dnn.grading import rubric
from mini_dnn.grading.confined.process import SubmissionError
from mini_dnn.grading.submission import Submission, digest, named


def test_names_are_unique(tmp_path: Path) -> None:
    folders = [tmp_path / "ann/project", tmp_path / "bob/project", tmp_path / "eve's work"]
    for folder in folders:
        folder.mkdir(parents=True)
    assert [one.name for one in named(folders[:1])] == ["project"]
    assert [one.name for one in named(folders[:2])] == ["ann-project", "bob-project"]
    assert [one.name for one in named(folders)] == ["ann-project", "bob-project", "eve_s_work"]
    with pytest.raises(UsageError, match="given twice"):
        named([folders[0], tmp_path / "bob/../ann/project"])
    with pytest.raises(UsageError, match="a submission is a folder"):
        named([tmp_path / "nobody"])
    (tmp_path / "ann.zip").touch()
    with pytest.raises(UsageError, match=r"is a file, and a submission is a folder.*unpack it"):
        named([tmp_path / "ann.zip"])
    (tmp_path / "eve_s_work").mkdir()
    with pytest.raises(UsageError, match="would have the same name"):
        named([folders[2], tmp_path / "eve_s_work"])


@pytest.mark.parametrize("inside", ["project", "project-main/hw 3", "project/layers/custom"])
def test_folders_around_a_submission_do_not_count(inside: str, tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK)
    asked = rubric.load(tmp_path / "rubric.toml")
    place = tmp_path / "ann" / inside
    place.parent.mkdir(parents=True)
    shutil.move(honest(tmp_path), place)
    (tmp_path / "ann/.DS_Store").touch()
    (tmp_path / "ann/__MACOSX").mkdir()
    assert Submission("ann", tmp_path / "ann").variant("layers/custom", asked) == place


@pytest.mark.parametrize("beside", ["report.pdf", "README.txt", "pictures/1.png", "notes/layout.txt"])
def test_what_lies_beside_the_wrapper_does_not_count(beside: str, tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK)
    asked = rubric.load(tmp_path / "rubric.toml")
    place = tmp_path / "ann/project/layers/custom"
    place.parent.mkdir(parents=True)
    shutil.move(honest(tmp_path), place)
    (tmp_path / "ann" / beside).parent.mkdir(exist_ok=True)
    (tmp_path / "ann" / beside).touch()
    assert Submission("ann", tmp_path / "ann").variant("layers/custom", asked) == place


def test_of_two_folders_with_variants_none_is_taken(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK)
    asked, one = rubric.load(tmp_path / "rubric.toml"), Submission("ann", tmp_path / "ann")
    place = tmp_path / "ann/try 1"
    place.parent.mkdir()
    shutil.move(honest(tmp_path), place)
    shutil.copytree(place, tmp_path / "ann/try 2")
    assert one.variant("layers/custom", asked) is None
    assert "try 1 and try 2 have variants; submit one" in one.missing("layers/custom", asked)
    shutil.rmtree(tmp_path / "ann/try 2")
    shutil.move(place, tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert one.variant("layers/custom", asked) is None


def test_a_long_name_is_shortened_and_stays_unique(tmp_path: Path) -> None:
    folders = [tmp_path / ("é" * 120 + end) for end in ("a", "b")]
    for folder in folders:
        folder.mkdir()
    first, second = (one.name for one in named(folders))
    assert first != second
    assert len(first.encode()) <= 120


def test_folders_in_folders_without_end_hold_nothing(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK)
    deep = tmp_path / "ann"
    for _ in range(12):
        deep = deep / ("d" * 200)
    deep.mkdir(parents=True)
    one = Submission("ann", tmp_path / "ann")
    assert one.variant("layers/custom", rubric.load(tmp_path / "rubric.toml")) is None


def test_what_a_submission_without_a_variant_holds_is_told(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK)
    asked, one = rubric.load(tmp_path / "rubric.toml"), Submission("ann", tmp_path / "ann")
    one.folder.mkdir()
    assert one.missing("layers/custom", asked).endswith("The submission is empty")
    first = digest(one, asked)
    (one.folder / "hw.zip").touch()
    assert "holds hw.zip; hw.zip is not unpacked" in one.missing("layers/custom", asked)
    assert digest(one, asked) != first


@pytest.mark.parametrize(
    ("name", "inside"),
    [
        ("softmax/mine", "ladders/softmax/mine"),
        ("softmax/mine", "softmax/mine"),
        ("ladders/softmax/mine", "ladders/softmax/mine"),
        ("networks/lenet/mine", "networks/lenet/mine"),
        ("m3/mine", "project/milestones/m3/mine"),
        ("m3/idea", "project/mine/m3/idea"),
        ("softmax/mine", "project/ladders/softmax/mine"),
    ],
)
def test_where_a_repository_has_its_variants(name: str, inside: str, tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK.replace("layers/custom", name))
    asked, one = rubric.load(tmp_path / "rubric.toml"), Submission("ann", tmp_path / "ann")
    place = one.folder / inside
    place.parent.mkdir(parents=True)
    assert one.variant(name, asked) is None
    shutil.move(honest(tmp_path), place)
    assert one.variant(name, asked) == place
    shutil.move(place, tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SubmissionError, match="is a symbolic link"):
        one.variant(name, asked)
