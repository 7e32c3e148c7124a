"""Verb ``new``: a folder for your own variant, copied from another one."""

from __future__ import annotations

import argparse

from mini_dnn import ops
from mini_dnn.errors import UsageError
from mini_dnn.paths import program
from mini_dnn.variant import exercise, find
from mini_dnn.variant.folders import MINE
from mini_dnn.variant.scaffold import create, is_own


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "new",
        help="start a variant of your own from another one",
        description="Copy the folder of a variant and make this variant the parent of the new one. "
        "The new folder runs immediately, with the same results as its parent. Then change kernel.cu "
        "and variant.py. With --exercise, the kernel of the copy has blanks to fill, and 'run.py "
        "hint' prints hints.",
    )
    parser.add_argument(
        "name",
        nargs="?",
        metavar="FOLDER",
        type=lambda text: text.rstrip("/") or text,  # a shell may complete names with a slash
        help="the name: my_idea and m3/my_idea are created in mine/, which git ignores; or a path, such as "
        "./my_idea",
    )
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument("--from", dest="source", metavar="NAME", help="the variant to start from")
    start.add_argument(
        "--exercise", metavar="NAME", help="make an exercise from this variant: its kernel with blanks"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Create the folder and print what to do next."""
    if args.exercise:
        return _exercise(args)
    if not args.name:
        raise UsageError(f"name the new folder: {program('new', 'my_idea', '--from', args.source)}")
    source = find(args.source)
    folder = create(args.name, source)
    name = f"{MINE}/{args.name}" if is_own(args.name) else str(folder)
    verb = [] if source.op == ops.DEFAULT else ["run"]  # without a verb, the course's network runs
    emulated = program(*verb, "--impl", name, "--device", "emulator", "--batch", "100")
    print(f"{folder} contains kernel.cu and variant.py, copied from {source.name}. Next:")
    print(f"\nrun it, without a GPU:\n  {emulated}")
    print(f"\ncompare the result with float64:\n  {emulated} --check")
    print(f"\nlook for races, wrong indices and missing barriers:\n  {program('check', name)}")
    print(f"\nsee what you have changed:\n  {program('diff', name)}")
    return 0


def _exercise(args: argparse.Namespace) -> int:
    """Create an exercise and print what to do next."""
    source = find(args.exercise)
    blanks = exercise.blanks_of(source)
    given = args.name or source.folder.name
    folder = create(given, source, exercise.make)
    name = f"{MINE}/{given}" if is_own(given) else str(folder)
    print(f"{folder / 'kernel.cu'} has {len(blanks)} blanks, BLANK_1 to BLANK_{len(blanks)}. Next:")
    print("\nreplace them, and answer the questions in the header of the file")
    print(f"\nget a hint for the first remaining blank:\n  {program('hint', name)}")
    print(f"\nrepeat until it finds nothing:\n  {program('check', name)}")
    print(f"\ncompare with the reference:\n  {program('diff', name, source.name)}")
    return 0
