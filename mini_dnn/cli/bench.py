"""Verb ``bench``: honest op times of variants, with all that a figure needs to be believed."""

from __future__ import annotations

import argparse
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn import datasets
from mini_dnn.cli import bench_serving
from mini_dnn.cli.common import check_output
from mini_dnn.device import DEVICES, open_device
from mini_dnn.errors import UsageError
from mini_dnn.measuring.bench import PUBLISHED, bench, write
from mini_dnn.nn.models import lenet
from mini_dnn.nn.weights import load
from mini_dnn.variant import find, names

BATCHES = "100,1000,10000"


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser("bench", help="measure variants and write a results file")
    parser.add_argument("--impl", nargs="+", help="variants, or 'all' (the default)")
    parser.add_argument("--batch", help=f"batches (default {BATCHES})")
    parser.add_argument("--device", choices=DEVICES, default="cuda", help="default cuda")
    parser.add_argument("--data", choices=datasets.NAMES, default="auto", help="the data set (default auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the four files of Fashion-MNIST")
    parser.add_argument(
        "--budget", type=float, default=PUBLISHED.budget_s, help="seconds for one op's timed runs (default 5)"
    )
    parser.add_argument("--sweep", action="store_true", help="also time all candidates of searched variants")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results there, as JSON")
    bench_serving.add_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print a line a layer, and write the results."""
    serving = bench_serving.wanted(args)
    given_names = args.impl or ["m3" if serving else "all"]
    chosen = [name for given in given_names for name in given.split(",") if name]
    chosen = names() if "all" in chosen else chosen
    variants = [find(name).as_convolution() for name in chosen]
    batches = _batches(args.batch or BATCHES)
    check_output("--out", args.out)
    if not args.budget > 0:
        raise UsageError(f"--budget {args.budget}: expected a number of seconds above 0")
    if serving:
        return bench_serving.run(args, variants, batches if args.batch else None)
    with closing(open_device(args.device)) as device:
        data = datasets.load(args.data, "test", args.data_dir)
        if max(batches) > len(data.labels):
            raise UsageError(
                f"--batch {max(batches)}: {data.name} has {len(data.labels)} test images at most"
            )
        network = lenet.build(np.random.default_rng(0))
        load(lenet.default_weights(data.name), network)
        print(f"device    {device.description}\ndata      {data.name}, {data.origin}")
        head = f"{'variant':<22}{'batch':>7}  layer  {'op ms':>10} {'±':>6} {'runs':>5} {'layer ms':>9}"
        print(f"{head}  accuracy")
        timing = replace(PUBLISHED, budget_s=args.budget)

        def keep(record: dict[str, Any]) -> None:
            if args.out:
                write(record, args.out)

        bench(variants, batches, network, data, device, timing, args.sweep, _print_row, keep)
    if args.out:
        print(f"written to {args.out}")
    return 0


def _batches(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(
            f"--batch {text}: expected whole numbers with commas between, such as 100,1000,10000"
        )
    return [int(word) for word in words]


def _print_row(row: dict[str, Any]) -> None:
    op = "none" if row["op_ms"] is None else f"{row['op_ms']:.4f}"
    error = "" if row["median_error"] is None else f"{row['median_error']:.1%}"
    print(
        f"{row['variant']:<22}{row['batch']:>7}  {row['layer']:<6} {op:>10} {error:>6} {row['repeats']:>5} "
        f"{row['layer_ms']:>9.1f}  {row['accuracy']:.4f}",
        flush=True,
    )
