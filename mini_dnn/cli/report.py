"""Verb ``report``: a page, plots and tables from results files."""

from __future__ import annotations

import argparse
import stat
from collections.abc import Sequence
from pathlib import Path

from mini_dnn.errors import UsageError
from mini_dnn.measuring import work_log
from mini_dnn.paths import ROOT, write_atomically
from mini_dnn.report import readmes
from mini_dnn.report.board import Board, boards, shown
from mini_dnn.report.load import Results, load, results_files
from mini_dnn.report.stale import not_looked_up

OUT = Path("build/report")
LOG_OUT = Path("build/work-log")
MOST_NAMED = 10  # variants that a line lists
OUT_OF_DATE = 1  # exit status


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "report",
        help="make a page with tables and plots from results files",
        description="Make a page with tables and plots from results files. With --readmes, update the tables "
        "in the READMEs instead. With --log, make a page from a work log.",
    )
    parser.add_argument(
        "results",
        nargs="*",
        type=Path,
        help="results files written by bench, or folders (default benchmarks/results)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help=f"folder for the report (default {OUT}; for a work log {LOG_OUT})",
    )
    parser.add_argument(
        "--force",
        action="store_true",
        help="write into a folder even if it does not contain a mini_dnn report",
    )
    parser.add_argument(
        "--log",
        type=Path,
        metavar="FILE",
        help="make a page from a work log instead: attempts, figures, results",
    )
    parser.add_argument("--readmes", action="store_true", help="rewrite the tables in the READMEs instead")
    parser.add_argument(
        "--check", action="store_true", help="only check whether the tables in the READMEs are up to date"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Write the report, or update the tables in the READMEs."""
    if args.log:
        return _work_log(args)
    if (args.readmes or args.check) and (args.out or args.force):
        raise UsageError(
            "--out and --force are for a report, but --readmes and --check are about the READMEs; use them "
            "in two commands"
        )
    results = load(results_files(args.results))
    _say_doubts(results)
    if args.readmes or args.check:
        return _readmes(shown(boards(results)), results, args.check)
    # Imported here, so that no other verb has to wait for matplotlib
    from mini_dnn.report.page import write_report

    written = write_report(results, args.out or OUT, args.force)
    print(f"{len(results.rows)} rows of {len(results.records)} files; open {written[0]}")
    print("also written: " + ", ".join(path.name for path in written[1:]))
    return 0


def _work_log(args: argparse.Namespace) -> int:
    if args.results or args.readmes or args.check:
        raise UsageError(
            "--log makes a page from a work log only; remove the results files and the other flags"
        )
    log = work_log.read(args.log)
    for damaged in log.damaged:
        print(f"note: line {damaged.line} of {args.log} is damaged and was skipped: {damaged.why}")
    # Imported here, so that no other verb has to wait for matplotlib
    from mini_dnn.report.work_log_page import write_work_log

    written = write_work_log(log, args.out or LOG_OUT, args.force)
    count = "1 entry" if len(log.entries) == 1 else f"{len(log.entries)} entries"
    print(f"{count} of {args.log}; open {written[0]}")
    print("also written: " + ", ".join(path.name for path in written[1:]))
    return 0


def _say_doubts(results: Results) -> None:
    """Print notes about files and variants that were not verified."""
    if results.unverified:
        names = ", ".join(path.name for path in results.unverified)
        print(f"note: not verified, because older versions did not write a checksum: {names}")
    if outside := not_looked_up(results):
        names = ", ".join(outside[:MOST_NAMED]) + f" and {len(outside) - MOST_NAMED} more" * (
            len(outside) > MOST_NAMED
        )
        print(f"note: not looked up, because these are not variants of this checkout: {names}")


def _readmes(found: Sequence[Board], results: Results, only_check: bool) -> int:
    savings = [one for one in results.savings if one.content.device.name == found[0].device]
    updated = readmes.updated(found, ROOT, savings, results.batches)
    behind = False
    for path, (is_now, should_be) in updated.items():
        name = path.relative_to(ROOT)
        if is_now == should_be:
            print(f"{name}: up to date")
        elif only_check:
            behind = True
            print(f"{name}: its table does not match the results; update it: run.py report --readmes")
        else:
            write_atomically(path, should_be.encode(), stat.S_IMODE(path.stat().st_mode))
            print(f"{name}: written")
    stale = [entry.variant for board in found for entry in board.course if entry.stale]
    if stale:
        print(
            f"note: {', '.join(stale)} changed since they were measured; measure again: run.py bench --out …"
        )
    return OUT_OF_DATE if behind else 0
