"""Verb ``new``: a folder for a variant of one's own, copied from another."""

from __future__ import annotations

import argparse
import os
import shlex

from mini_dnn import ops
from mini_dnn.paths import ROOT
from mini_dnn.variant import find
from mini_dnn.variant.scaffold import create, home


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "new",
        help="start a variant of your own from another",
        description="Copy a variant's folder and make that variant the parent of the new one. The new folder "
        "runs at once, as its parent does; then change kernel.cu and variant.py.",
    )
    parser.add_argument(
        "name",
        metavar="FOLDER",
        help="the new folder; m3/my_idea goes under milestones/, OPERATION/my_idea under ladders/",
    )
    parser.add_argument(
        "--from", dest="source", required=True, metavar="NAME", help="the variant to start from"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Make the folder and say what to do next."""
    source = find(args.source)
    folder = create(args.name, source)
    name = shlex.quote(args.name if home(args.name) else str(folder))
    program = f"python {shlex.quote(os.path.relpath(ROOT / 'run.py'))}"
    verb = "" if source.op == ops.DEFAULT else "run "  # without a verb: in the course's network
    emulated = f"{program} {verb}--impl {name} --device emulator --batch 100"
    print(f"{folder} holds kernel.cu and variant.py, copied from {source.name}. Next:")
    print(f"\nrun it, without a GPU:\n  {emulated}")
    print(f"\ncompare the result with float64:\n  {emulated} --check")
    print(f"\nlook for races, wrong indices and missing barriers:\n  {program} check --impl {name}")
    print(f"\nsee what you have changed:\n  {program} diff {name}")
    return 0
