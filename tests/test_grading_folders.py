"""Folders of submissions: their names in results, and the search for the files in them."""

from __future__ import annotations

import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from grading_helpers import QUICK, honest

from mini_dnn.errors import UsageError
from mini_dnn.grading import log, rubric
from mini_dnn.grading.asked import Rubric
from mini_dnn.grading.confined.process import SubmissionError
from mini_dnn.grading.submission import Submission, check_apart, digest, named
from mini_dnn.measuring import work_log
from mini_dnn.paths import ROOT


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
    (tmp_path / "bob_b").symlink_to(folders[1])
    (found,) = named([tmp_path / "bob_b"])
    assert (found.name, found.folder) == ("bob_b", folders[1]), "a link has the name of the student"
    (tmp_path / "ann.zip").touch()
    with pytest.raises(UsageError, match=r"is a file, and a submission is a folder.*unpack it"):
        named([tmp_path / "ann.zip"])
    (tmp_path / "eve_s_work").mkdir()
    with pytest.raises(UsageError, match="would have the same name"):
        named([folders[2], tmp_path / "eve_s_work"])


def test_an_accent_is_of_its_letter(tmp_path: Path) -> None:
    """Archives of macOS have "e" and an accent where the grade book has one character."""
    (tmp_path / "Zoe\u0308").mkdir()
    assert [one.name for one in named([tmp_path / "Zoe\u0308"])] == ["Zo\u00eb"]


@pytest.mark.parametrize(("out", "wrong"), [("", True), ("graded", True), ("../graded", False)])
def test_results_lie_beside_submissions(out: str, wrong: bool, tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK)
    asked, submissions = rubric.load(tmp_path / "rubric.toml"), named([honest(tmp_path)])
    with pytest.raises(UsageError, match="named as a submission") if wrong else nullcontext():
        check_apart(submissions, submissions[0].folder / out, asked)


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
    assert one.is_of_several(asked)
    assert "try 1 and try 2 have variants; submit one" in one.missing("layers/custom", asked)
    shutil.rmtree(tmp_path / "ann/try 2")
    assert not one.is_of_several(asked)
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


def test_what_a_submission_without_a_variant_holds_is_reported(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK)
    asked, one = rubric.load(tmp_path / "rubric.toml"), Submission("ann", tmp_path / "ann")
    one.folder.mkdir()
    assert one.missing("layers/custom", asked).endswith("The submission is empty")
    first = digest(one, asked)
    (one.folder / "hw.zip").touch()
    assert "holds hw.zip; hw.zip is not unpacked" in one.missing("layers/custom", asked)
    assert digest(one, asked) != first
    (one.folder / "mine/tiled_direct").mkdir(parents=True)
    assert "; move mine/tiled_direct to mine/m1/tiled_direct, " in one.missing("m1/tiled_direct", asked)


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


LOGGED = """
[log]
required = true
points = 2
"""


def logged(folder: Path, *variants: str) -> None:
    """Write a log beside a submission's variants."""
    about = {"time": "2026-01-02T03:04:05.000+00:00", "verb": "check", "parent": None, "op": "conv2d"}
    about |= {"idea": "", "code_hash": None, "expected": "", "device": "", "verdict": "clean"}
    for variant in variants:
        work_log.append(folder / "log.jsonl", work_log.Entry(**about, variant=variant, ok=True))


@pytest.fixture
def asked(tmp_path: Path) -> Rubric:
    second = '[[variant]]\nname = "m1/cpu"\nhost = true\npoints = { correct = 1 }\n'
    return rubric.parse(f"{QUICK}{second}{LOGGED}")


@pytest.mark.parametrize(
    ("variants", "said"),
    [
        (["layers/custom", "mine/m1/cpu"], ""),
        (["layers/custom"], "no entry for m1/cpu"),
        ([], "there is no log.jsonl"),
    ],
)
def test_the_work_log_has_an_entry_for_each_variant(
    variants: list[str], said: str, asked: Rubric, tmp_path: Path
) -> None:
    top = tmp_path / "ann"
    for name in ("layers/custom", "milestones/m1/cpu"):
        shutil.copytree(ROOT / name, top / "project" / name)
    one = Submission("ann", top)
    before = digest(one, asked)
    (top / "project/mine").mkdir()
    logged(top / "project/mine", *variants)
    assert asked.log is not None
    check = log.look(one, asked, asked.log)
    assert (check.status, check.points, check.max_points) == (
        "failed" if said else "passed",
        2 * (not said),
        2,
    )
    assert said in check.message
    assert (digest(one, asked) != before) == bool(variants), "another log is graded again"


def test_a_work_log_beside_one_variant_and_one_that_is_not_required(asked: Rubric, tmp_path: Path) -> None:
    extra = replace(asked.log, required=False)
    one = Submission("ann", honest(tmp_path))
    check = log.look(one, asked, extra)
    assert (check.status, check.points, check.max_points) == ("skipped", 0, 0)
    logged(one.folder, "mine/my_idea")
    check = log.look(one, asked, extra)
    assert (check.status, check.points, check.max_points) == ("passed", 2, 0)
    (one.folder / "log.jsonl").write_text("not a log\n")
    assert "log.jsonl has no entry" in log.look(one, asked, extra).message
    (one.folder / "log.jsonl").unlink()
    (one.folder / "log.jsonl").symlink_to("/etc/hostname")
    assert "symbolic link" in log.look(one, asked, extra).message


def test_a_log_has_a_plain_name() -> None:
    with pytest.raises(UsageError, match=r"log\.file is '\.\./log'"):
        rubric.parse(QUICK + '[log]\nfile = "../log"\n')
