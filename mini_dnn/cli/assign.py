"""Verb ``assign``: assignment sheets for students, as Markdown and PDF."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable
from pathlib import Path

from mini_dnn.cli.common import add_force, write_output
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.grading import rubric as rubrics
from mini_dnn.grading.asked import Rubric
from mini_dnn.handout.pdf import as_pdf
from mini_dnn.handout.sheet import groups, sheet


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "assign",
        help="write assignment sheets, as Markdown and PDF",
        description="Write a sheet for each milestone or ladder: what is computed, what to write, the "
        "commands, how it is graded, and the questions of the lesson. It omits the hidden parts of a rubric.",
    )
    parser.add_argument("groups", nargs="+", metavar="NAME", help=f"one of {', '.join(groups())}")
    add_rubric(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="a folder for the sheets")
    add_force(parser)
    parser.set_defaults(run=run)


def add_rubric(parser: argparse.ArgumentParser) -> None:
    """Add the option for the sheet's rubric."""
    parser.add_argument(
        "--rubric", metavar="FILE|PRESET", help="the rubric that the sheet describes (default: none)"
    )


def run(args: argparse.Namespace) -> int:
    """Write the sheets."""
    rubric = rubrics.load(args.rubric) if args.rubric else None
    files, note = sheets(args.groups, rubric)
    there = [name for name in files if (args.out / name).exists()]
    if there and not args.force:
        raise UsageError(f"--out {args.out} has {', '.join(there)}; name another folder, or add --force")
    for name, content in files.items():
        write_output("--out", args.out / name, content)
        print(f"written: {args.out / name}")
    if note:
        print(f"NOTE: no PDF: {note}")
    return 0


def sheets(
    named: Iterable[str], rubric: Rubric | None, kept: Collection[str] | None = None
) -> tuple[dict[str, bytes], str]:
    """Return the files of the sheets by name, and why there is no PDF if there is none."""
    files: dict[str, bytes] = {}
    note = ""
    for group in named:
        text = sheet(group, rubric, kept)
        files[f"{group}.md"] = text.encode()
        try:
            files[f"{group}.pdf"] = as_pdf(text, text.splitlines()[0].removeprefix("# "))
        except MiniDnnError as error:
            note = str(error)
    return files, note
