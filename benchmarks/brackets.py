"""Compare the time brackets of the emulator with op times measured on an H200.

``python benchmarks/brackets.py --out benchmarks/results/counters/brackets.json`` needs no GPU: op times are
taken from the published results, and the counters are scaled from a smaller problem. The files
``limits-*.json`` in the same folder, written by `counters.py`, show which unit was busiest on the GPU.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from command_line import add_out, head, parser_of, write

from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli import status_of
from mini_dnn.errors import VariantError
from mini_dnn.profiling.bracket import bracket, enlarged, together
from mini_dnn.profiling.counters import Counters
from mini_dnn.profiling.emulated import count
from mini_dnn.profiling.emulated import registers as registers_of
from mini_dnn.profiling.gpus import GPUS
from mini_dnn.variant import Variant, find

RESULTS = Path(__file__).with_name("results")
MOST_FLOPS = 16_000_000  # counted for a row, if the batch can be reduced
NETWORK_FLOPS = 400_000_000  # for a network, because a tile of its last layers spans several images
ALIKE_FLOPS = 7_000_000_000  # if a smaller batch has different launches
MOST = 25_000_000_000  # the most that is ever counted
SMALLEST = 1000  # smallest measured batch size: for smaller ones, launches dominate
COUNTED: dict[tuple[str, Any], tuple[Counters, ...]] = {}
SKIPPED = ("vit", "resnet18")  # see `networks`


def measured() -> dict[tuple[str, str], dict[str, Any]]:
    """The published row of each variant and problem that was timed on a GPU.

    If several files have one, the last file by name counts. The order of the rows is that of the cases in
    ``limits-*.json``: see `counters.limit_cases`.
    """
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for path in sorted(RESULTS.glob("h200-*.json")):
        for row in json.loads(path.read_text()).get("rows", []):
            timed = row.get("op_ms") and row.get("code_hash") and "shape" in row and "variant" in row
            large = timed and (row["batch"] >= SMALLEST or row.get("op") in ("gemm", "attention"))
            if large and row.get("op") not in SKIPPED:
                found[row["variant"], row.get("problem") or row["layer"]] = row
    return found


def networks() -> Iterator[tuple[str, str, Variant, Any, float]]:
    """Variants of ResNet-18 that were timed on a GPU, with one image, which the emulator can run completely.

    Variants without tensor cores, or with a single launch whose blocks wait for each other, would take many
    minutes. The times of those that copy to the host include these copies.
    """
    for row in json.loads((RESULTS / "h200-resnet18-rungs.json").read_text())["rows"]:
        variant = find(row["program"])
        if row["batch"] != 1 or row["launches"] == 1 or row["copied_bytes"]:
            continue
        if variant.precision != "fp32":
            problem = variant.operation.course["batch-1"]
            yield row["program"], "batch-1", variant, problem, statistics.median(row["ms"])


def smaller(variant: Variant, problem: Any) -> Any:
    """Return the problem with a smaller batch, or a matrix product with fewer rows and columns.

    A matrix product of another size may have different launches. In that case, the whole one is counted.
    """
    if problem.flops <= MOST_FLOPS:
        return problem
    most = NETWORK_FLOPS if variant.name.startswith("networks/") else MOST_FLOPS
    entries = max(1, int(most * problem.batch / problem.flops))
    small = problem.with_batch(min(entries, problem.batch))
    if not hasattr(small, "m"):
        return _alike(variant, problem, small)
    while small.flops > MOST_FLOPS and small.m > 256:
        small = replace(small, m=small.m // 2, n=small.n // 2)
    return small if _launched(variant, small) == _launched(variant, problem) else problem


def _alike(variant: Variant, problem: Any, small: Any) -> Any:
    """The smallest batch with the same kernel launches, or ``small`` if that is too large."""
    found = small
    while found.flops <= ALIKE_FLOPS:
        if _launched(variant, found) == _launched(variant, problem):
            return found
        found = problem.with_batch(min(2 * found.batch, problem.batch))
    return small


def _launched(variant: Variant, problem: Any) -> Any:
    planned = variant.planned(problem, shared_limit(90))
    return planned.defines, [(step.kernel, step.block, step.shared_bytes) for step in planned.launches]


def times(
    variant: Variant, problem: Any, registers: Mapping[str, int] | None = None
) -> dict[str, Any] | None:
    """The bracket of a problem with its parts; None if the emulator would take too long.

    Parameters
    ----------
    registers
        Registers per thread, by kernel; by default, those in nvcc's report.
    """
    small = smaller(variant, problem)
    if small.flops > MOST or variant.limit_for(small) or variant.limit_for(problem):
        return None
    few, many = (variant.planned(one, shared_limit(90)) for one in (small, problem))
    larger = enlarged(few, many, problem.flops / small.flops)
    found = []
    for kernel in counted(variant, small):
        known = registers_of(kernel, 90) if registers is None else registers.get(kernel.kernel)
        found.append(bracket(kernel, GPUS["h200"], larger, known))
    whole = together(found)
    return {
        "counted": small.text,
        "low_ms": whole.low_ms,
        "likely_ms": whole.likely_ms,
        "high_ms": whole.high_ms,
        "limiter": whole.limiter,
        "sure": whole.sure,
        "units_ms": whole.units,
    }


def counted(variant: Variant, problem: Any) -> tuple[Counters, ...]:
    """Count a problem, which several rows may share."""
    key = variant.name, problem
    if key not in COUNTED:
        COUNTED[key] = count(variant, problem)
    return COUNTED[key]


def rows() -> Iterator[dict[str, Any]]:
    """Yield a bracket for each measured row that the emulator can run."""
    for (name, at), row in measured().items():
        try:
            variant = find(name)
        except VariantError:  # it no longer exists
            continue
        if variant.plan is None or variant.needs_gpu:
            continue
        found = times(variant, problem_of(variant, row))
        if found:
            yield {"variant": name, "problem": at, "batch": row["batch"], "op_ms": row["op_ms"], **found}
        else:
            print(f"{name} {at}: left out, it takes the emulator too long", flush=True)
    for name, at, variant, problem, op_ms in networks():
        found = times(variant, problem)
        if found:
            yield {"variant": name, "problem": at, "batch": problem.batch, "op_ms": op_ms, **found}


def problem_of(variant: Variant, row: dict[str, Any]) -> Any:
    """The measured problem."""
    shape = row["shape"]
    make = variant.operation.problem
    return make(**shape) if isinstance(shape, dict) else make(*shape)


def main(words: Sequence[str] | None = None) -> int:
    """Compute all brackets, and write them."""
    parser = parser_of(__doc__)
    add_out(parser, required=True)
    given = parser.parse_args(words)
    about, found = head(), []
    for row in rows():
        found.append(row)
        factor = row["op_ms"] / row["likely_ms"]
        print(
            f"{row['variant']:32}{row['problem']:12}{row['op_ms']:9.3f} {row['low_ms']:9.3f} "
            f"{row['likely_ms']:9.3f} {row['high_ms']:9.3f} {factor:7.2f}  {row['limiter']}",
            flush=True,
        )
        write(given.out, {**about, "rows": found})
    factors = [max(f := row["op_ms"] / row["likely_ms"], 1 / f) for row in found]
    print(f"{len(found)} rows, median factor {statistics.median(factors):.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(status_of(main))
