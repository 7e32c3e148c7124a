"""Grade many submissions in parallel, separately, and resume where an earlier run was stopped.

The folder of results holds ``grades/NAME.json`` for each submission, with the hash of the submission and of
the rubric. It is written atomically when a submission has been graded. A submission is not graded again if
its file exists and the hash matches. Workers do the grading, and an engine runs the workers: see
`mini_dnn.work`.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from mini_dnn import datasets
from mini_dnn.errors import UsageError, reason
from mini_dnn.grading import jobs, submission
from mini_dnn.grading.confined.sandbox import Isolation, code_folders
from mini_dnn.grading.grader import Setting
from mini_dnn.grading.grades import Grade
from mini_dnn.grading.stages import CPU, GPU, WHOLE, merged, passed
from mini_dnn.grading.submission import Submission
from mini_dnn.paths import PACKAGE
from mini_dnn.work import Engine, Item, Local, Work, run_items
from mini_dnn.work.items import Record, write_record
from mini_dnn.work.locks import locked

VERSION = 6  # version of the grading procedure: a new number grades everything again

OWN = (".lock", "grades", "staff")  # names that a folder of earlier results, or a part of one, has
UNREADABLE = re.compile(r'["\\\n\ud800-\udfff]')  # characters of a path that #include cannot name
STAGES = "stages"  # the folder, next to the grades, with the results of each of two stages


@dataclass(frozen=True)
class Told:
    """A grade that has just become available.

    Parameters
    ----------
    grade
        The grade; of the checks of one stage only if `stage` is not empty.
    known
        Whether it already existed.
    stage
        ``"cpu"`` or ``"gpu"`` for one of two stages, or an empty string.
    number, of
        Its number within the stage, and how many grades the stage will have.
    """

    grade: Grade
    known: bool
    stage: str
    number: int
    of: int


Progress = Callable[[Told], None]


def check_setting(setting: Setting, submissions: Sequence[Submission], rubric_file: Path | None) -> None:
    """Raise an error, before any work, for settings that would weaken the isolation.

    Raises
    ------
    UsageError
        The system offers too little isolation, or something secret is where submissions may read.
    """
    isolation = Isolation()
    if not setting.weak_isolation and not isolation.full:
        raise UsageError(
            f"this system cannot isolate submissions: {isolation}. Grade on another system, or add "
            "--weak-isolation if you trust every submission"
        )
    secret = [setting.out.resolve(), *(one.folder for one in submissions)]
    secret += [rubric_file.resolve()] if rubric_file else []
    if setting.out.resolve().is_relative_to(PACKAGE):  # submissions could read a new folder there
        raise UsageError(f"--out {setting.out} is inside the package {PACKAGE}; name another folder")
    if UNREADABLE.search(str(setting.out.resolve())):
        raise UsageError(
            f"--out {setting.out}: submissions are compiled in this folder, and compilers do not find files "
            "whose path has a quotation mark, a backslash, a line break, or bytes that are not UTF-8; name "
            "another folder"
        )
    for path in secret:
        for folder in code_folders():
            if path.is_relative_to(folder.resolve()):
                raise UsageError(
                    f"{path} is in {folder}, which every submission can read, because it contains "
                    "Python, packages or a compiler; move the file"
                )


def grade_all(
    submissions: Sequence[Submission],
    setting: Setting,
    progress: Progress = lambda told: None,
    engine: Engine | None = None,
    gpu: Engine | None = None,
) -> tuple[list[Grade], dict[str, str]]:
    """Grade all submissions that have no grade yet.

    Parameters
    ----------
    engine
        Where to grade; by default, on as many processes of this machine as the setting says.
    gpu
        Where GPUs are. If it is given, grading has two stages: ``engine`` runs all checks in the emulator,
        and ``gpu`` times the variants that passed.

    Returns
    -------
    grades, failures
        The grades in the order of the submissions. Failures are reasons, by name, why a submission could not
        be graded through no fault of its own; the next run tries it again.

    Raises
    ------
    UsageError, DeviceError, DataError
        Nothing can be graded at all.
    """
    setting = _with_data(setting)
    with _folder_of_our_own(setting.out) as folder:
        used = engine or Local(setting.jobs)
        beside = folder if isinstance(used, Local) else None
        run = _Run(submissions, setting, progress, beside)
        if gpu is None:
            run.whole(used)
        else:
            run.in_stages(used, gpu)
    return [run.grades[one.name] for one in submissions if one.name in run.grades], run.failures


class _Run:
    """Collects the grades and failures of a run."""

    def __init__(
        self, submissions: Sequence[Submission], setting: Setting, progress: Progress, beside: Path | None
    ) -> None:
        self._submissions, self._setting = submissions, setting
        self._progress, self._beside = progress, beside
        self._tell = self._teller(WHOLE, len(submissions))
        self.grades: dict[str, Grade] = {}
        self.failures: dict[str, str] = {}

    def whole(self, engine: Engine) -> None:
        """Run all checks in one stage."""

        def heard(name: str, record: Record, known: bool) -> None:
            self._keep(_grade(record), known)

        items = [self._item(one) for one in self._submissions]
        found = run_items(self._work(items, self._setting, WHOLE), engine, self._setting.out / "jobs", heard)
        self.failures = found.failures

    def in_stages(self, engine: Engine, gpu: Engine) -> None:
        """Run the checks in the emulator for all submissions, then time what passed."""
        final = self._work([self._item(one) for one in self._submissions], self._setting, WHOLE)
        left = []
        for one in self._submissions:
            known = final.result(one.name)
            if known:
                self._keep(_grade(known), True)
            else:
                left.append(one)
        emulated = replace(self._setting, device="emulator")
        first = self._stage([self._item(one) for one in left], emulated, CPU, engine)
        chosen = {name: passed(_grade(record), self._setting.rubric) for name, record in first.items()}
        timed = [self._item(one, chosen[one.name]) for one in left if chosen.get(one.name)]
        clocked = replace(self._setting, device="cuda")
        second = self._stage(timed, clocked, GPU, gpu)
        for name in chosen:
            if chosen[name] and name not in second:
                continue
            grade = merged(_grade(first[name]), _grade(second[name]) if name in second else None)
            record = Record(json.loads(grade.to_json()), grade.seconds)
            write_record(final.results, name, final.keys[name], record)
            self._keep(grade, False)

    def _stage(
        self, items: Sequence[Item], setting: Setting, stage: str, engine: Engine
    ) -> dict[str, Record]:
        tell = self._teller(stage, len(items))

        def heard(name: str, record: Record, known: bool) -> None:
            tell(_grade(record), known)

        work = self._work(items, setting, stage)
        found = run_items(work, engine, self._setting.out / "jobs" / stage, heard)
        self.failures |= found.failures
        return found.results

    def _keep(self, grade: Grade, known: bool) -> None:
        self.grades[grade.submission] = grade
        self._tell(grade, known)

    def _teller(self, stage: str, of: int) -> Callable[[Grade, bool], None]:
        """A function that reports the grades of a stage and numbers them."""
        numbers = count(1)
        return lambda grade, known: self._progress(Told(grade, known, stage, next(numbers), of))

    def _item(self, one: Submission, variants: list[str] | None = None) -> Item:
        rubric = self._setting.rubric
        parts = [submission.digest(one, rubric), rubric.digest, self._setting.device, *(variants or ())]
        if rubric.accuracy:
            parts.append(self._setting.data)
        return Item(one.name, jobs.value_of(one, variants), " ".join(parts))

    def _work(self, items: Sequence[Item], setting: Setting, stage: str) -> Work:
        """Describe the computation, and where the grades are stored."""
        results = setting.out / "grades" if stage == WHOLE else setting.out / STAGES / stage
        common = jobs.shared(setting, stage, self._beside)
        return Work(f"{jobs.__name__}:grading", items, results, common, code=f"{VERSION} {stage}")


def _with_data(setting: Setting) -> Setting:
    """Name the data set that is found in place of "auto", so that all workers use it, and keys name it.

    The folder need not be in the keys: published files are compared with their MD5.
    """
    if not any(variant.points.get("accuracy") for variant in setting.rubric.variants):
        return setting
    images = datasets.load(setting.data, "test", setting.data_dir)
    return replace(setting, data=images.name, data_note=images.note)


def _grade(record: Record) -> Grade:
    return Grade.from_json(json.dumps(record.value))


@contextmanager
def _folder_of_our_own(out: Path) -> Iterator[Path]:
    """Create a folder for temporary files next to the results. Remnants of a killed run are removed.

    Raises
    ------
    UsageError
        The results cannot be written, another run is writing them, or the folder is not one of grades.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out} cannot be written: {reason(error)}; name another folder") from error
    held = {path.name for path in out.iterdir()}
    if held and held.isdisjoint(OWN):
        raise UsageError(f"--out {out} holds other files, and no grades; name a new folder")
    work = out / ".work"
    with locked(
        out / ".lock", f"--out {out}: another run is using it; wait until it ends, or name another folder"
    ):
        try:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(mode=0o700)
            yield work.resolve()
        finally:
            shutil.rmtree(work, ignore_errors=True)
