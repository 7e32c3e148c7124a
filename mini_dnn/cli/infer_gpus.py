"""``infer --gpus``: a network on several GPUs, which share the batch."""

from __future__ import annotations

import argparse
from typing import Any

from mini_dnn.cli.common import EMULATED, say_lost
from mini_dnn.device.gpus import places
from mini_dnn.measuring.bench import CHECKED
from mini_dnn.measuring.inference import Program
from mini_dnn.measuring.scaling import Inferring, infer, parts_of
from mini_dnn.measuring.served import Served
from mini_dnn.running.team import Team
from mini_dnn.variant import Variant


def team_of(variant: Variant, program: Program, args: argparse.Namespace) -> Team:
    """Create a process for each GPU, with the network in it."""
    some = places(args.gpus, args.device)
    most = max(last - first for first, last in parts_of(args.batch, len(some)))
    return Team(some, Inferring(Served.of(variant, args.send, args.batch, program), most), say_lost)


def on_gpus(
    variant: Variant, program: Program, args: argparse.Namespace, team: Team
) -> tuple[float, list[dict[str, Any]]]:
    """Return the accuracy and figures of the network on several GPUs."""
    gpus = len(team.pids)
    probabilities, layer_ms = infer(team, parts_of(args.batch, gpus))
    service = program.service(variant, args.send, args.batch)
    has_clock = team.kind == "cuda"
    title = program.model.title
    print(f"\n{title[0].upper()}{title[1:]}  {service.problem}, by {gpus} processes")
    rate = f": {args.batch / layer_ms * 1e3:,.0f} images/s" if has_clock else ""
    print(f"Layer Time: {layer_ms:.3f} ms, with copies{rate}")
    print(f"Op Time: {'n/a (a batch on several GPUs)' if has_clock else EMULATED}")
    if args.check:
        print(f"agrees with float64: max error {service.check(probabilities, CHECKED):.2e}")
    figures = {
        "name": program.model.name,
        "shape": str(service.problem),
        "op_ms": None,
        "layer_ms": layer_ms,
        "gpus": gpus,
    }
    return program.share_right(probabilities.argmax(axis=1)), [figures]
