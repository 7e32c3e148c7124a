"""The files of a submission: which ones count, which are refused, and which cannot be read."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from grading_helpers import QUICK, REPOSITORY, honest
from grading_helpers import grader as grader
from grading_helpers import repository as repository

from mini_dnn.grading import rubric
from mini_dnn.grading.confined.process import SubmissionError
from mini_dnn.grading.grader import Grader
from mini_dnn.grading.submission import Submission, digest
from mini_dnn.grading.submitted import read

NOBODY = 65534


def test_the_digest_is_of_the_files_that_count(tmp_path: Path) -> None:
    (tmp_path / "rubric.toml").write_text(QUICK)
    asked, one = rubric.load(tmp_path / "rubric.toml"), Submission("honest", honest(tmp_path))
    first = digest(one, asked)
    (one.folder / "__pycache__").mkdir()
    (one.folder / "__pycache__/variant.pyc").write_text("x")
    (one.folder / ".notes").write_text("x")
    os.utime(one.folder / "kernel.cu")
    assert digest(one, asked) == first
    (one.folder / "tile.h").write_text("x")
    assert digest(one, asked) != first


def nested(folder: Path, name: str, depth: int) -> None:
    """Create deeply nested folders."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=here)
        inner = os.open(name, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: (folder / "secret.h").symlink_to("/etc/passwd"), "secret.h is a symbolic link"),
        (lambda folder: (folder / "more").symlink_to(folder.parent), "more is a symbolic link"),
        (lambda folder: os.mkfifo(folder / "pipe.h"), "pipe.h is not a regular file"),
        (lambda folder: (folder / "large.bin").write_bytes(bytes(9 << 20)), "or 8 MB"),
        (lambda folder: [(folder / f"{i}.h").touch() for i in range(201)], "more than 200 files"),
        (lambda folder: [(folder / f"folder{i}").mkdir() for i in range(201)], "more than 200 files"),
        (lambda folder: nested(folder, "d", 300), "a path of 201 characters"),
        (lambda folder: nested(folder, "d" * 150, 2), "a path of 301 characters; at most 200 are allowed"),
        (lambda folder: (folder / "variant.py").unlink(), "there is no variant.py"),
    ],
)
def test_what_is_not_taken(make: object, message: str, tmp_path: Path) -> None:
    folder = honest(tmp_path)
    make(folder)  # type: ignore[operator]
    with pytest.raises(SubmissionError, match=message):
        read(folder)


def test_names_of_files_need_not_be_utf8(grader: Grader, tmp_path: Path) -> None:
    folder = honest(tmp_path)
    Path(os.fsdecode(bytes(folder / "f") + b"\xfcr.txt")).touch()
    one = Submission("honest", folder)
    assert grader.grade(one).points == 7
    assert digest(one, grader._setting.rubric)
    (folder / "variant.py").unlink()
    (folder / "kernel.cu").unlink()
    message = next(check.message for check in grader.grade(one).checks if check.status == "failed")
    assert "f?r.txt" in message
    assert digest(one, grader._setting.rubric)


@contextmanager
def as_nobody(folder: Path) -> Iterator[None]:
    """Read the folder as a user who may not read everything: as nobody, if this user is root."""
    if os.getuid():
        yield
        return
    with Path(__file__).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other processes of pytest change the same upper folders
        modes = {path: path.stat().st_mode for path in (folder, *folder.parents)}
        for path, mode in modes.items():
            path.chmod(mode | 0o055)
        os.seteuid(NOBODY)
        try:
            yield
        finally:
            os.seteuid(0)
            for path, mode in modes.items():
                path.chmod(mode)


@pytest.mark.parametrize(
    ("closed", "mode", "message"),
    [
        ("layers/custom", 0, "custom cannot be read: Permission denied"),
        ("layers", 0, "layers/custom cannot be read: Permission denied"),
        ("layers/custom/variant.py", 0, "variant.py cannot be read: Permission denied"),
        ("layers/custom/more", 0, "more cannot be read: Permission denied"),
        (".", 0, "cannot be read: Permission denied"),
        (".", 0o444, "cannot be read: Permission denied"),
    ],
)
def test_what_may_not_be_read_fails_this_submission_alone(
    closed: str, mode: int, message: str, repository: Path
) -> None:
    asked = rubric.parse(REPOSITORY)
    (repository / "layers/custom/more").mkdir()
    one = Submission("repository", repository)
    before = digest(one, asked)
    with as_nobody(repository):
        assert digest(one, asked) == before
    (repository / closed).chmod(mode)
    with as_nobody(repository.parent):
        assert digest(one, asked) != before
        assert not one.is_of_several(asked)
        with pytest.raises(SubmissionError, match=message):
            read(one.variant("layers/custom", asked) or repository)
    (repository / closed).chmod(0o700)  # pytest removes it later


def test_files_that_may_not_be_read_are_named(tmp_path: Path) -> None:
    """The folder of a single variant whose contents can be listed, but not opened."""
    folder, asked = honest(tmp_path), rubric.parse(QUICK)
    folder.chmod(0o444)
    one = Submission("honest", folder)
    with as_nobody(folder.parent):
        assert one.variant("layers/custom", asked) == folder
        with pytest.raises(SubmissionError, match="cannot be read: Permission denied"):
            read(folder)
    folder.chmod(0o700)  # pytest removes it later


def test_a_link_to_anothers_folder(repository: Path, grader: Grader, tmp_path: Path) -> None:
    shutil.move(repository / "layers", tmp_path / "others")
    (repository / "layers").symlink_to(tmp_path / "others")
    grade = grader.grade(Submission("repository", repository))
    assert grade.checks[0].status == "failed"
    assert "layers/custom is a symbolic link" in grade.checks[0].message


def test_names_that_are_no_utf8_are_reported(grader: Grader, tmp_path: Path) -> None:
    folder = tmp_path / "ann"
    folder.mkdir()
    Path(os.fsdecode(bytes(folder / "f") + b"\xfcr.txt")).touch()
    one = Submission("ann", folder)
    assert "f?r.txt" in grader.grade(one).checks[0].message
    assert digest(one, grader._setting.rubric)
