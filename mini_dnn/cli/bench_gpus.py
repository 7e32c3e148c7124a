"""``bench --throughput --gpus``: images per second on one GPU, and on several at the same time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mini_dnn.cli.common import EMULATED, say_lost, write_json
from mini_dnn.device.gpus import places
from mini_dnn.errors import UsageError
from mini_dnn.measuring.inference import NETWORK, Program
from mini_dnn.measuring.machine import commit, cpu_name, versions
from mini_dnn.measuring.scaling import Serving, rates
from mini_dnn.measuring.served import all_served
from mini_dnn.running.team import Team
from mini_dnn.variant import Variant


def run(args: argparse.Namespace, networks: Sequence[Variant], batches: Sequence[int] | None) -> int:
    """Measure, print a line for each number of GPUs, and write the results.

    Raises
    ------
    UsageError
        Other measurements were also requested.
    """
    if args.latency or args.growth:
        raise UsageError(f"--gpus {args.gpus} works only with --throughput; remove --latency and --growth")
    some = places(args.gpus, args.device)
    counts = sorted({*(2**n for n in range(len(some).bit_length())), len(some)})
    of_images = any(variant.op == NETWORK for variant in networks)
    program = Program.load(args.data, args.data_dir) if of_images else None
    if program and batches:
        program.check_batch(max(batches))
    found: dict[str, Any] = {"schema": "gpus-1", **commit(), "cpu": cpu_name(), "versions": versions()}
    found["rows"] = []
    for variant in networks:
        for served in all_served(variant, args.send or (), batches or (), program):
            with Team(some, Serving(served), say_lost) as team:
                print(f"device    {team.description}", flush=True)
                found["device"] = team.description
                one = 0.0
                for rate in rates(team, served.count, counts):
                    one = one or rate.per_s
                    row = {"variant": variant.name, "send": served.send, "batch": served.count}
                    found["rows"].append(row | asdict(rate) | {"scaling": rate.per_s / one})
                    text = f"{rate.per_s:,.0f} images/s, {rate.per_s / one:.2f} x one"
                    shown = text if team.kind == "cuda" else EMULATED
                    print(f"{variant.name} {served.send} batch {served.count:,}, {rate.gpus} GPUs: {shown}")
                    write_json("--out", args.out, found)
    return 0
