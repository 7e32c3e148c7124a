"""Verb ``grade``: grade submissions by a rubric, each in processes of its own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from mini_dnn import datasets
from mini_dnn.cli.common import DIFFERS
from mini_dnn.device import DEVICES
from mini_dnn.errors import UsageError
from mini_dnn.grading import rubric, submission
from mini_dnn.grading.checks import NOT_TIMED
from mini_dnn.grading.cluster import Profile, read_profile
from mini_dnn.grading.confined.sandbox import Isolation
from mini_dnn.grading.executors import EXECUTORS
from mini_dnn.grading.grader import Setting
from mini_dnn.grading.grades import FAILED, PASSED, Grade
from mini_dnn.grading.jobs import grade_as_jobs
from mini_dnn.grading.outputs import write_all
from mini_dnn.grading.outputs.text import one_line
from mini_dnn.grading.run import check_setting, grade_all
from mini_dnn.grading.submission import Submission

VERDICT_CHARACTERS = 500  # of what a submission may have worded


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "grade",
        help="grade submissions by a rubric",
        description="Grade submissions, each confined in processes of its own. Started again, it goes on "
        "where it was stopped. Exit status: 0 all are graded, whatever they earned; 1 some could not be, by "
        "no fault of theirs; 2 wrong use.",
    )
    parser.add_argument(
        "submissions",
        nargs="+",
        type=Path,
        metavar="SUBMISSION",
        help="a variant's folder, or a repository with layers or ladders",
    )
    parser.add_argument(
        "--rubric",
        required=True,
        metavar="FILE|PRESET",
        help=f"a TOML file, or {', '.join(rubric.presets())}",
    )
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder of the results")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="submissions at a time (default 1)")
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="default auto: the GPU if there is one"
    )
    parser.add_argument("--data", choices=datasets.NAMES, default="auto", help="the data set (default auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the four files of Fashion-MNIST")
    parser.add_argument(
        "--executor",
        choices=EXECUTORS,
        default="local",
        help="this machine, or a Slurm cluster with a job a submission (default local)",
    )
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="with --executor slurm: what a job asks for, a TOML file"
    )
    parser.add_argument(
        "--names", action="store_true", help="the leaderboard names submissions, not random aliases"
    )
    parser.add_argument(
        "--weak-isolation",
        action="store_true",
        help="go on where the system cannot keep submissions apart: only if you trust every one of them",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Grade, with a line a submission, and write the results."""
    if args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs}: expected 1 or more; there are {os.cpu_count()} processors")
    if args.profile and args.executor != "slurm":
        raise UsageError(f"--profile {args.profile} is for --executor slurm; add that, or leave it out")
    setting = Setting(
        rubric=rubric.load(args.rubric),
        out=args.out,
        device=args.device,
        jobs=args.jobs,
        data=args.data,
        data_dir=args.data_dir,
        weak_isolation=args.weak_isolation,
    )
    submissions = submission.named(args.submissions)
    check_setting(setting, submissions, Path(args.rubric) if Path(args.rubric).is_file() else None)
    print(f"rubric    {setting.rubric.name}\nisolation {Isolation()}", flush=True)
    grades, failures = _graded(args, submissions, setting)
    write_all(grades, args.out, anonymous=not args.names)
    _print_notes(grades)
    kept = {file.stem for file in (args.out / "grades").glob("*.json")} - {one.name for one in submissions}
    if kept:
        print(
            f"NOTE: tables and leaderboard are of the {len(grades)} that were named; {len(kept)} more have "
            f"grades in {args.out / 'grades'}: name all submissions to have all in the tables"
        )
    for name, why in failures.items():
        print(f"{name}: NOT GRADED, by no fault of its own: {one_line(why, VERDICT_CHARACTERS)}")
    print(f"{len(grades)} of {len(submissions)} graded; results in {args.out}")
    return DIFFERS if failures else 0


def _graded(
    args: argparse.Namespace, submissions: Sequence[Submission], setting: Setting
) -> tuple[list[Grade], dict[str, str]]:
    """Grades, and why others have none."""
    lines = _Lines(len(submissions))
    try:
        if args.executor == "slurm":
            profile = read_profile(args.profile) if args.profile else Profile()
            return grade_as_jobs(submissions, setting, args.rubric, "slurm", profile, lines)
        return grade_all(submissions, setting, lines)
    except KeyboardInterrupt:
        print(f"stopped: grades so far are in {args.out / 'grades'}; the same command goes on from there")
        raise


def _print_notes(grades: Sequence[Grade]) -> None:
    """What holds for many of them."""
    for device in sorted({grade.device for grade in grades}):
        print(f"device    {device}")
    accuracies = (check for grade in grades for check in grade.checks if check.name.endswith(": accuracy"))
    for note in sorted({check.staff for check in accuracies if check.status == PASSED and check.staff}):
        print(f"NOTE: {note}")
    untimed = sum(any(check.message == NOT_TIMED for check in grade.checks) for grade in grades)
    if untimed:
        print(
            f"NOTE: {untimed} of them have no points for performance, as the emulator has no clock; grade "
            "again with --device cuda on a machine with a GPU"
        )


class _Lines:
    """Prints a line for each grade as soon as there is one."""

    def __init__(self, total: int) -> None:
        self._total, self._done = total, 0

    def __call__(self, grade: Grade, known: bool) -> None:
        self._done += 1
        failed = [check.name for check in grade.checks if check.status == FAILED]
        verdict = f"failed {', '.join(failed)}" if failed else ""
        if grade.refused:
            verdict = f"REFUSED: {one_line(grade.refused, VERDICT_CHARACTERS)}"
        took = "graded before" if known else f"{grade.seconds:.1f} s"
        points = f"{grade.points:g} of {grade.max_points:g}"
        line = f"{self._done:>4}/{self._total}  {grade.submission:<24} {points:>10}  {took:<13}  {verdict}"
        print(line.rstrip(), flush=True)
