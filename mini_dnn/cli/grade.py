"""Verb ``grade``: grade submissions by a rubric, each in separate processes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from mini_dnn import datasets
from mini_dnn.cli.common import DIFFERS
from mini_dnn.device import DEVICES
from mini_dnn.errors import UsageError
from mini_dnn.grading import rubric, similarity, submission
from mini_dnn.grading.checks import NOT_TIMED
from mini_dnn.grading.confined.sandbox import FILES_SHOW, Isolation
from mini_dnn.grading.grader import Setting
from mini_dnn.grading.grades import FAILED, PASSED, Grade
from mini_dnn.grading.outputs import write_all
from mini_dnn.grading.outputs.text import one_line
from mini_dnn.grading.run import STAGES, Told, check_setting, grade_all
from mini_dnn.grading.submission import Submission
from mini_dnn.variant.given import given
from mini_dnn.work import EXECUTORS, find_engine, read_profile

VERDICT_CHARACTERS = 500  # of text that a submission may have written


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "grade",
        help="grade submissions by a rubric",
        description="Grade submissions, each isolated in its own processes. The same command continues a "
        "run that was stopped. Exit status: 0 all submissions were graded; 1 some could not be graded, for a "
        "reason outside the submission; 2 error, such as wrong use.",
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
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="with --executor local: number of submissions to grade at a time (default: `workers` of the "
        "profile, or 1)",
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="default auto: the GPU if there is one"
    )
    parser.add_argument("--data", choices=datasets.NAMES, default="auto", help="the data set (default auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the four files of Fashion-MNIST")
    parser.add_argument(
        "--executor",
        choices=EXECUTORS,
        default="local",
        help="processes of this machine, Slurm through submitit or by hand, Dask, or MPI (default local)",
    )
    parser.add_argument(
        "--profile",
        type=Path,
        metavar="FILE",
        help="a TOML file with the resources of a job; if it has a table [gpu], all checks run without a GPU "
        "first, and only submissions that pass are timed on one",
    )
    parser.add_argument(
        "--names",
        action="store_true",
        help="show the names of submissions on the leaderboard instead of random aliases",
    )
    parser.add_argument(
        "--similarity",
        nargs="*",
        metavar="GIVEN",
        help="list submissions whose code is similar to that of another, or of a variant of this repository, "
        "for the staff; GIVEN names variants whose code does not count, because students received them, as "
        "'run.py handout --keep' does",
    )
    parser.add_argument(
        "--weak-isolation",
        action="store_true",
        help="continue even if the system cannot isolate submissions; use it only if you trust all of them",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Grade, print a line for each submission, and write the results."""
    if args.jobs is not None and args.jobs < 1:
        raise UsageError(f"--jobs {args.jobs}: expected 1 or more; there are {os.cpu_count()} processors")
    if args.jobs is not None and args.executor != "local":
        raise UsageError(
            f"--jobs {args.jobs} is for --executor local; with {args.executor}, the profile sets how many "
            "jobs run at a time"
        )
    start = None if args.similarity is None else given(args.similarity, "--similarity")
    setting = Setting(
        rubric=rubric.load(args.rubric),
        out=args.out,
        device=args.device,
        jobs=args.jobs or 1,
        data=args.data,
        data_dir=args.data_dir,
        weak_isolation=args.weak_isolation,
    )
    submissions = submission.named(args.submissions)
    submission.check_apart(submissions, args.out, setting.rubric)
    check_setting(setting, submissions, Path(args.rubric) if Path(args.rubric).is_file() else None)
    print(f"rubric    {setting.rubric.name}\nisolation {Isolation()}", flush=True)
    grades, failures = _graded(args, submissions, setting)
    pairs = None if start is None else similarity.compare(submissions, setting.rubric, start)
    write_all(grades, args.out, anonymous=not args.names, pairs=pairs)
    _print_notes(grades)
    for one in submissions:
        if one.is_of_several(setting.rubric):
            print(
                f"NOTE: {one.folder} counts as one submission, and several folders in it have variants; if "
                f"each is a submission, name them: {one.folder}/*/"
            )
    if pairs:
        many = f"{len(pairs)} pairs have" if len(pairs) > 1 else "1 pair has"
        print(f"NOTE: {many} similar code: see {args.out / 'staff' / 'similarity.md'}")
    kept = {file.stem for file in (args.out / "grades").glob("*.json")} - {one.name for one in submissions}
    if kept:
        print(
            "NOTE: tables and leaderboard contain only the submissions that this command names; "
            f"{args.out / 'grades'} has {len(kept)} more: name all submissions to include them"
        )
    for name, why in failures.items():
        print(f"{name}: NOT GRADED, for a reason outside the submission: {one_line(why, VERDICT_CHARACTERS)}")
    print(f"{len(grades)} of {len(submissions)} graded; results in {args.out}")
    return DIFFERS if failures else 0


def _graded(
    args: argparse.Namespace, submissions: Sequence[Submission], setting: Setting
) -> tuple[list[Grade], dict[str, str]]:
    """Return the grades, and the reasons why some submissions have none."""
    profile = read_profile(args.profile, args.executor)
    if args.jobs is not None:
        profile = replace(profile, workers=args.jobs)  # the command line has precedence over the file
    engine = find_engine(args.executor, profile)
    timed = setting.rubric.performance and setting.device != "emulator"
    gpu = find_engine(args.executor, profile.gpu) if profile.gpu and timed else None
    try:
        return grade_all(submissions, setting, _print_grade, engine, gpu)
    except KeyboardInterrupt:
        stages = f", and the results of the two stages in {args.out / STAGES}" if gpu else ""
        print(
            f"stopped: grades, if any are finished, are in {args.out / 'grades'}{stages}; use the same "
            "command to continue"
        )
        raise


def _print_notes(grades: Sequence[Grade]) -> None:
    """Print notes that apply to many grades."""
    for device in sorted({grade.device for grade in grades}):
        print(f"device    {device}")
    if any(FILES_SHOW in check.staff for grade in grades for check in grade.checks):
        print(
            f"NOTE: {FILES_SHOW}. Grade on a system where users may create namespaces, or keep secrets out "
            "of file names"
        )
    accuracies = (check for grade in grades for check in grade.checks if check.name.endswith(": accuracy"))
    for note in sorted({check.staff for check in accuracies if check.status == PASSED and check.staff}):
        print(f"NOTE: {note}")
    untimed = sum(any(check.message == NOT_TIMED for check in grade.checks) for grade in grades)
    if untimed:
        print(
            f"NOTE: no points for performance in {untimed} of {len(grades)} grades, because the emulator "
            "cannot measure GPU time; grade again with --device cuda on a machine with a GPU"
        )


def _print_grade(told: Told) -> None:
    """Print a line for a grade as soon as it is available."""
    grade = told.grade
    failed = [check.name for check in grade.checks if check.status == FAILED]
    verdict = f"failed {', '.join(failed)}" if failed else ""
    if grade.refused:
        verdict = f"REFUSED: {one_line(grade.refused, VERDICT_CHARACTERS)}"
    took = "graded before" if told.known else f"{grade.seconds:.1f} s"
    points = f"{grade.points:g} of {grade.max_points:g}"
    stage = f"{told.stage}  " if told.stage else ""
    line = f"{stage}{told.number:>4}/{told.of}  {grade.submission:<24} {points:>10}  {took:<13}  {verdict}"
    print(line.rstrip(), flush=True)
