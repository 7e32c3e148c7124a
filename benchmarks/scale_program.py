"""A program that computes items: ``python scale_program.py EXECUTOR FOLDER COUNT SECONDS [PROFILE]``."""

import sys
from pathlib import Path

from mini_dnn.errors import MiniDnnError
from mini_dnn.work import Item, Profile, Work, find_engine, read_profile, run_items


def main() -> int:
    """Return the exit status: 0 if all items have a result, 1 if some have none, 2 for wrong use."""
    executor, folder, count, seconds = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    profile = read_profile(Path(sys.argv[5]), executor) if len(sys.argv) > 5 else Profile()
    items = [Item(f"item{at}", at) for at in range(count)]
    common = {"log": str(folder / "log"), "seconds": seconds}
    work = Work("scale_items:logged", items, folder / "results", common)
    try:
        found = run_items(work, find_engine(executor, profile, 2), folder / "jobs")
    except MiniDnnError as error:
        print(error)
        return 2
    print(len(found.results), found.failures)
    return 1 if found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
