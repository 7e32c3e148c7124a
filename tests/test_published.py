"""What the stored results must bear out."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from mini_dnn.report.board import COURSE_BATCH
from mini_dnn.report.load import RESULTS, load, results_files
from mini_dnn.variant import find

WITHIN = 1.01  # of the best pair's time


def pair_times(sweeps: Iterable[Mapping[str, Any]]) -> dict[tuple[int, int], float]:
    """Op times of all layers together by pair of values; without pairs that one layer cannot run."""
    times: dict[tuple[int, int], list[float | None]] = defaultdict(list)
    for sweep in sweeps:
        for y, line in zip(sweep["y_values"], sweep["op_ms"], strict=True):
            for x, op_ms in zip(sweep["x_values"], line, strict=True):
                times[x, y].append(op_ms)
    known = {pair: [ms for ms in found if ms is not None] for pair, found in times.items()}
    return {pair: sum(known[pair]) for pair, found in times.items() if len(known[pair]) == len(found)}


def test_times_of_pairs_are_summed_over_the_layers() -> None:
    axes = {"x_values": [1, 2], "y_values": [3]}
    sweeps = [axes | {"op_ms": [[1.0, 2.0]]}, axes | {"op_ms": [[5.0, None]]}]
    assert pair_times(sweeps) == {(1, 3): 6.0}


def test_the_sweep_keeps_the_best_pair() -> None:
    latest: dict[tuple[str, str], Mapping[str, Any]] = {}
    for record in load(results_files([RESULTS])).records:
        latest |= {(s["variant"], s["layer"]): s for s in record.sweeps if s["batch"] == COURSE_BATCH}
    if not latest:
        pytest.skip("no sweep is stored: run.py bench --sweep --impl m3/sweep --out FILE.json")
    for name in {variant for variant, _ in latest}:
        sweep = find(name).sweep
        assert sweep is not None
        times = pair_times(table for (variant, _), table in latest.items() if variant == name)
        best = min(times, key=times.__getitem__)
        assert times[sweep.best] <= WITHIN * times[best], f"{name} keeps {sweep.best}, and {best} is faster"
