"""Verb ``run``: one variant at problems of its operation, with random inputs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from mini_dnn.cli.common import (
    EMULATED,
    add_force,
    add_variant,
    check_output,
    problems_of,
    variant_of,
    write_json,
)
from mini_dnn.device import DEVICES, open_device
from mini_dnn.errors import UsageError
from mini_dnn.measuring.bench import ceilings
from mini_dnn.measuring.machine import cpu_name
from mini_dnn.measuring.measure import UNSETTLED, Measured, Setting, measure
from mini_dnn.measuring.roof import roof
from mini_dnn.running.timing import NO_TIMING, Timing
from mini_dnn.variant import find

MOST = 100  # entries of a batch without a GPU, where nobody says how many
MOST_FLOPS = 4_000_000_000  # of a problem without a GPU, where nobody names one: some seconds


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "run",
        help="run one variant at a problem: op time, share of the roofline, error",
        description="Run one variant of any operation at problems of the course, or at given sizes, on "
        "random inputs. Exit status: 0 as expected, 1 a result differs from float64, 2 wrong use.",
    )
    add_variant(parser)
    parser.add_argument(
        "--at", nargs="+", metavar="NAME", help="problems by name (default all of the course)"
    )
    parser.add_argument("--shapes", nargs="+", metavar="SIZES", help="problems by their sizes, instead")
    parser.add_argument("--batch", type=int, help="entries of the batch, instead of the problem's")
    parser.add_argument("--check", action="store_true", help="compare with float64")
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="default auto: the GPU if there is one"
    )
    parser.add_argument("--repeat", type=int, default=10, help="timed repeats on a GPU (default 10)")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs (default 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    add_force(parser)
    parser.set_defaults(run=run_verb)


def run_verb(args: argparse.Namespace) -> int:
    """Run at each problem and report. A result that differs from float64 ends it with an error."""
    variant = find(variant_of(args))
    if args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat}: an op time needs one repeat or more")
    if variant.host is not None and args.device != "auto":
        raise UsageError(f"{variant.name} is NumPy and runs on the host; leave --device {args.device} out")
    check_output("--json", args.json, args.force)
    with ExitStack() as stack:
        device = None
        if variant.host is None:
            device = open_device(args.device)
            stack.callback(device.close)
        clock = device is not None and device.has_clock
        problems = problems_of(variant.operation, args.at, args.shapes, args.batch, None if clock else MOST)
        left_out = [] if clock or args.at or args.shapes else _too_large(problems)
        print(f"variant   {variant.name}: {variant.idea}")
        name = device.description if device else f"the host: {cpu_name()}, NumPy"
        print(f"device    {name}", flush=True)
        if left_out:
            print(f"NOTE: without a GPU these would take long; name one with --at: {', '.join(left_out)}")
            problems = {title: p for title, p in problems.items() if title not in left_out}
        timing = Timing(repeats=args.repeat, max_repeats=args.repeat) if device else NO_TIMING
        setting = Setting(device, timing, None if args.check else 0)
        rates = ceilings(device) if clock and device else {}
        rows = []
        for title, problem in problems.items():
            name_of_it = f" {title}" if title in variant.operation.course else ""
            print(f"\n{variant.op}{name_of_it}  {problem}", flush=True)
            arrays = variant.operation.inputs(problem, args.seed)
            rows.append(_report(measure(variant, title, problem, arrays, setting), rates))
    write_json("--json", args.json, {"variant": variant.name, "op": variant.op, "device": name, "rows": rows})
    return 0


def _too_large(problems: Mapping[str, Any]) -> list[str]:
    """Names of problems that would take long without a GPU; never that of the smallest one."""
    smallest = min(problems, key=lambda name: problems[name].flops)
    return [name for name, p in problems.items() if p.flops > MOST_FLOPS and name != smallest]


def _report(measured: Measured, rates: Mapping[str, float]) -> dict[str, Any]:
    """Print what came of a problem; the same as a row for a file."""
    result, comparison = measured.result, measured.comparison
    print(f"Layer Time: {result.layer_ms:.3f} ms")
    place = _print_op_time(measured, rates)
    if comparison:
        print(f"agrees with float64: {comparison}")
    return {
        "name": measured.name,
        "problem": measured.problem.fields,
        "op_ms": result.op_ms,
        "layer_ms": result.layer_ms,
        "compile_ms": result.compile_ms,
        "parts": result.steps,
        "settled": result.timed.settled,
        "of_roofline": place,
        "max_error": comparison and comparison.max_error,
        "state": measured.state,
    }


def _print_op_time(measured: Measured, rates: Mapping[str, float]) -> float | None:
    """Say what the op took; the share of the roofline that it reaches, where that is known."""
    result, problem, variant = measured.result, measured.problem, measured.variant
    if result.op_ms is None:
        print(f"Op Time: {EMULATED}")
        return None
    place = roof(result.op_ms, problem.flops, problem.min_bytes, variant.computes_in(problem), rates)
    share = "" if place is None else f", {place.fraction:.0%} of the roofline (bound by {place.bound})"
    print(f"Op Time: {result.op_ms:.3f} ms{share}")
    if not result.timed.settled:
        print(f"NOTE: {UNSETTLED}")
    return None if place is None else place.fraction
