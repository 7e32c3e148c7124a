"""Flag ``--watch``: repeat a verb each time a variant's files change."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from stat import S_ISREG

from mini_dnn.cli.common import INTERRUPTED
from mini_dnn.device.sources import source_files
from mini_dnn.errors import UsageError
from mini_dnn.variant.folders import folder_of

PAUSE_S = 0.3  # between two checks of the files


def add_watch(parser: argparse.ArgumentParser, watched: Callable[[argparse.Namespace], str | None]) -> None:
    """Add the flag to a verb. ``watched`` returns the name of the variant that it runs, if there is one."""
    parser.add_argument(
        "--watch", action="store_true", help="repeat each time a file of the variant changes, until Ctrl-C"
    )
    parser.set_defaults(watched=watched)


def watch(name: str | None, once: Callable[[], int]) -> int:
    """Call ``once`` now and after each change of a variant's files, until Ctrl-C. Return the last status.

    Raises
    ------
    UsageError
        No variant is named.
    """
    if not name:
        raise UsageError("--watch needs a variant's name, because it waits for changes of its files")
    folder = folder_of(name)
    while True:
        before = _state(folder)
        status = once()
        if status == INTERRUPTED:
            return status
        print(f"\nwatching {folder}; press Ctrl-C to stop", file=sys.stderr, flush=True)
        try:
            while _state(folder) == before:
                time.sleep(PAUSE_S)
        except KeyboardInterrupt:
            return status
        print(flush=True)


def _state(folder: Path) -> dict[Path, tuple[int, int]]:
    """The modification time and size of each of the variant's files."""
    files = {path for path in folder.glob("*") if not path.name.startswith(".")}
    with suppress(OSError):  # there may be no kernel, or an editor may be replacing one of its files
        files |= set(source_files(folder / "kernel.cu"))
    found = {}
    for path in files:
        with suppress(OSError):
            status = path.stat()
            if not S_ISREG(status.st_mode):
                continue
            found[path] = (status.st_mtime_ns, status.st_size)
    return found
