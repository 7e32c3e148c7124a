"""Verb ``handout``: a copy of the repository for students, without solutions."""

from __future__ import annotations

import argparse
from shlex import quote

from mini_dnn.cli.assign import add_rubric, sheets
from mini_dnn.errors import UsageError
from mini_dnn.grading import rubric as rubrics
from mini_dnn.handout.copy import check_folder, write
from mini_dnn.handout.parts import divide
from mini_dnn.paths import expanded


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "handout",
        help="make a copy of the repository for students, without solutions",
        description="Copy the repository without its history and without the variants that are not named. "
        "The copy also lacks everything that explains them: their lessons, headers that only they include, "
        "measurements, and pages for staff. Links and commands in pages that would not work are removed, "
        "and tests that need missing files are skipped. 'make run', 'make test' and 'make docs' work in the "
        "copy.",
    )
    parser.add_argument(
        "--keep",
        nargs="+",
        required=True,
        metavar="NAME",
        help="variants that students receive: names, or the beginnings of names, such as m1 or softmax",
    )
    # In "make handout OUT=~/handout", some shells leave the ~ to us
    parser.add_argument("--out", type=expanded, required=True, metavar="DIR", help="a new folder")
    parser.add_argument(
        "--assign",
        nargs="+",
        default=(),
        metavar="NAME",
        help="write assignment sheets for these milestones or ladders into assignments/; see 'run.py assign'",
    )
    add_rubric(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the copy and describe its contents."""
    check_folder(args.out)
    if args.rubric and not args.assign:
        raise UsageError("--rubric needs --assign, because the sheets describe how the work is graded")
    parts = divide(args.keep)
    rubric = rubrics.load(args.rubric) if args.rubric else None
    written, note = sheets(args.assign, rubric, parts.kept)
    files = write(parts, args.out, {f"assignments/{name}": content for name, content in written.items()})
    print(f"{args.out}: {len(files)} files; {len(parts.absent)} files of this repository are left out")
    print(f"kept: {', '.join(parts.kept)}")
    print(f"left out: {len(parts.left)} other variants with their lessons and headers")
    if note:
        print(f"NOTE: no PDF in assignments/: {note}")
    print(f"\nTry it before you hand it out:\n  make -C {quote(str(args.out))} test")
    return 0
