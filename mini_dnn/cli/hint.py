"""Verb ``hint``: the next hint for an exercise."""

from __future__ import annotations

import argparse

from mini_dnn.paths import program
from mini_dnn.variant import exercise, find


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "hint",
        help="print the next hint for an exercise",
        description="Show the next hint for the first remaining blank of an exercise ('run.py new "
        "--exercise' makes one). Each call shows a more detailed hint; the last hint is the answer.",
    )
    parser.add_argument("name", metavar="EXERCISE", help="its name or path")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the hint, or what to do next if no blank is left."""
    variant = find(args.name)
    for line in exercise.next_hint(variant.folder):
        print(line)
    if not exercise.left(variant.folder):
        print(f"check it: {program('check', args.name)}")
        print(f"compare it: {program('diff', args.name, exercise.reference(variant.folder))}")
    return 0
