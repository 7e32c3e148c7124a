"""Grade many submissions: side by side, each alone, resumed where an earlier run was stopped.

The folder of results holds ``grades/NAME.json`` for each submission, written whole as soon as it is graded,
with hashes of what was graded and by which rubric. A submission whose file is there and whose hashes match is
not graded again.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from mini_dnn.errors import UsageError
from mini_dnn.grading import submission
from mini_dnn.grading.confined.sandbox import Isolation, code_folders
from mini_dnn.grading.grader import Grader, Setting
from mini_dnn.grading.grades import Grade
from mini_dnn.grading.locks import locked
from mini_dnn.grading.submission import Submission
from mini_dnn.paths import PACKAGE, write_atomically

VERSION = 4  # of how grading is done: a new number grades everything again

Progress = Callable[[Grade, bool], None]  # a grade, and whether it was there already


def check_setting(setting: Setting, submissions: Sequence[Submission], rubric_file: Path | None) -> None:
    """Refuse what would weaken the isolation, before any work.

    Raises
    ------
    UsageError
        The system offers too little, or something secret lies where submissions may read.
    """
    isolation = Isolation()
    if not setting.weak_isolation and not isolation.full:
        raise UsageError(
            f"this system cannot keep submissions apart: {isolation}. Grade on another one, or add "
            "--weak-isolation if you trust every submission"
        )
    secret = [setting.out.resolve(), *(one.folder for one in submissions)]
    secret += [rubric_file.resolve()] if rubric_file else []
    if setting.out.resolve().is_relative_to(PACKAGE):  # a new folder there would be readable
        raise UsageError(f"--out {setting.out} lies in {PACKAGE}, among the code; name another folder")
    for path in secret:
        for folder in code_folders():
            if path.is_relative_to(folder.resolve()):
                raise UsageError(
                    f"{path} lies in {folder}, which every submission can read, as Python, packages or a "
                    "compiler are there; move it"
                )


def grade_all(
    submissions: Sequence[Submission], setting: Setting, progress: Progress = lambda grade, known: None
) -> tuple[list[Grade], dict[str, str]]:
    """Grade each submission that has no grade yet.

    Returns
    -------
    grades, failures
        In the order of the submissions; and why others could not be graded, by name, which is not their
        fault: the next run tries them again.

    Raises
    ------
    UsageError, DeviceError, DataError
        Nothing can be graded at all.
    """
    with _folder_of_our_own(setting.out) as work:
        grades: dict[str, Grade] = {}
        failures: dict[str, str] = {}
        left = []
        for one in submissions:
            known = stored(one, setting)
            if known:
                grades[one.name] = known
                progress(known, True)
            else:
                left.append(one)
        if left:
            with Grader(setting, work) as grader, ThreadPoolExecutor(setting.jobs) as pool:
                tasks = {one.name: pool.submit(_keep, grader, one, setting, progress) for one in left}
                try:
                    for name, task in tasks.items():
                        found = task.result()
                        if isinstance(found, Grade):
                            grades[name] = found
                        else:
                            failures[name] = found
                except BaseException:
                    pool.shutdown(wait=False, cancel_futures=True)
                    grader.close()
                    raise
    return [grades[one.name] for one in submissions if one.name in grades], failures


def grade_one(one: Submission, setting: Setting) -> Grade | str:
    """Grade one submission in a process of its own choosing, such as a job of a cluster, and keep the grade.

    Returns
    -------
    Grade or str
        The grade, also written to the folder of results; or why there is none.
    """
    known = stored(one, setting)
    if known:
        return known
    with tempfile.TemporaryDirectory(prefix="mini_dnn-grade-") as work, Grader(setting, Path(work)) as grader:
        return _keep(grader, one, setting, lambda grade, known: None)


def stored(one: Submission, setting: Setting) -> Grade | None:
    """The grade of an earlier run, if it is of the same files by the same rubric."""
    try:
        record = json.loads(_file(one, setting).read_text())
        if record["key"] != _key(one, setting):
            return None
        return Grade.from_json(json.dumps(record["grade"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(grader: Grader, one: Submission, setting: Setting, progress: Progress) -> Grade | str:
    """Grade, write, report; a string says why there is no grade."""
    try:
        key = _key(one, setting)
        grade = grader.grade(one)
        record = {"key": key, "grade": json.loads(grade.to_json())}
        write_atomically(_file(one, setting), (json.dumps(record, indent=1) + "\n").encode())
    except Exception as error:  # a full disk, short memory, a fault of ours: of this submission alone
        return f"{type(error).__name__}: {error}"
    progress(grade, False)
    return grade


def _file(one: Submission, setting: Setting) -> Path:
    return setting.out / "grades" / f"{one.name}.json"


def _key(one: Submission, setting: Setting) -> dict[str, str | int]:
    return {
        "version": VERSION,
        "submission": submission.digest(one, setting.rubric),
        "rubric": setting.rubric.digest,
        "device": setting.device,
    }


@contextmanager
def _folder_of_our_own(out: Path) -> Iterator[Path]:
    """A folder for temporary files beside the results; what a killed run left there is removed.

    Raises
    ------
    UsageError
        The results cannot be written, or another run writes them.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written: {error.strerror}; name another folder") from error
    work = out / ".work"
    with locked(out / ".lock", f"--out {out}: another run is grading into it; wait for it, or name another"):
        try:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(mode=0o700)
            yield work.resolve()
        finally:
            shutil.rmtree(work, ignore_errors=True)
