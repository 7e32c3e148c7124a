"""``bench --latency``, ``--growth`` and ``--throughput``: the cost of serving."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mini_dnn import ops
from mini_dnn.cli import bench_gpus
from mini_dnn.datasets import SEND
from mini_dnn.device import open_device
from mini_dnn.device.gpus import GPUS
from mini_dnn.errors import UsageError
from mini_dnn.measuring.bench import CHECKED, PUBLISHED, RANDOM
from mini_dnn.measuring.files import write
from mini_dnn.measuring.inference import NETWORK, STEPS, Program, find_step
from mini_dnn.measuring.measure import UNSETTLED, Setting
from mini_dnn.measuring.served import forms
from mini_dnn.measuring.serving import ENTRIES, GROWTH, REQUESTS, Service, ServingBench
from mini_dnn.measuring.serving_records import Growth, Latency, Throughput
from mini_dnn.running.runnable import check_runnable
from mini_dnn.variant import Variant, default_of, find

MEASURES = ("latency", "growth", "throughput")

Row = Latency | Growth | Throughput


@dataclass(frozen=True)
class Asked:
    """What to measure, and the variants."""

    measures: Sequence[str]  # some of `MEASURES`
    networks: Sequence[Variant]  # networks that stay on the device
    others: Sequence[Variant]  # other variants whose growth is also measured
    batches: Sequence[int]  # empty for the defaults
    sends: Sequence[str]  # forms in which an entry is sent; empty for the defaults
    requests: int
    program: Program | None  # for networks with trained weights and images

    def service(self, variant: Variant, send: str, entries: int) -> Service:
        """Create a service with this many entries: images and trained weights, or random numbers."""
        if self.program and variant.op == NETWORK:
            return self.program.service(variant, send, entries)
        return Service.at_random(variant, send, variant.operation.course[send].with_batch(entries))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the serving flags to the parser of ``bench``."""
    group = parser.add_argument_group(
        "serving",
        "Measure on a GPU, instead of the times of single operations. The first three flags can be combined.",
    )
    group.add_argument(
        "--latency", action="store_true", help="wall-clock time of requests with one image each"
    )
    group.add_argument(
        "--growth",
        action="store_true",
        help="op times at batches of 1 to 100,000 random images (or --batch), also of --impl (default "
        f"{default_of(ops.DEFAULT, ops.find(ops.DEFAULT).default)})",
    )
    group.add_argument(
        "--throughput", action="store_true", help="images per second in batches of 10,000 (or --batch)"
    )
    group.add_argument(
        "--resident",
        nargs="+",
        metavar="STEP",
        help=f"networks: {', '.join(STEPS)}, or paths (default whole)",
    )
    group.add_argument(
        "--send",
        nargs="+",
        metavar="FORM",
        help=f"form in which images are sent: {', '.join(SEND)} (default: for --latency the first one, for "
        "--throughput all that the network supports)",
    )
    group.add_argument("--gpus", metavar="all|N|LIST", help=f"for --throughput: {GPUS}")
    group.add_argument(
        "--requests", type=int, metavar="N", help=f"timed requests of --latency (default {REQUESTS})"
    )


def wanted(args: argparse.Namespace) -> bool:
    """Whether serving is to be measured.

    Raises
    ------
    UsageError
        A flag would have no effect.
    """
    asked = [name for name in MEASURES if getattr(args, name)]
    goes_with = {
        "resident": MEASURES,
        "send": ("latency", "throughput"),
        "requests": ("latency",),
        "gpus": ("throughput",),
    }
    if asked:
        goes_with |= {"impl": ("growth",), "batch": ("growth", "throughput")}
    for name, measures in goes_with.items():
        if getattr(args, name) is not None and not set(measures) & set(asked):
            hint = "; 'run.py --resident whole' classifies with a network" if name == "resident" else ""
            raise UsageError(f"--{name} needs --{' or --'.join(measures)} here{hint}")
    for name in ("sweep", "at", "shapes"):
        if getattr(args, name) and asked:
            raise UsageError(f"--{name} is for the times of single operations; remove it, or --{asked[0]}")
    if args.requests is not None and args.requests < 1:
        raise UsageError(f"--requests {args.requests}: expected 1 or more requests")
    return bool(asked)


def run(args: argparse.Namespace, others: Sequence[Variant], batches: Sequence[int] | None) -> int:
    """Measure, print a line for each row, and write the results.

    ``others`` are variants whose growth is measured as well. ``batches`` is None for the defaults.
    """
    networks = [_network(name) for name in args.resident or ["whole"]]
    if args.gpus:
        return bench_gpus.run(args, networks, batches)
    with closing(open_device(args.device)) as device:
        asked = [name for name in MEASURES if getattr(args, name)]
        if not device.has_clock:
            raise UsageError(
                f"--{' --'.join(asked)}: times are not available on the {device.description}: "
                "CPU time does not predict GPU time. Measure on a GPU: --device cuda"
            )
        for variant in (*networks, *others):
            check_runnable(variant, device)
        of_images = any(variant.op == NETWORK for variant in networks)
        program = Program.load(args.data, args.data_dir) if of_images else None
        if program and args.throughput and batches:
            program.check_batch(max(batches))
        requests = args.requests or REQUESTS
        plan = Asked(asked, networks, others, batches or (), args.send or (), requests, program)
        print(f"device    {device.description}", flush=True)
        if program:
            print(f"data      {program.data.name}, {program.data.origin}", flush=True)
        setting = Setting(device, replace(PUBLISHED, budget_s=args.budget), CHECKED)
        bench = ServingBench(setting, program.data.name if program else RANDOM)
        _measure(bench, plan, args.out)
    if args.out:
        print(f"written to {args.out}")
    return 0


def _network(name: str) -> Variant:
    """Return a variant of an operation with weights, as only these stay on a device."""
    variant = find_step(name) if name in STEPS else find(name)
    problem = next(iter(variant.operation.course.values()))
    # Raises an error that explains the problem
    return variant if problem.named("weight") else find_step(name)


def _measure(bench: ServingBench, asked: Asked, out: Path | None) -> None:
    """Measure, and show and write each row as soon as it is available."""
    width = max(len(variant.name) for variant in (*asked.networks, *asked.others))
    for name, row in _rows(bench, asked):
        getattr(bench.record, name).append(row)
        print(f"{name:<10} {row.variant:<{width}} {_line(row)}", flush=True)
        if not row.settled:
            print(UNSETTLED, flush=True)
        if out:
            write(bench.record, out)


def _rows(bench: ServingBench, asked: Asked) -> Iterator[tuple[str, Row]]:
    """Yield each row as soon as it is measured, with its measure of `MEASURES`."""
    if "latency" in asked.measures:
        for variant in asked.networks:
            for send in forms(variant, asked.sends, asked.program)[: len(asked.sends) or 1]:
                service = asked.service(variant, send, ENTRIES)
                for use_graph in (True, False):
                    yield "latency", bench.latency(service, asked.requests, use_graph)
    if "growth" in asked.measures:
        for batch in asked.batches or GROWTH:
            for variant, name, problem in _growing(asked):
                yield "growth", bench.growth(variant, name, problem.with_batch(batch))
    if "throughput" in asked.measures:
        for variant in asked.networks:
            for send in forms(variant, asked.sends, asked.program):
                for batch in asked.batches or [variant.operation.course[send].batch]:
                    yield "throughput", bench.throughput(asked.service(variant, send, batch))


def _growing(asked: Asked) -> Iterator[tuple[Variant, str, Any]]:
    """All problems of single operations, and the first problem of each network."""
    for variant in asked.others:
        for name, problem in variant.operation.course.items():
            yield variant, name, problem
    for variant in asked.networks:
        yield variant, *next(iter(variant.operation.course.items()))


def _line(row: Row) -> str:
    op = "none" if row.op_ms is None else f"{row.op_ms:.4f} ms"
    if isinstance(row, Latency):
        way = "one graph" if row.graph else "call by call"
        us = f"p50 {row.p50_us:.1f}  p90 {row.p90_us:.1f}  p99 {row.p99_us:.1f}  max {row.max_us:.1f}"
        return f"{row.send:<9} {way:<13} us: {us}  op {op}"
    if isinstance(row, Growth):
        return f"{row.problem:<7} batch {row.batch:>7,}  op {op}"
    return (
        f"{row.send:<9} batch {row.batch:>7,}  {row.images_per_s:,.0f} images/s  a batch {row.batch_ms:.3f} "
        f"ms = {row.over_longer:.3f} x the longer of copy {row.copy_ms:.3f} ms and op {op}"
    )
