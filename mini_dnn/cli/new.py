"""Verb ``new``: a folder for a variant of one's own, copied from another."""

from __future__ import annotations

import argparse
import shlex

from mini_dnn.scaffold import MILESTONE, create
from mini_dnn.variant import find


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "new",
        help="start a variant of your own from another",
        description="Copy a variant's folder and make that variant the parent of the new one. The new folder "
        "runs at once, as its parent does; then change kernel.cu and variant.py.",
    )
    parser.add_argument("name", metavar="FOLDER", help="the new folder; m3/my_idea goes under milestones/")
    parser.add_argument(
        "--from", dest="source", required=True, metavar="NAME", help="the variant to start from"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make the folder and say what to do next."""
    source = find(args.source)
    folder = create(args.name, source)
    name = shlex.quote(args.name if MILESTONE.fullmatch(args.name) else str(folder))
    emulated = f"python run.py --impl {name} --device emulator --batch 100"
    print(f"{folder} holds kernel.cu and variant.py, copied from {source.name}. Next:")
    print(f"  {emulated}           # run it, without a GPU")
    print(f"  {emulated} --check   # compare each convolution with float64")
    print(f"  python run.py diff {name:<60}  # see what you have changed")
    return 0
