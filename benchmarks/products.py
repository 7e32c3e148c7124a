"""Time variants of the matrix product, in CUDA graphs of consecutive products.

``python benchmarks/products.py --impl gemm/cublas,gemm/v7 --shapes 4096,4096,4096,fp16,fp16 --out FILE.json``

A graph uses many sets of operands, which together are larger than the L2 cache, so that none of them is found
there. All products of a variant share its scratch buffers, as all calls of cuBLAS share a workspace. Variants
take turns, so that clock rates and other load on the GPU are the same for all.

- ``burst``: the GPU rests before each turn of a few milliseconds.
- ``sustained``: turns of a second follow each other without rest. Then power limits a large product. The
  limit reacts within some 100 ms, so shorter turns would also measure the previous variant.

``--random 200`` adds 200 problems of random sizes up to 4096, including odd ones. They are timed in short
turns, and audited instead of compared element by element. With ``--multiple 8``, all sizes are multiples of
8, and every second problem is drawn on a logarithmic scale. ``--seed`` draws other sizes, and other columns
for the audit.

Kernels that may start early (programmatic dependent launch) do so in the rows ``early``. In the rows without
that word, every kernel waits for the previous one, as those of cuBLAS do.

A result that disagrees is timed as well. Its rows have a field ``wrong`` that says how it differs, and the
exit status is 1.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from command_line import add_impl, add_out, check_variants, head, parser_of, positive, some_of, whole, write
from products_checks import OPERATION, Check, audit, compare, random_problems, status_of_rows

from mini_dnn.cli import status_of
from mini_dnn.device import Device, open_device
from mini_dnn.device.base import Graph
from mini_dnn.device.nvcc import build_cubin, nvcc_arch
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.ops import Arrays
from mini_dnn.running.execute import Execution, compile_others
from mini_dnn.variant import Launch, Planned, find
from mini_dnn.variant.plan import Code

MOVED = 256e6  # bytes of all sets of operands: five times the L2 cache of an H200
MOST_SETS = 64
NOTE = "microseconds a product, turn by turn"


@dataclass(frozen=True)
class Mode:
    """How turns are taken."""

    name: str
    turns: int
    turn_s: float
    rest_s: float


QUICK = Mode("random", 3, 0.002, 0.0)
MODES = {"burst": Mode("burst", 5, 0.004, 0.06), "sustained": Mode("sustained", 7, 1.0, 0.0)}


@dataclass(frozen=True)
class Candidate:
    """A variant that takes turns, with its graph."""

    name: str
    graph: Graph
    sets: int
    wrong: str = ""  # how its result differs


def late(planned: Planned) -> Planned:
    """The same plan, in which every kernel waits for the previous one."""
    steps = tuple(replace(s, early=False) if isinstance(s, Launch) else s for s in planned.steps)
    return replace(planned, steps=steps)


def sets_of(problem: Any) -> int:
    """The number of sets of operands that are together larger than the cache."""
    return max(2, min(MOST_SETS, int(MOVED / problem.min_bytes) + 1))


@contextmanager
def chain(name: str, planned: Planned, arrays: Arrays, device: Device, check: Check) -> Iterator[Candidate]:
    """Yield a graph with one product per set of operands. The last result is checked."""
    problem = planned.problem
    with ExitStack() as stack:
        module = device.compile(planned.source, planned.defines)
        # Once, because all products of a chain use one copy of the code
        others = compile_others(planned, device)
        executions = []
        for _ in range(sets_of(problem)):
            execution = Execution(planned, module, device, others=others)
            stack.callback(execution.free)
            if executions:
                share(execution, executions[0], planned.scratch)
            for key, array in arrays.items():
                device.copy_in(execution.buffers[key], array)
            execution.set_up()
            executions.append(execution)

        def work() -> None:
            for execution in executions:
                execution.kernels()

        graph = device.capture(work)
        stack.callback(graph.free)
        verdict = check(planned, arrays, outputs_of(executions[-1], problem, device))
        print(f"  {name:34s} {verdict}", flush=True)
        yield Candidate(name, graph, len(executions), "" if verdict.ok else verdict.found)


def share(execution: Execution, other: Execution, names: Iterable[str]) -> None:
    """Let an execution use the buffers of another one."""
    for name in names:
        execution.buffers.pop(name).free()
        execution.buffers[name] = other.buffers[name]


def outputs_of(execution: Execution, problem: Any, device: Device) -> Arrays:
    """The results of an execution on the host."""
    outputs = {}
    for key, array in problem.named("out").items():
        outputs[key] = np.empty(array.shape, array.dtype)
        device.copy_out(execution.buffers[key], outputs[key])
    return outputs


def take_turns(candidates: Sequence[Candidate], mode: Mode, device: Device) -> dict[str, list[float]]:
    """Return the microseconds per product, turn by turn."""

    def timed(one: Candidate, count: int) -> float:
        start = device.record()
        for _ in range(count):
            one.graph.replay()
        return device.elapsed_ms(start, device.record()) * 1e3 / count / one.sets

    counts = {}
    for one in candidates:
        timed(one, 2)
        counts[one.name] = max(1, int(mode.turn_s * 1e6 / timed(one, 2) / one.sets))
    found: dict[str, list[float]] = {one.name: [] for one in candidates}
    for _ in range(mode.turns):
        for one in candidates:
            time.sleep(mode.rest_s)
            timed(one, max(1, counts[one.name] // 4))
            found[one.name].append(timed(one, counts[one.name]))
    return found


Row = dict[str, Any]


def build_ahead(problems: Sequence[Any], impl: Sequence[str], device: Device) -> None:
    """Compile all kernels that will be needed, one compiler per core."""
    build_plans(
        (
            variant.planned(problem, device.max_shared_bytes)
            for problem in problems
            for variant in map(find, impl)
            if not variant.limit_for(problem)
        ),
        device.arch,
    )


def build_plans(plans: Iterable[Planned], arch: int) -> None:
    """Compile the kernels of plans for a compute capability, such as 90: each once, one compiler per core."""
    wanted = {
        code: None
        for planned in plans
        for code in (Code(planned.source, tuple(planned.defines.items())), *planned.codes)
    }
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda c: build_cubin(c.source, dict(c.defines), nvcc_arch(arch)), wanted))


def measure(
    problem: Any,
    arrays: Arrays,
    impl: Sequence[str],
    modes: Sequence[Mode],
    device: Device,
    check: Check,
) -> list[Row]:
    """Measure one problem: every variant that supports it, in every mode."""
    print(f"{problem}: {sets_of(problem)} sets", flush=True)
    with ExitStack() as stack:
        candidates = []
        for name in impl:
            variant = find(name)
            if limit := variant.limit_for(problem):
                print(f"  {name}: {limit}", flush=True)
                continue
            planned = variant.planned(problem, device.max_shared_bytes)
            plans = {name: late(planned)} | ({f"{name} early": planned} if late(planned) != planned else {})
            for label, one in plans.items():
                try:
                    candidates.append(stack.enter_context(chain(label, one, arrays, device, check)))
                except MiniDnnError as error:
                    print(f"  {label}: {error}", flush=True)
        rows = [row for mode in modes if candidates for row in timed(candidates, mode, device, problem.flops)]
        return [{"problem": problem.text, **row} for row in rows]


def timed(candidates: Sequence[Candidate], mode: Mode, device: Device, flops: float) -> list[Row]:
    """Measure one mode: print and return a row for each candidate."""
    found = take_turns(candidates, mode, device)
    first = candidates[0].name
    rows: list[Row] = []
    for one in candidates:
        times = found[one.name]
        median = statistics.median(times)
        rate = flops / median * 1e-6
        gain = statistics.median(found[first]) / median
        print(
            f"  {mode.name:9s} {one.name:30s} {median:9.3f} us {rate:7.1f} TFLOP/s {gain:7.3f} x {first}",
            flush=True,
        )
        rows.append({"variant": one.name, "mode": mode.name, "us": times})
        if one.wrong:
            rows[-1]["wrong"] = one.wrong
    return rows


def arguments() -> argparse.ArgumentParser:
    """The flags."""
    parser = parser_of(__doc__)
    add_impl(parser, more="; the others are compared with the first")
    parser.add_argument(
        "--shapes",
        action="append",
        default=[],
        help="a problem, such as 4096,4096,4096,fp16,fp16; may be repeated",
    )
    parser.add_argument(
        "--random", type=whole, default=0, help="number of additional problems of random sizes"
    )
    parser.add_argument("--multiple", type=positive, default=1, help="number that divides random sizes")
    parser.add_argument(
        "--seed", type=whole, default=0, help="seed of random sizes and of the audit; default: %(default)s"
    )
    parser.add_argument(
        "--modes", type=some_of(MODES), default="burst,sustained", help="default: %(default)s"
    )
    add_out(parser)
    return parser


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print and write."""
    given = arguments().parse_args(words)
    modes, impl = [MODES[name] for name in given.modes], given.impl
    check_variants(impl, OPERATION.name)
    if not given.shapes and not given.random:
        raise UsageError("no product to measure; name one with --shapes, or a number with --random")
    columns = np.random.default_rng(given.seed)
    rows: list[Row] = []
    with closing(open_device("cuda")) as device:
        problems = [OPERATION.parse(text) for text in given.shapes]
        chosen = list(random_problems(given.random, given.multiple, given.seed)) if given.random else []
        build_ahead([*problems, *(problem for problem, _ in chosen)], impl, device)
        about = head(impl, note=NOTE, device=device.description)
        for problem in problems:
            rows += measure(problem, OPERATION.inputs(problem, 0), impl, modes, device, compare)
            write(given.out, {**about, "rows": rows})  # after each one, in case that the run is interrupted
        for problem, arrays in chosen:
            rows += measure(problem, arrays, impl, [QUICK], device, partial(audit, columns))
            write(given.out, {**about, "rows": rows})
    return status_of_rows(rows, "problem")


if __name__ == "__main__":
    sys.exit(status_of(main))
