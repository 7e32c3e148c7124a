"""A simulation of `mini_dnn.work`: the run's own rule for chunks, workers of one speed, and measured costs.

``python benchmarks/scale_simulation.py``: what `results/scale/engines.json` measured with 2 and 4 workers,
compared with the simulation; then the plans of docs/scale.md with up to 1,000 workers.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mini_dnn.work import slurm

RESULTS = Path(__file__).parent / "results/scale"


@dataclass(frozen=True)
class Costs:
    """Seconds of an engine beside the items.

    Parameters
    ----------
    start_s
        Until the first worker begins.
    chunk_s
        Of a worker for each chunk: its start where chunks are jobs, and its set-up.
    item_s
        Of a worker for each item, to keep the result.
    serial_s, read_s
        Of the run, which is one process: for each chunk, and for each result.
    least_s, most_s
        Of a chunk.
    """

    start_s: float
    chunk_s: float
    item_s: float
    serial_s: float
    read_s: float
    least_s: float = 0.0
    most_s: float = 1.0


def simulated(items: Sequence[float], workers: int, costs: Costs, said: float | None = None) -> float:
    """Seconds until every item has a result."""
    free = [(costs.start_s, worker) for worker in range(workers)]
    heapq.heapify(free)
    given, spent, done = 0, 0.0, 0
    driver = end = costs.start_s
    measured: list[tuple[float, float, int]] = []  # when a chunk ended, its seconds, its items
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
    """From `results/scale/costs.json` and `overhead.json`; a Slurm job is `LEAST_S` long or more."""
    costs = json.loads((RESULTS / "costs.json").read_text())
    items = json.loads((RESULTS / "overhead.json").read_text())
    run, found = costs.pop("run"), {}
    for name, one in costs.items():
        item_s = items[name]["ms_an_item_beside_the_engine"] / 1e3 - run["read_s"]
        found[name] = Costs(**one, **run, item_s=item_s)
    found["slurm"] = replace(found["slurm"], least_s=slurm.LEAST_S, most_s=slurm.MOST_S * slurm.LIMIT_PART)
    return found


def compared() -> None:
    """What was measured beside what the simulation says."""
    for run in json.loads((RESULTS / "engines.json").read_text()):
        known = measured_costs()[run["engine"]]
        own = {name: run[name] for name in ("start_s", "least_s", "most_s")}  # the start of that very run
        costs = replace(known, **own)
        found = simulated(run["items_s"], run["workers"], costs, run["said_s"])
        ideal = sum(run["items_s"]) / run["workers"]
        print(
            f"{run['engine']:6} {run['workers']}: ideal {ideal:.1f} s, measured {run['seconds']:.1f}, "
            f"simulated {found:.1f}, off by {100 * (found / run['seconds'] - 1):+.0f} %"
        )


PLANS = {  # items, seconds of each, and where that is from
    "submissions, stage 1: 30 s on two cores (docs/course.md)": (1000, 30.0),
    "candidates of a sweep: 5 s (compiled, checked, measured)": (10_000, 5.0),
    "shards of 10,000 pictures: 12.5 s (800 pictures a second)": (5000, 12.5),
}


def planned() -> None:
    """Seconds with 10, 100 and 1,000 workers."""
    for what, (count, item_s) in PLANS.items():
        items = [item_s * (0.5 + at % 11 / 10) for at in range(count)]  # of half to one and a half
        print(f"{count:6} {what}")
        for name, costs in measured_costs().items():
            times = [simulated(items, workers, costs) for workers in (10, 100, 1000)]
            ideal = [sum(items) / workers for workers in (10, 100, 1000)]
            shown = (f"{t / 60:8.1f} min ({100 * i / t:3.0f} %)" for t, i in zip(times, ideal, strict=True))
            print(f"  {name:6}", *shown)


if __name__ == "__main__":
    compared()
    planned()
