"""Verb ``report``: a page, plots and tables from results files."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mini_dnn.measuring.savings import Savings
from mini_dnn.paths import ROOT
from mini_dnn.report import readmes
from mini_dnn.report.board import Board, boards
from mini_dnn.report.load import Results, load, results_files
from mini_dnn.report.stale import not_looked_up

OUT = Path("build/report")
MOST_NAMED = 10  # variants in a line
OUT_OF_DATE = 1  # exit status


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser("report", help="make a page with tables and plots from results files")
    parser.add_argument(
        "results",
        nargs="*",
        type=Path,
        help="files that bench wrote, or folders (default benchmarks/results)",
    )
    parser.add_argument(
        "--out", type=Path, default=OUT, metavar="DIR", help=f"write it there (default {OUT})"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace files of a folder that holds no report of mini_dnn"
    )
    parser.add_argument("--readmes", action="store_true", help="rewrite the tables in the READMEs instead")
    parser.add_argument(
        "--check", action="store_true", help="only say whether the tables in the READMEs are up to date"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report, or do the READMEs' tables."""
    results = load(results_files(args.results))
    _say_doubts(results)
    if args.readmes or args.check:
        found = boards(results)
        device = found[0].device
        savings = [one for one in results.savings if one.content.device.name == device]
        return _readmes([board for board in found if board.device == device], savings, args.check)
    from mini_dnn.report.page import write_report  # here: no other verb should wait for matplotlib

    written = write_report(results, args.out, args.force)
    print(f"{len(results.rows)} rows of {len(results.records)} files; open {args.out / 'index.html'}")
    print("also written: " + ", ".join(path.name for path in written[1:]))
    return 0


def _say_doubts(results: Results) -> None:
    """What figures rest on that nobody has looked at."""
    if results.unverified:
        names = ", ".join(path.name for path in results.unverified)
        print(f"note: not verified, as older versions wrote no checksum: {names}")
    if outside := not_looked_up(results):
        names = ", ".join(outside[:MOST_NAMED]) + f" and {len(outside) - MOST_NAMED} more" * (
            len(outside) > MOST_NAMED
        )
        print(f"note: not looked up, as these are no variants of this checkout: {names}")


def _readmes(of_device: Sequence[Board], savings: Sequence[Savings], only_check: bool) -> int:
    behind = False
    for path, (is_now, should_be) in readmes.updated(of_device, ROOT, savings).items():
        name = path.relative_to(ROOT)
        if is_now == should_be:
            print(f"{name}: up to date")
        elif only_check:
            behind = True
            print(f"{name}: its table is not that of the results; write it anew: run.py report --readmes")
        else:
            path.write_text(should_be, encoding="utf-8")
            print(f"{name}: written")
    stale = [entry.variant for board in of_device for entry in board.course if entry.stale]
    if stale:
        print(
            f"note: {', '.join(stale)} changed since they were measured; measure again: run.py bench --out …"
        )
    return OUT_OF_DATE if behind else 0
