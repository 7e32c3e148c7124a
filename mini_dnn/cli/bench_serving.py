"""``bench --latency``, ``--growth`` and ``--throughput``: what serving costs."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from mini_dnn import datasets
from mini_dnn.datasets import SEND
from mini_dnn.device import open_device
from mini_dnn.errors import UsageError
from mini_dnn.measuring.bench import PUBLISHED, write
from mini_dnn.measuring.serving import GROWTH, REQUESTS, ServingBench, forms
from mini_dnn.nn.models import lenet
from mini_dnn.nn.weights import load
from mini_dnn.ops.course import BATCH, LAYERS
from mini_dnn.running.resident import STEPS, find_step
from mini_dnn.running.runner import check_runnable
from mini_dnn.variant import Variant

MEASURES = ("latency", "growth", "throughput")

Row = dict[str, Any]


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags to those of ``bench``."""
    group = parser.add_argument_group(
        "serving", "Measured on a GPU, instead of the convolutions in the network; any of the first three."
    )
    group.add_argument("--latency", action="store_true", help="wall time of requests of one image each")
    group.add_argument(
        "--growth",
        action="store_true",
        help="op times at batches of 1 to 100,000 random images (or --batch), of --impl (default m3) too",
    )
    group.add_argument(
        "--throughput", action="store_true", help=f"images per second in batches of {BATCH} (or --batch)"
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
        choices=SEND,
        help="what an image is on its way (default: for --latency float32, for --throughput all that can be)",
    )
    group.add_argument(
        "--requests", type=int, metavar="N", help=f"timed requests of --latency (default {REQUESTS})"
    )


def wanted(args: argparse.Namespace) -> bool:
    """Whether serving is to be measured.

    Raises
    ------
    UsageError
        A flag was given that would have no effect.
    """
    asked = [name for name in MEASURES if getattr(args, name)]
    goes_with = {"resident": MEASURES, "send": ("latency", "throughput"), "requests": ("latency",)}
    if asked:
        goes_with |= {"impl": ("growth",), "batch": ("growth", "throughput")}
    for name, measures in goes_with.items():
        if getattr(args, name) is not None and not set(measures) & set(asked):
            hint = "; 'run.py --resident whole' classifies with a network" if name == "resident" else ""
            raise UsageError(f"--{name} goes with --{' or --'.join(measures)} here{hint}")
    if args.sweep and asked:
        raise UsageError(f"--sweep times convolutions; leave it or --{asked[0]} out")
    if args.requests is not None and args.requests < 1:
        raise UsageError(f"--requests {args.requests}: expected one request or more")
    return bool(asked)


def run(args: argparse.Namespace, convolutions: Sequence[Variant], batches: Sequence[int] | None) -> int:
    """Measure, print a line for each row, and write them.

    ``convolutions`` are those whose growth is measured; ``batches`` are None for the defaults.
    """
    networks = [find_step(name) for name in args.resident or ["whole"]]
    with closing(open_device(args.device)) as device:
        if not device.has_clock:
            asked = " ".join(f"--{name}" for name in MEASURES if getattr(args, name))
            raise UsageError(
                f"{asked}: these are times, and there are none on the {device.description}: what a CPU takes "
                "says nothing about a GPU. Measure on one: --device cuda"
            )
        for variant in (*networks, *convolutions):
            check_runnable(variant, device)
        data = datasets.load(args.data, "test", args.data_dir)
        if args.throughput and batches and max(batches) > len(data.labels):
            raise UsageError(
                f"--batch {max(batches)}: {data.name} has {len(data.labels)} test images at most"
            )
        network = lenet.build(np.random.default_rng(0))
        load(lenet.default_weights(data.name), network)
        print(f"device    {device.description}\ndata      {data.name}, {data.origin}", flush=True)
        timing = replace(PUBLISHED, budget_s=args.budget)
        bench = ServingBench(network, data, device, timing, args.data_dir)
        for name, row in _rows(bench, args, networks, convolutions, batches):
            bench.record[name].append(row)
            print(f"{name:<11}{row['variant']:<22}{_line(name, row)}", flush=True)
            if args.out:
                write(bench.record, args.out)
    if args.out:
        print(f"written to {args.out}")
    return 0


def _rows(
    bench: ServingBench,
    args: argparse.Namespace,
    networks: Sequence[Variant],
    convolutions: Sequence[Variant],
    batches: Sequence[int] | None,
) -> Iterator[tuple[str, Row]]:
    """Each row as soon as it is measured, and which of `MEASURES` it belongs to."""
    if args.latency:
        for variant, send, use_graph in product(networks, args.send or SEND[:1], (True, False)):
            yield "latency", bench.latency(variant, send, args.requests or REQUESTS, use_graph)
    if args.growth:
        for batch in batches or GROWTH:
            for variant, layer in product(convolutions, LAYERS):
                yield "growth", bench.growth_of_convolution(variant, layer, batch)
            for variant in networks:
                yield "growth", bench.growth_of_network(variant, batch)
    if args.throughput:
        for variant, batch in product(networks, batches or [BATCH]):
            for send in args.send or forms(variant, bench.data):
                yield "throughput", bench.throughput(variant, send, batch)


def _line(name: str, row: Row) -> str:
    op = "none" if row["op_ms"] is None else f"{row['op_ms']:.4f} ms"
    if name == "latency":
        way = "one graph" if row["graph"] else "call by call"
        us = "  ".join(f"{at} {row[at + '_us']:.1f}" for at in ("p50", "p90", "p99", "max"))
        return f"{row['send']:<9} {way:<13} us: {us}  op {op}"
    if name == "growth":
        return f"{row['layer']:<6} batch {row['batch']:>7,}  op {op}"
    return (
        f"{row['send']:<9} batch {row['batch']:>7,}  {row['images_per_s']:,.0f} images/s  a batch "
        f"{row['batch_ms']:.3f} ms = {row['over_longer']:.3f} x the longer of copy {row['copy_ms']:.3f} ms "
        f"and op {op}"
    )
