"""Simulate `mini_dnn.work`: its rule for chunks without a set-up, workers of equal speed, measured costs.

``python benchmarks/scale_simulation.py`` compares the simulation with the measurements in
`results/scale/engines.json` for 1 to 8 workers. Then it simulates the plans of docs/scale.md with up to
1,000 workers.
"""

from __future__ import annotations

import heapq
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from command_line import parser_of

from mini_dnn.cli import status_of
from mini_dnn.work import slurm

RESULTS = Path(__file__).parent / "results/scale"
ENGINES = ("local", "slurm", "dask", "mpi")


@dataclass(frozen=True)
class Costs:
    """The overhead of an engine in seconds.

    Parameters
    ----------
    start_s
        The time until the first worker begins.
    chunk_s
        A worker's time for each chunk: its start if chunks are jobs, and its set-up.
    item_s
        A worker's time for storing the result of an item.
    serial_s, read_s
        The main process's time for each chunk, and for each result.
    least_s, most_s
        The duration of a chunk.
    """

    start_s: float
    chunk_s: float
    item_s: float
    serial_s: float
    read_s: float
    least_s: float = 0.0
    most_s: float = 1.0


def simulated(items: Sequence[float], workers: int, costs: Costs, said: float | None = None) -> float:
    """Return the seconds until every item has a result."""
    free = [(costs.start_s, worker) for worker in range(workers)]
    heapq.heapify(free)
    given, spent, done = 0, 0.0, 0
    driver = end = costs.start_s
    measured: list[tuple[float, float, int]] = []  # end of a chunk, its seconds, its items
    while given < len(items):
        now, worker = heapq.heappop(free)
        while measured and measured[0][0] <= now:
            _, seconds, count = heapq.heappop(measured)
            spent, done = spent + seconds, done + count
        item_s = spent / done if done else said
        size = 1
        if item_s is not None:
            even_s = item_s * (len(items) - given) / (2 * workers)
            size = max(1, int(min(max(even_s, costs.least_s), costs.most_s) / max(item_s, 1e-9)))
        chunk = items[given : given + size]
        given += len(chunk)
        driver = max(driver, now) + costs.serial_s + costs.read_s * len(chunk)
        seconds = sum(chunk) + costs.item_s * len(chunk)
        until = max(driver, now) + costs.chunk_s + seconds
        heapq.heappush(measured, (until, seconds, len(chunk)))
        heapq.heappush(free, (until, worker))
        end = max(end, until)
    return end


def measured_costs() -> dict[str, Costs]:
    """Read the costs from `results/scale/costs.json` and `overhead.json`.

    A Slurm job takes at least `LEAST_S`.
    """
    costs = json.loads((RESULTS / "costs.json").read_text())
    items = json.loads((RESULTS / "overhead.json").read_text())
    run, found = costs["run"], {}
    for name in ENGINES:
        item_s = items[name]["ms_an_item_beside_the_engine"] / 1e3 - run["read_s"]
        found[name] = Costs(**costs[name], **run, item_s=item_s)
    found["slurm"] = replace(found["slurm"], least_s=slurm.LEAST_S, most_s=slurm.MOST_S * slurm.LIMIT_PART)
    return found


def compared() -> None:
    """Print measurements next to the simulation."""
    runs = json.loads((RESULTS / "engines.json").read_text())
    for run in runs if isinstance(runs, list) else runs["rows"]:  # older files have no head
        known = measured_costs()[run["engine"]]
        own = {name: run[name] for name in ("start_s", "least_s", "most_s")}  # the start of this run
        costs = replace(known, **own)
        found = simulated(run["items_s"], run["workers"], costs, run["said_s"])
        ideal = sum(run["items_s"]) / run["workers"]
        print(
            f"{run['engine']:6} {run['workers']}: ideal {ideal:.1f} s, measured {run['seconds']:.1f}, "
            f"simulated {found:.1f}, off by {100 * (found / run['seconds'] - 1):+.0f} %"
        )


PLANS = {  # number of items, seconds of each, and the source of the figure
    "submissions, stage 1: 30 s on two cores (docs/course.md)": (1000, 30.0),
    "candidates of a sweep: 5 s (compiled, checked, measured)": (10_000, 5.0),
    "shards of 10,000 pictures: 12.5 s (800 pictures a second)": (5000, 12.5),
}


def planned() -> None:
    """Print the seconds with 10, 100 and 1,000 workers."""
    for what, (count, item_s) in PLANS.items():
        items = [item_s * (0.5 + at % 11 / 10) for at in range(count)]  # between half and one and a half
        print(f"{count:6} {what}")
        for name, costs in measured_costs().items():
            times = [simulated(items, workers, costs) for workers in (10, 100, 1000)]
            ideal = [sum(items) / workers for workers in (10, 100, 1000)]
            shown = (f"{t / 60:8.1f} min ({100 * i / t:3.0f} %)" for t, i in zip(times, ideal, strict=True))
            print(f"  {name:6}", *shown)


def main(words: Sequence[str] | None = None) -> int:
    """Print both comparisons."""
    parser_of(__doc__).parse_args(words)
    compared()
    planned()
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
