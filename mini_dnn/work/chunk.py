"""The program of a worker: it computes a chunk of items, one after the other, from files that describe it.

A folder of work has ``work-HASH.json`` (what is computed) and ``chunks/NAME.json`` (which items). A worker
adds ``chunks/NAME.began``, one file for each result, and ``chunks/NAME.ended``. All of them are text, and
nothing that a worker has pickled is ever read.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, field
from importlib import import_module
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, cast

from mini_dnn.errors import MiniDnnError
from mini_dnn.paths import write_atomically
from mini_dnn.work.items import Item, Record, Work, read_record, seed_of, write_record

MOST_WORDS = 4000  # the most characters of an error

Compute = Callable[[Any, int], Any]
_set_up: dict[Path, tuple[Compute, Finalize]] = {}  # by the file of the work; at most one


@dataclass(frozen=True)
class Ended:
    """How a chunk ended.

    Parameters
    ----------
    setup_s
        Seconds before the first item.
    errors
        The error of each failed item, by its name.
    fault
        The class and message of an error before the first item; empty if there was none.
    """

    setup_s: float
    errors: dict[str, str] = field(default_factory=dict)
    fault: tuple[str, ...] = ()


def describe(folder: Path, work: Work) -> str:
    """Write the description that all chunks share, and return its file's name, which depends on the work."""
    shared = {"function": work.function, "common": dict(work.common), "results": str(work.results.resolve())}
    content = (json.dumps(shared, indent=1) + "\n").encode()
    name = f"work-{hashlib.sha256(content).hexdigest()[:12]}.json"
    write_atomically(folder / name, content)
    return name


def write_chunk(
    folder: Path, name: str, work: Work, shared: str, items: Sequence[Item], most_s: float
) -> None:
    """Write the items of a chunk, and the seconds after which it starts no further item."""
    listed = [[item.name, work.keys[item.name], item.value] for item in items]
    content = json.dumps({"work": shared, "most_s": most_s, "items": listed})
    write_atomically(folder / "chunks" / f"{name}.json", content.encode())


def has_begun(folder: Path, name: str) -> bool:
    """Whether a worker has begun a chunk."""
    return (folder / "chunks" / f"{name}.began").exists()


def ended(folder: Path, name: str) -> Ended | None:
    """How a chunk ended; None if it is still running or was killed."""
    try:
        content = json.loads((folder / "chunks" / f"{name}.ended").read_bytes())
        return Ended(float(content["setup_s"]), dict(content["errors"]), tuple(content["fault"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def keys_in(folder: Path, name: str) -> dict[str, str]:
    """The keys of a chunk's items, by name; none if its file is gone."""
    try:
        content = json.loads((folder / "chunks" / f"{name}.json").read_bytes())
        return {str(item): str(key) for item, key, _ in content["items"]}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def forget(folder: Path, name: str) -> None:
    """Remove the files of a chunk."""
    for kind in ("json", "began", "ended"):
        (folder / "chunks" / f"{name}.{kind}").unlink(missing_ok=True)


def take_failures(folder: Path) -> dict[tuple[str, str], str]:
    """The errors in all chunks that have ended, by an item's name and key. The files are removed."""
    failures: dict[tuple[str, str], str] = {}
    for file in (folder / "chunks").glob("*.ended"):
        if how := ended(folder, file.stem):
            for item in keys_in(folder, file.stem).items():
                if why := how.errors.get(item[0]) or ": ".join(how.fault):
                    failures[item] = why
        forget(folder, file.stem)
    return failures


def run_chunk(folder: str, name: str, each: Callable[[], None] = lambda: None, keeps: bool = False) -> None:
    """Compute the items of a chunk that have no result.

    Parameters
    ----------
    each
        Called after every item.
    keeps
        Whether the set-up is kept for this process's next chunk of the same work. The process ends with the
        run.
    """
    since, place = time.monotonic(), Path(folder)
    chunk = json.loads((place / "chunks" / f"{name}.json").read_bytes())
    shared = json.loads((place / chunk["work"]).read_bytes())
    results = Path(shared["results"])
    where = f"{socket.gethostname()} {os.getpid()} {os.environ.get('SLURM_JOB_ID', '')}\n"
    write_atomically(place / "chunks" / f"{name}.began", where.encode())
    end = Ended(0.0)
    left = [item for item in chunk["items"] if read_record(results, item[0], item[1]) is None]
    if left:
        try:
            with _kept(place / chunk["work"], shared) if keeps else _opened(shared) as compute:
                end = _compute(compute, left, results, since, chunk["most_s"], each)
        except MiniDnnError as error:
            end = Ended(time.monotonic() - since, fault=(type(error).__name__, str(error)[:MOST_WORDS]))
    write_atomically(place / "chunks" / f"{name}.ended", json.dumps(asdict(end)).encode())


def _opened(shared: dict[str, Any]) -> AbstractContextManager[Compute]:
    return cast(AbstractContextManager[Compute], _function(shared["function"])(shared["common"]))


def _kept(file: Path, shared: dict[str, Any]) -> AbstractContextManager[Compute]:
    """Return the function for the items of the work in this file. The process's first chunk sets it up."""
    if file not in _set_up:
        for other in list(_set_up):
            _set_up.pop(other)[1]()
        with ExitStack() as stack:
            compute = stack.enter_context(_opened(shared))
            # at the end of the process; a pool's processes run no `atexit`
            _set_up[file] = compute, Finalize(None, stack.pop_all().close, exitpriority=1)
    return nullcontext(_set_up[file][0])


def _compute(
    compute: Compute,
    items: list[list[Any]],
    results: Path,
    since: float,
    most_s: float,
    each: Callable[[], None],
) -> Ended:
    errors: dict[str, str] = {}
    setup_s = time.monotonic() - since
    for name, key, value in items:
        began = time.monotonic()
        if began - since > most_s:
            break
        try:
            found = compute(value, seed_of(key))
            write_record(results, name, key, Record(found, time.monotonic() - began))
        except Exception as error:  # a full disk, short memory, a fault of ours: only this item fails
            errors[name] = f"{type(error).__name__}: {error}"[:MOST_WORDS]
        each()
    return Ended(setup_s, errors)


def _function(name: str) -> Callable[[Any], Any]:
    module, _, attribute = name.partition(":")
    found: Callable[[Any], Any] = getattr(import_module(module), attribute)
    return found
