"""Verb ``run``: run one variant at problems of its operation, with random inputs."""

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
    find_filled,
    problems_of,
    seed,
    variant_of,
    write_json,
)
from mini_dnn.cli.log import add_log, logged
from mini_dnn.device import DEVICES, Device, open_device
from mini_dnn.device.gpus import GPUS, places
from mini_dnn.errors import UsageError
from mini_dnn.measuring.bench import ceilings
from mini_dnn.measuring.machine import cpu_name
from mini_dnn.measuring.measure import UNSETTLED, Measured, Setting, measure
from mini_dnn.measuring.roof import roof
from mini_dnn.measuring.work_log import Tried
from mini_dnn.progress import told_of_silence
from mini_dnn.running.several import Several
from mini_dnn.running.timing import NO_TIMING, Timing
from mini_dnn.variant import Variant

MOST = 100  # default batch size without a GPU
MOST_FLOPS = 4_000_000_000  # of the default problem without a GPU, which takes some seconds


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "run",
        help="run one variant at a problem: op time, share of the roofline, error",
        description="Run one variant of any operation on random inputs, at problems of the course or at "
        "given sizes. Exit status: 0 as expected; 1 a result differs from float64; 2 error, such as wrong "
        "use.",
    )
    add_variant(parser)
    parser.add_argument(
        "--at", nargs="+", metavar="NAME", help="names of problems (default: all that the variant supports)"
    )
    parser.add_argument("--shapes", nargs="+", metavar="SIZES", help="problems as sizes, instead of --at")
    parser.add_argument("--batch", type=int, help="size of the batch (default: that of the problem)")
    parser.add_argument("--check", action="store_true", help="compare with float64")
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="default auto: the GPU if there is one"
    )
    parser.add_argument(
        "--gpus",
        metavar="all|N|LIST",
        help=f"divide each problem among {GPUS.replace(', a process each', '')}",
    )
    parser.add_argument("--repeat", type=int, default=10, help="timed runs on a GPU (default 10)")
    parser.add_argument("--seed", type=seed, default=0, help="seed of the inputs (default 0)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to FILE")
    add_force(parser)
    add_log(parser)
    parser.set_defaults(run=run_verb)


def run_verb(args: argparse.Namespace) -> int:
    """Run each problem and report. A result that differs from float64 raises an error."""
    variant = find_filled(variant_of(args))
    if args.repeat < 1:
        raise UsageError(f"--repeat {args.repeat}: expected 1 or more repeats")
    if variant.host is not None and args.device != "auto":
        raise UsageError(f"{variant.name} is NumPy and runs on the host; remove --device {args.device}")
    if variant.host is not None and args.gpus:
        raise UsageError(f"{variant.name} is NumPy and runs on the host; remove --gpus {args.gpus}")
    check_output("--json", args.json, args.force)
    with ExitStack() as stack:
        stack.enter_context(told_of_silence())
        device = None
        several: list[tuple[str, Device]] = []
        if variant.host is None:
            if args.gpus:
                several = _several(args, stack)
                device = several[0][1]
            else:
                device = open_device(args.device)
                stack.callback(device.close)
        trial = stack.enter_context(logged(args, [variant]))
        clock = device is not None and device.has_clock
        problems = problems_of(variant.operation, args.at, args.shapes, args.batch, None if clock else MOST)
        skipped = {} if args.at or args.shapes else _skipped(variant, problems, clock)
        print(f"variant   {variant.name}: {variant.idea}")
        name = device.description if device else f"the host: {cpu_name()}, NumPy"
        name = "; ".join(f"{gpu}: {one.description}" for gpu, one in several) or name
        print(f"device    {name}", flush=True)
        trial.device = name
        for why, left_out in skipped.items():
            if left_out:
                print(f"NOTE: skipped, because {why}: {', '.join(left_out)}")
                problems = {title: p for title, p in problems.items() if title not in left_out}
        timing = Timing(repeats=args.repeat, max_repeats=args.repeat) if device else NO_TIMING
        setting = Setting(device, timing, None if args.check else 0, several)
        rates = ceilings(device) if clock and device and not several else {}
        rows = []
        for title, problem in problems.items():
            name_of_it = f" {title}" if title in variant.operation.course else ""
            print(f"\n{variant.op}{name_of_it}  {problem}", flush=True)
            arrays = variant.operation.inputs(problem, args.seed)
            rows.append(_report(measure(variant, title, problem, arrays, setting), rates))
            trial.add(variant.name, _tried(rows[-1]))
        trial.verdict = "agrees with float64" if args.check else "ran; not compared with float64"
    write_json("--json", args.json, {"variant": variant.name, "op": variant.op, "device": name, "rows": rows})
    return 0


def _several(args: argparse.Namespace, stack: ExitStack) -> list[tuple[str, Device]]:
    """Open the devices that ``--gpus`` names. The stack closes them in reverse order."""
    found: list[tuple[str, Device]] = []
    for place in places(args.gpus, args.device):
        found.append((str(place), place.open()))
        stack.callback(found[-1][1].close)
    return found


def _skipped(variant: Variant, problems: Mapping[str, Any], clock: bool) -> dict[str, list[str]]:
    """The names of problems that are not run unless they are named, by reason. One problem is always left."""
    # A variant that refuses only large batches gets parts of them.
    refused = [name for name, p in problems.items() if variant.limit_for(p.with_batch(1))]
    if len(refused) == len(problems):
        return {}  # the first one raises the error that names its limit
    left = {name: p for name, p in problems.items() if name not in refused}
    smallest = min(left, key=lambda name: left[name].flops)
    large = [name for name, p in left.items() if p.flops > MOST_FLOPS and name != smallest]
    return {
        f"{variant.name} does not support these problems": refused,
        "these problems take long without a GPU; use --at to run one": [] if clock else large,
    }


def _report(measured: Measured, rates: Mapping[str, float]) -> dict[str, Any]:
    """Print the results at a problem, and return them as a row for a file."""
    result, comparison = measured.result, measured.comparison
    print(f"Layer Time: {result.layer_ms:.3f} ms")
    place = _print_op_time(measured, rates)
    more = _print_several(result) if isinstance(result, Several) else {}
    if comparison:
        print(f"agrees with float64: {comparison}")
    return more | {
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


def _print_several(result: Several) -> dict[str, Any]:
    """Print the results of each of several GPUs, and return them for a file."""
    rows = []
    for at, (share, exchange) in enumerate(zip(result.shares, result.exchanges, strict=True)):
        op_ms = result.each_ms[at] if result.each_ms else None
        words = [f"  part {at}: {share}"]
        words += [f"op time {op_ms:.3f} ms"] if op_ms is not None else []
        rate = f" at {exchange.gb_per_s:.0f} GB/s" if exchange.gb_per_s else ""
        words += [f"{exchange.nbytes:,} bytes from the first GPU{rate}"] if exchange.nbytes else []
        print(", ".join(words))
        rows.append({"problem": share.fields, "op_ms": op_ms, "received_bytes": exchange.nbytes})
        rows[-1]["received_ms"] = exchange.ms
    return {"parts_of_gpus": rows}


def _tried(row: Mapping[str, Any]) -> Tried:
    """Convert a row of `_report` for the work log."""
    figures = {name: row[name] for name in ("op_ms", "layer_ms", "of_roofline", "max_error")}
    return Tried(problem=row["name"], shape=row["problem"], **figures)


def _print_op_time(measured: Measured, rates: Mapping[str, float]) -> float | None:
    """Print the op time. Return the fraction of the roofline that it reaches, if known."""
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
