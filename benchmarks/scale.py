"""Measure the engines. It starts Slurm, Dask and MPI on this machine.

For example, ``python benchmarks/scale.py overhead --out FILE`` measures 10,000 empty items with two workers
of each engine, compared with one empty call of the engine for each chunk.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, wait
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import scale_dask
import scale_slurm

from mini_dnn.work import Engine, Item, Profile, Work, chunk, find_engine, read_profile, run_items

HERE = Path(__file__).parent
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self,vader"}
MPIEXEC = ["mpiexec", "--oversubscribe", "-n", "3", sys.executable, "-m", "mpi4py.futures"]
SLURM = Profile(jobs_at_once=2, cpus=1, memory_gb=1, item_seconds=0.1)


def nothing() -> None:
    """Do nothing."""


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
    os.environ["PYTHONPATH"] = str(HERE)
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
        words = [*MPIEXEC, __file__, "cost", "--out", str(folder / "mpi.json")]
        subprocess.run(words, check=True, env=os.environ | MPI)
        found["mpi"] = json.loads((folder / "mpi.json").read_text())
    return found


def all_slept(folder: Path) -> list[dict[str, Any]]:
    """Measure each engine with 1 to 8 workers."""
    found = []
    os.environ["PYTHONPATH"] = str(HERE)
    with scale_slurm.running(folder / "slurm"):
        for count in (1, 2, 4, 8):
            with scale_dask.running(folder / f"dask{count}", count) as dask:
                dask_engine = find_engine("dask", replace(read_profile(dask.profile, "dask"), workers=count))
                found.append(slept("dask", dask_engine, folder / f"d{count}"))
            found.append(slept("local", find_engine("local", Profile(), count), folder / f"l{count}"))
            profile = replace(SLURM, jobs_at_once=count, item_seconds=None)
            found.append(slept("slurm", find_engine("slurm", profile), folder / f"s{count}"))
            words = [*MPIEXEC, __file__, "slept", "--out", str(folder / "mpi.json")]
            words[words.index("3")] = str(count + 1)
            subprocess.run(words, check=True, env=os.environ | MPI)
            found.append(json.loads((folder / "mpi.json").read_text()))
    return found


def all_overheads(count: int, folder: Path) -> dict[str, Any]:
    """Measure each engine. MPI needs a separate program."""
    figures: dict[str, Any] = {}
    with engines(folder) as started:
        for name, (executor, profile) in {"local": ("local", None), **started}.items():
            if name == "mpi":
                words = [*MPIEXEC, __file__, "one", "--out", str(folder / "mpi.json"), "--count", str(count)]
                subprocess.run(words, check=True, env=os.environ | MPI)
                figures[name] = json.loads((folder / "mpi.json").read_text())
                continue
            read = SLURM if name == "slurm" else read_profile(profile, executor) if profile else Profile()
            figures[name] = overhead(find_engine(executor, read, 2), count, folder / f"{name}-items")
            print(name, figures[name], flush=True)
    return figures


def main() -> None:
    """Measure, and write a file."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("overhead", "engines", "costs", "one", "slept", "cost"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--count", type=int)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures: Any
        if args.what == "engines":
            figures = all_slept(Path(name))
        elif args.what == "costs":
            figures = all_costs(Path(name))
        elif args.what == "cost":
            figures = costs(find_engine("mpi", Profile()), Path(name))
        elif args.what == "slept":
            figures = slept("mpi", find_engine("mpi", Profile()), Path(name))
        elif args.what == "one":
            figures = overhead(find_engine("mpi", Profile()), args.count, Path(name))
        else:
            figures = all_overheads(args.count or 10_000, Path(name))
    if args.what == "overhead":
        figures |= {"cores": os.cpu_count(), "load_1min": os.getloadavg()[0]}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
