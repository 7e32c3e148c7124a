"""Which unit limits a variant, by the emulator and by ncu: ``python benchmarks/limiters.py``."""

from __future__ import annotations

import json
import sys
from collections import Counter

from counters import PERCENT, limit_cases
from counters_compare import RESULTS, measured

from mini_dnn.checking.launches import shared_limit
from mini_dnn.variant.plan import Launch

BUSY = {
    "DRAM": ("dram__throughput",),
    "L2 cache": ("lts__throughput",),
    "L1 cache and shared memory": ("l1tex__data_pipe_lsu_wavefronts", "l1tex__lsuin_requests"),
    "instruction issue": ("sm__inst_issued",),
    "FMA units": ("sm__inst_executed_pipe_fma",),
    "tensor cores": ("sm__pipe_tensor_cycles_active",),
    "special functions": ("sm__inst_executed_pipe_xu",),
}


def main() -> int:
    """A line for each variant that has both, and how many agree."""
    said = {row["variant"]: {} for row in json.loads((RESULTS / "brackets.json").read_text())["rows"]}
    for row in json.loads((RESULTS / "brackets.json").read_text())["rows"]:
        said[row["variant"]][row["problem"]] = row["limiter"]
    rows = iter(measured("limits"))
    right = near = count = 0
    for variant, problem in limit_cases():
        planned = variant.planned(problem, shared_limit(90))
        busy: Counter[str] = Counter()  # per cent of a unit's peak, times seconds
        for launch in (step for step in (*planned.setup, *planned.steps) if isinstance(step, Launch)):
            row = next(rows)
            assert row["kernel"] == launch.kernel, f"{variant.name}: {row['kernel']}"
            for unit, metrics in BUSY.items():
                percent = max(row.get(f"{metric}.{PERCENT}", 0.0) for metric in metrics)
                busy[unit] += row["gpu__time_duration.sum"] * percent
        first, second = (unit for unit, _ in busy.most_common(2))
        ours = next(iter(said.get(variant.name, {}).values()), None)
        if ours is None:
            continue
        count, right, near = count + 1, right + (ours == first), near + (ours in (first, second))
        print(f"{variant.name:28} emulator: {ours:28} ncu: {first}, then {second}")
    print(f"{right} of {count} agree; in {near} the emulator's is one of the two busiest units")
    return 0


if __name__ == "__main__":
    sys.exit(main())
