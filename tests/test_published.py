"""The claims that the stored results must support."""

from collections import defaultdict
from collections.abc import Iterable

import pytest

from mini_dnn.measuring.records import Sweep
from mini_dnn.report.board import Entry, boards, shown, throttling
from mini_dnn.report.load import RESULTS, load, results_files
from mini_dnn.report.rows import course_at, table_of
from mini_dnn.variant import find

WITHIN = 1.01  # of the best pair's time


def pair_times(sweeps: Iterable[Sweep]) -> dict[tuple[int, int], float]:
    """Op times of all layers together by pair of values, without pairs that a layer cannot run."""
    times: dict[tuple[int, int], list[float | None]] = defaultdict(list)
    for sweep in sweeps:
        for y, line in zip(sweep.y_values, sweep.op_ms, strict=True):
            for x, op_ms in zip(sweep.x_values, line, strict=True):
                times[x, y].append(op_ms)
    known = {pair: [ms for ms in found if ms is not None] for pair, found in times.items()}
    return {pair: sum(known[pair]) for pair, found in times.items() if len(known[pair]) == len(found)}


def test_times_of_pairs_are_summed_over_the_layers() -> None:
    def sweep(*op_ms: float | None) -> Sweep:
        axes = {"x_name": "X", "x_values": [1, 2], "y_name": "Y", "y_values": [3], "op_ms": [list(op_ms)]}
        return Sweep(op="conv2d", problem="", variant="", batch=1, best=(1, 3), **axes)  # type: ignore[arg-type]

    assert pair_times([sweep(1.0, 2.0), sweep(5.0, None)]) == {(1, 3): 6.0}


def test_the_sweep_keeps_the_best_pair() -> None:
    latest: dict[tuple[str, str], Sweep] = {}
    for record in load(results_files([RESULTS])).records:
        of_course = [s for s in record.sweeps if table_of(s.op, s.problem, s.batch) == course_at(s.op)]
        latest |= {(sweep.variant, sweep.problem): sweep for sweep in of_course}
    if not latest:
        pytest.skip("no sweep is stored: run.py bench --sweep --impl m3/sweep --out FILE.json")
    for name in {variant for variant, _ in latest}:
        sweep = find(name).sweep
        assert sweep is not None
        times = pair_times(table for (variant, _), table in latest.items() if variant == name)
        best = min(times, key=times.__getitem__)
        assert times[sweep.best] <= WITHIN * times[best], f"{name} keeps {sweep.best}, and {best} is faster"


def headlines() -> list[Entry]:
    """The rows of the READMEs' tables: every variant at the course's problems."""
    found = shown(boards(load(results_files([RESULTS]))))
    return [entry for board in found for entry in board.course if not entry.any_row.on_host]


def test_figures_are_of_the_present_code_and_complete() -> None:
    """Device, driver, clocks, repeats and spread are recorded.

    After a change of a kernel a new GPU run is needed.
    """
    entries = headlines()
    stale = [f"{entry.variant}: {entry.stale}" for entry in entries if entry.stale]
    assert not stale, "\n".join(["measure these again, or remove their figures:", *stale])
    for row in (row for entry in entries for row in entry.rows.values()):
        assert row.op_ms
        assert "NVIDIA" in row.record.device.name
        assert row.record.commit
        assert row.state
        assert row.state.sm_mhz > 0
        assert not throttling(row)
        assert row.repeats >= 10
        assert row.median_error is not None
        assert row.median_error < 0.01
        assert row.max_error > 0  # it was compared with float64


def test_a_figure_of_other_code_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.measuring.bench.code_hash", lambda folder: "another")
    entries = headlines()
    assert entries
    assert all(entry.stale for entry in entries)
