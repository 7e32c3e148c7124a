"""Measure the engines of `mini_dnn.work`. It starts Slurm, Dask and MPI on this machine.

``python benchmarks/scale.py overhead --out FILE.json``

- ``overhead``: 10,000 empty items with two workers of each engine, compared with one empty call of the engine
  for each chunk;
- ``costs``: the time until the first call of each engine has ended, of each further call, and of the main
  process for each result and chunk;
- ``engines``: items that sleep, with 1 to 8 workers of each engine.

`scale_simulation.py` reads these files from ``results/scale``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import scale_dask
import scale_slurm

from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.measuring.machine import load
from mini_dnn.work import Engine, Item, Profile, Work, chunk, find_engine, read_profile, run_items

HERE = Path(__file__).parent
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self,vader"}
MPIEXEC = ["mpiexec", "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures"]
SLURM = Profile(jobs_at_once=2, cpus=1, memory_gb=1, item_seconds=0.1)


def nothing() -> None:
    """Do nothing."""


def check_engines() -> None:
    """Check that Slurm, Dask and MPI can be started here.

    Raises
    ------
    UsageError
        Something is not installed, or this is not root.
    """
    reasons = [f"Slurm: {reason}" for reason in (scale_slurm.why_not(),) if reason]
    if find_spec("distributed") is None:
        reasons.append("Dask: pip install distributed")
    if find_spec("mpi4py") is None or shutil.which("mpiexec") is None:
        reasons.append("MPI: apt-get install openmpi-bin and pip install mpi4py")
    if reasons:
        raise UsageError(f"this benchmark starts Slurm, Dask and MPI here. {'. '.join(reasons)}")


def find_samples() -> None:
    """Let workers import the items of `scale_items`."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])


def overhead(engine: Engine, count: int, folder: Path) -> dict[str, float]:
    """Return the seconds of empty items, and of one empty call of the engine for each chunk."""
    given = 0

    def counting(open_it: Callable[[Path], Executor]) -> Callable[[Path], Executor]:
        def opened(place: Path) -> Executor:
            pool = open_it(place)
            submit = pool.submit

            def counted(*words: Any, **more: Any) -> Any:
                nonlocal given
                given += 1
                return submit(*words, **more)

            pool.submit = counted  # type: ignore[method-assign]
            return pool

        return opened

    plain, engine.open = engine.open, counting(engine.open)  # type: ignore[method-assign]
    work = Work("scale_items:empty", [Item(f"item{at}", at) for at in range(count)], folder / "results")
    since = time.monotonic()
    found = run_items(work, engine, folder / "jobs")
    ours_s = time.monotonic() - since
    assert len(found.results) == count, found.failures
    since = time.monotonic()
    pool = plain(folder / "own")
    wait([pool.submit(nothing) for _ in range(given)])
    engine.close(pool)
    own_s = time.monotonic() - since
    return {
        "items": count,
        "chunks": given,
        "ours_s": round(ours_s, 2),
        "engine_alone_s": round(own_s, 2),
        "ms_an_item_beside_the_engine": round(1e3 * (ours_s - own_s) / count, 3),
    }


@contextmanager
def engines(folder: Path) -> Iterator[Mapping[str, tuple[str, Path | None]]]:
    """Start the engines. Yield each executor's name and its profile."""
    find_samples()
    slurm = folder / "slurm.toml"
    with scale_slurm.running(folder / "slurm"), scale_dask.running(folder / "dask") as dask:
        slurm.write_text("jobs_at_once = 2\ncpus = 1\nmemory_gb = 1\nitem_seconds = 60\n")
        yield {"slurm": ("slurm", slurm), "dask": ("dask", dask.profile), "mpi": ("mpi", None)}


def slept(name: str, engine: Engine, folder: Path) -> dict[str, Any]:
    """Measure items that sleep, so that busy CPUs do not matter: seconds until all have a result."""
    values = [0.1 + 0.05 * (at * 7 % 15) for at in range(80)]
    items = [Item(f"item{at}", value) for at, value in enumerate(values)]
    if name == "slurm":
        engine.least_s, engine.most_s, engine.item_s = 2.0, 5.0, 0.45
    first: list[float] = []

    def heard(item: str, *result: object) -> None:
        if not first:
            first.append(time.monotonic() - since - values[int(item.removeprefix("item"))])

    since = time.monotonic()
    found = run_items(Work("scale_items:sleeping", items, folder / "results"), engine, folder / "jobs", heard)
    took = time.monotonic() - since
    assert len(found.results) == len(values), found.failures
    return {
        "engine": name,
        "workers": engine.workers,
        "least_s": engine.least_s,
        "most_s": min(engine.most_s, 1e9),  # JSON has no infinity
        "said_s": engine.item_s,
        "start_s": round(first[0], 2),
        "seconds": round(took, 2),
        "load_1min": round(os.getloadavg()[0], 2),
        "items_s": values,
    }


def costs(engine: Engine, folder: Path, calls: int = 9) -> dict[str, float]:
    """Return the seconds of one empty call including its pool, and of each further call of a worker."""
    took = []
    for count in (1, calls):
        since = time.monotonic()
        (folder / str(count)).mkdir(parents=True)
        pool = engine.open(folder / str(count))
        wait([pool.submit(nothing) for _ in range(count)])
        took.append(time.monotonic() - since)
        engine.close(pool)
    further = (took[1] - took[0]) * engine.workers / (calls - 1)
    return {"start_s": round(took[0], 3), "chunk_s": round(max(0.0, further), 4)}


def run_costs(folder: Path, count: int = 10_000, chunks: int = 100) -> dict[str, float]:
    """Return the seconds of the main process for each result that it reads, and for each chunk."""
    items = [Item(f"item{at}", at) for at in range(count)]
    work = Work("scale_items:empty", items, folder / "results")
    run_items(work, find_engine("local", Profile()), folder)
    since = time.monotonic()
    run_items(work, find_engine("local", Profile()), folder)
    read_s = (time.monotonic() - since) / count
    since = time.monotonic()
    for at in range(chunks):
        chunk.write_chunk(folder, "one", work, "work.json", items[at::chunks], 1.0)
        chunk.ended(folder, "one")
        chunk.forget(folder, "one")
    return {"read_s": round(read_s, 6), "serial_s": round((time.monotonic() - since) / chunks, 6)}


def all_costs(folder: Path) -> dict[str, Any]:
    """Measure each engine with two workers. `overhead` has a worker's time for an empty item."""
    found: dict[str, Any] = {"run": run_costs(folder / "run")}
    with engines(folder) as started:
        read = {"local": Profile(), "slurm": SLURM, "dask": read_profile(started["dask"][1], "dask")}
        for name, profile in read.items():
            found[name] = costs(find_engine(name, profile, 2), folder / f"{name}-costs")
        found["mpi"] = of_mpi("costs", folder)
    return found


def of_mpi(what: str, folder: Path, workers: int = 2, count: int = 1) -> Any:
    """Measure MPI, which needs a program of its own: this one.

    Raises
    ------
    MiniDnnError
        It failed, and has printed why.
    """
    file = folder / "mpi.json"
    words = [*MPIEXEC, __file__, what, "--inside-mpi", "--count", str(count), "--out", str(file)]
    words[words.index("3")] = str(workers + 1)
    status = subprocess.run(words, check=False, env=os.environ | MPI).returncode
    if status:
        raise MiniDnnError(f"mpiexec failed with the exit status {status}; see above")
    return json.loads(file.read_text())


def all_slept(folder: Path) -> list[dict[str, Any]]:
    """Measure each engine with 1 to 8 workers."""
    found = []
    find_samples()
    with scale_slurm.running(folder / "slurm"):
        for count in (1, 2, 4, 8):
            with scale_dask.running(folder / f"dask{count}", count) as dask:
                dask_engine = find_engine("dask", replace(read_profile(dask.profile, "dask"), workers=count))
                found.append(slept("dask", dask_engine, folder / f"d{count}"))
            found.append(slept("local", find_engine("local", Profile(), count), folder / f"l{count}"))
            profile = replace(SLURM, jobs_at_once=count, item_seconds=None)
            found.append(slept("slurm", find_engine("slurm", profile), folder / f"s{count}"))
            found.append(of_mpi("engines", folder, count))
    return found


def all_overheads(count: int, folder: Path) -> dict[str, Any]:
    """Measure each engine with two workers."""
    figures: dict[str, Any] = {}
    with engines(folder) as started:
        for name, (executor, profile) in {"local": ("local", None), **started}.items():
            if name == "mpi":
                figures[name] = of_mpi("overhead", folder, count=count)
            else:
                read = SLURM if name == "slurm" else read_profile(profile, executor) if profile else Profile()
                figures[name] = overhead(find_engine(executor, read, 2), count, folder / f"{name}-items")
            print(name, figures[name], flush=True)
    return figures


def inside_mpi(what: str, count: int, folder: Path) -> dict[str, Any]:
    """Measure MPI, in a program that ``mpiexec`` has started."""
    engine = find_engine("mpi", Profile())
    if what == "overhead":
        return overhead(engine, count, folder)
    return slept("mpi", engine, folder) if what == "engines" else costs(engine, folder)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, and write a file."""
    # Not at the top, because workers import this file, and their start is measured
    from command_line import add_out, head, parser_of, positive, write

    parser = parser_of(__doc__)
    parser.add_argument("what", choices=("overhead", "costs", "engines"), help="what to measure, see above")
    parser.add_argument(
        "--count", type=positive, default=10_000, help="number of empty items (default: %(default)s)"
    )
    parser.add_argument("--inside-mpi", action="store_true", help=argparse.SUPPRESS)
    add_out(parser, required=True)
    args = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if args.inside_mpi:
            write(args.out, inside_mpi(args.what, args.count, folder))
            return 0
        check_engines()
        about = head(**load())
        if args.what == "engines":
            figures = {"rows": all_slept(folder)}
        else:
            figures = all_costs(folder) if args.what == "costs" else all_overheads(args.count, folder)
    write(args.out, {**about, **figures})
    return 0


if __name__ == "__main__":
    from mini_dnn.cli import status_of

    sys.exit(status_of(main))
