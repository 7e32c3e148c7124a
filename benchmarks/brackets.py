"""The bracket of time that the emulator gives, against op times measured on an H200.

``python benchmarks/brackets.py --out benchmarks/results/counters/brackets.json`` needs no GPU: op times are
those of the published results, and the counters come from a smaller problem, scaled. Which unit was busiest
on the GPU is in the files ``limits-*.json`` beside it, which `counters.py` writes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

from mini_dnn.checking.launches import shared_limit
from mini_dnn.errors import VariantError
from mini_dnn.measuring.machine import commit
from mini_dnn.profiling.bracket import Larger, bracket, together
from mini_dnn.profiling.emulated import count
from mini_dnn.profiling.gpus import GPUS
from mini_dnn.variant import Variant, find

RESULTS = Path(__file__).with_name("results")
MOST_FLOPS = 150_000_000  # that are counted for a row
SMALLEST = 1000  # entries of a batch that was measured: smaller ones are launches more than work
SKIPPED = ("vit", "resnet18")  # networks of many kernels, whose smallest problems take the emulator minutes


def measured() -> dict[tuple[str, str], dict[str, Any]]:
    """The latest published row of each variant and problem that a GPU has timed."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("h200-*.json")):
        for row in json.loads(path.read_text()).get("rows", []):
            timed = row.get("op_ms") and row.get("code_hash") and "shape" in row and "variant" in row
            large = timed and (row["batch"] >= SMALLEST or row.get("op") in ("gemm", "attention"))
            if large and row.get("op") not in SKIPPED:
                found[row["variant"], row.get("problem") or row["layer"]] = row
    return found


def smaller(problem: Any) -> Any:
    """The same with fewer entries, or for a matrix product with fewer rows and columns."""
    if problem.flops <= MOST_FLOPS:
        return problem
    entries = max(1, int(MOST_FLOPS * problem.batch / problem.flops))
    small = problem.with_batch(min(entries, problem.batch))
    while small.flops > MOST_FLOPS and hasattr(small, "m") and small.m > 256:
        small = replace(small, m=small.m // 2, n=small.n // 2)
    return small


def rows() -> Iterator[dict[str, Any]]:
    """A bracket for each measured row that the emulator can run."""
    gpu = GPUS["h200"]
    for (name, at), row in measured().items():
        try:
            variant = find(name)
        except VariantError:  # it is gone
            continue
        if variant.plan is None or variant.needs_gpu:
            continue
        problem = problem_of(variant, row)
        small = smaller(problem)
        if small.flops > 2 * MOST_FLOPS or variant.limit_for(small) or variant.limit_for(problem):
            continue
        start = time.monotonic()
        larger = larger_than(variant, small, problem)
        times = together([bracket(kernel, gpu, larger) for kernel in count(variant, small)])
        yield {
            "variant": name,
            "problem": at,
            "batch": row["batch"],
            "counted": small.text,
            "op_ms": row["op_ms"],
            "low_ms": times.low_ms,
            "likely_ms": times.likely_ms,
            "high_ms": times.high_ms,
            "limiter": times.limiter,
            "sure": times.sure,
            "units_ms": times.units,
            "seconds": time.monotonic() - start,
        }


def problem_of(variant: Variant, row: dict[str, Any]) -> Any:
    """The problem that was measured."""
    shape = row["shape"]
    make = variant.operation.problem
    return make(**shape) if isinstance(shape, dict) else make(*shape)


def larger_than(variant: Variant, small: Any, problem: Any) -> Larger:
    """How much more the problem is than the one that is counted."""
    planned = variant.planned(problem, shared_limit(90))
    blocks: dict[str, int] = {}
    for launch in planned.launches:
        blocks[launch.kernel] = max(blocks.get(launch.kernel, 0), prod(launch.grid))
    return Larger(problem.flops / small.flops, {n: a.nbytes for n, a in planned.arrays.items()}, blocks)


def main(words: Sequence[str] | None = None) -> int:
    """Work out all brackets, and write them."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(words)
    found = []
    for row in rows():
        found.append(row)
        factor = row["op_ms"] / row["likely_ms"]
        print(
            f"{row['variant']:32}{row['problem']:12}{row['op_ms']:9.3f} {row['low_ms']:9.3f} "
            f"{row['likely_ms']:9.3f} {row['high_ms']:9.3f} {factor:7.2f}  {row['limiter']}",
            flush=True,
        )
        given.out.write_text(json.dumps({"commit": commit(), "rows": found}, indent=1) + "\n")
    factors = [max(f := row["op_ms"] / row["likely_ms"], 1 / f) for row in found]
    print(f"{len(found)} rows, median factor {statistics.median(factors):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
