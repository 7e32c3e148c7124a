"""Grading as jobs, one a submission: each is ``run.py grade`` of its own, with its own folder of results.

Below the folder of results lie ``jobs/`` (scripts and logs) and ``parts/NAME/`` (what the job of that
submission wrote). A grade is taken over to ``grades/NAME.json``, from where a stopped run goes on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mini_dnn.grading import submission
from mini_dnn.grading.cluster import Profile
from mini_dnn.grading.executors import logs, run_on
from mini_dnn.grading.grader import Setting
from mini_dnn.grading.grades import Grade
from mini_dnn.grading.run import Progress, stored
from mini_dnn.grading.submission import Submission
from mini_dnn.paths import ROOT, write_atomically


def grade_as_jobs(
    submissions: Sequence[Submission],
    setting: Setting,
    rubric: str,
    executor: str,
    profile: Profile,
    progress: Progress = lambda grade, known: None,
) -> tuple[list[Grade], dict[str, str]]:
    """Grade each submission that has no grade yet, in a job of its own.

    Parameters
    ----------
    rubric
        File or preset that the setting's rubric was read from.
    executor, profile
        See `executors.run_on`.

    Returns
    -------
    grades, failures
        As `run.grade_all` gives them.

    Raises
    ------
    UsageError, DeviceError, DataError
        Nothing can be submitted.
    """
    grades: dict[str, Grade] = {}
    for one in submissions:
        known = stored(one, setting)
        if known:
            grades[one.name] = known
            progress(known, True)
    left = [one for one in submissions if one.name not in grades]

    def collect(done: int) -> None:
        for one in left:
            grade = _taken_over(one, setting) if one.name not in grades else None
            if grade:
                grades[one.name] = grade
                progress(grade, False)

    folder = setting.out / "jobs"
    commands = [_command(one, setting, rubric) for one in left]
    codes = run_on(executor, profile, commands, folder, collect) if left else []
    collect(len(left))  # files that a network file system showed later than the end of their jobs
    failures = {
        one.name: f"its job ended {_how(code)}; what it printed is in {logs(command, folder)}"
        for one, command, code in zip(left, commands, codes, strict=True)
        if one.name not in grades
    }
    return [grades[one.name] for one in submissions if one.name in grades], failures


def _command(one: Submission, setting: Setting, rubric: str) -> list[str]:
    file = Path(rubric)
    words = [sys.executable, str(ROOT / "run.py"), "grade", str(one.folder)]
    words += ["--rubric", str(file.resolve()) if file.is_file() else rubric]
    words += ["--out", str(_part(one, setting).resolve()), "--device", setting.device, "--data", setting.data]
    words += ["--data-dir", str(setting.data_dir.resolve())] if setting.data_dir else []
    return words + ["--weak-isolation"] * setting.weak_isolation


def _part(one: Submission, setting: Setting) -> Path:
    return setting.out / "parts" / one.name


def _taken_over(one: Submission, setting: Setting) -> Grade | None:
    """The grade that a job has written, now also in this run's folder; None if there is none."""
    (inner,) = submission.named([one.folder])
    file = _part(one, setting) / "grades" / f"{inner.name}.json"
    if not file.exists() or stored(inner, replace(setting, out=_part(one, setting))) is None:
        return None
    record = json.loads(file.read_text())
    record["grade"]["submission"] = one.name
    content = json.dumps(record, indent=1) + "\n"
    write_atomically(setting.out / "grades" / f"{one.name}.json", content.encode())
    return stored(one, setting)


def _how(code: int | None) -> str:
    return (
        "without a status: by its time limit, by hand, or with its node"
        if code is None
        else f"with status {code}"
    )
