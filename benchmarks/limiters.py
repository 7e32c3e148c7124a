"""Compare which unit limits a variant according to the emulator and according to ncu.

``python benchmarks/limiters.py --out benchmarks/results/counters/limiters.json`` needs no GPU: the
measurements of ncu are in the files ``limits-*.json`` in the same folder, which `counters.py` writes.

By ncu, the limiter is the unit that is busy for the largest part of the time of all launches. If that is less
than 60 %, the limiter is latency, as in the rule of ncu's section "Speed of Light". The emulator's limiter is
that of `mini_dnn.profiling.bracket` for the same problem.
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brackets import times
from command_line import add_out, head, parser_of, write
from counters import PERCENT, limit_cases
from counters_compare import measured

from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli import status_of
from mini_dnn.profiling.bracket import BUSY, LATENCY
from mini_dnn.variant import Variant
from mini_dnn.variant.plan import Launch

UNITS = {
    "DRAM": ("dram__throughput",),
    "L2 cache": ("lts__throughput",),
    "L1 cache and shared memory": ("l1tex__data_pipe_lsu_wavefronts", "l1tex__lsuin_requests"),
    "instruction issue": ("sm__inst_issued",),
    "FMA units": ("sm__inst_executed_pipe_fma",),
    "tensor cores": ("sm__pipe_tensor_cycles_active",),
    "special functions": ("sm__inst_executed_pipe_xu",),
}


def watched() -> Iterator[tuple[Variant, Any, list[dict[str, Any]]]]:
    """Yield each variant that ncu has profiled, the problem, and the measurements of each launch."""
    launches = iter(measured("limits"))
    for variant, problem in limit_cases():
        planned = variant.planned(problem, shared_limit(90))
        found = []
        for launch in (step for step in (*planned.setup, *planned.steps) if isinstance(step, Launch)):
            row = next(launches, None)
            if row is None:  # it was not measured
                return
            assert row["kernel"] == launch.kernel, f"{variant.name}: {row['kernel']}"
            found.append(row)
        yield variant, problem, found


def by_ncu(launches: Sequence[Mapping[str, Any]]) -> tuple[float, dict[str, float], str]:
    """Return the milliseconds of all launches, the share for which each unit was busy, and the limiter."""
    busy: Counter[str] = Counter()
    seconds = 0.0
    for row in launches:
        seconds += row["gpu__time_duration.sum"]
        for unit, metrics in UNITS.items():
            percent = max(row.get(f"{metric}.{PERCENT}", 0.0) for metric in metrics)
            busy[unit] += row["gpu__time_duration.sum"] * percent / 100
    shares = {unit: busy[unit] / seconds for unit in UNITS}
    busiest = max(shares, key=shares.__getitem__)
    return seconds * 1e3, shares, busiest if shares[busiest] >= BUSY else LATENCY


def rows() -> Iterator[dict[str, Any]]:
    """Yield both limiters of each variant that ncu has profiled."""
    for variant, problem, launches in watched():
        registers = {row["kernel"]: int(row["launch__registers_per_thread"]) for row in launches}
        ncu_ms, shares, limiter = by_ncu(launches)
        ours = times(variant, problem, registers)
        assert ours is not None, f"{variant.name} is counted"
        yield {
            "variant": variant.name,
            "problem": problem.text,
            "ncu_ms": ncu_ms,
            "ncu_limiter": limiter,
            "ncu_shares": shares,
            **ours,
        }


def summary(found: Sequence[Mapping[str, Any]]) -> str:
    """Describe how many agree, and how far apart the times are."""
    right = sum(row["limiter"] == row["ncu_limiter"] for row in found)
    same = sum(longest(row["units_ms"]) == longest(row["ncu_shares"]) for row in found)
    factors = [max(f := row["ncu_ms"] / row["likely_ms"], 1 / f) for row in found]
    return (
        f"{right} of {len(found)} limiters agree ({right / len(found):.0%}); the busiest unit alone, however "
        f"busy: {same}; median factor {statistics.median(factors):.2f}"
    )


def longest(units: Mapping[str, float]) -> str:
    """Return the unit with the largest number."""
    return max(units, key=units.__getitem__)


def main(words: Sequence[str] | None = None) -> int:
    """Print a line for each variant, and how many agree."""
    parser = parser_of(__doc__)
    add_out(parser, required=True)
    given = parser.parse_args(words)
    about, found = head(), []
    for row in rows():
        found.append(row)
        shares = sorted(row["ncu_shares"].items(), key=lambda item: -item[1])[:2]
        busy = ", ".join(f"{unit} {share:.0%}" for unit, share in shares)
        agrees = " " if row["limiter"] == row["ncu_limiter"] else "*"
        print(
            f"{agrees} {row['variant']:26} {row['limiter']:28} ncu: {row['ncu_limiter']:28} {busy}",
            flush=True,
        )
    write(given.out, {**about, "rows": found})
    print(summary(found))
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
