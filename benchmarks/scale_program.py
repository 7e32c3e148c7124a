"""A program that computes items with two workers, for `scale_kills.py` and tests.

``python benchmarks/scale_program.py local FOLDER 100 0.01`` computes 100 items of 0.01 seconds.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mini_dnn.work import Item, Profile, Work, find_engine, read_profile, run_items


def main(words: Sequence[str] | None = None) -> int:
    """Compute the items. Return 1 if some have no result."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("executor", help="local, slurm, dask or mpi")
    parser.add_argument("folder", type=Path, help="a folder for results, jobs and the log")
    parser.add_argument("count", type=int, help="number of items")
    parser.add_argument("seconds", type=float, help="seconds of an item")
    parser.add_argument("profile", type=Path, nargs="?", help="a profile of the cluster")
    args = parser.parse_args(words)
    profile = read_profile(args.profile, args.executor) if args.profile else Profile()
    items = [Item(f"item{at}", at) for at in range(args.count)]
    common = {"log": str(args.folder / "log"), "seconds": args.seconds}
    work = Work("scale_items:logged", items, args.folder / "results", common)
    found = run_items(work, find_engine(args.executor, profile, 2), args.folder / "jobs")
    print(len(found.results), found.failures)
    return 1 if found.failures else 0


if __name__ == "__main__":
    from mini_dnn.cli import status_of  # not at the top, because workers import this file

    sys.exit(status_of(main))
