"""Compare our kernels with libraries on one GPU: convolutions, with ReLU and pooling, and the whole network.

``python benchmarks/peers.py --out FILE.json --picture FILE.svg`` measures and draws.
``python benchmarks/peers.py --from FILE.json --picture FILE.svg`` draws existing measurements.

Our kernels are compared with the time for moving the bytes, with cuDNN and PyTorch, CuPy, and torch.compile,
as far as they are installed. Times are medians between events, with a cold L2 cache, after a warm-up. Every
result is first compared with float64. What cannot be measured is listed with the reason.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import peers_floors
import peers_ours
import peers_picture
from command_line import parser_of
from peers_common import TIMING, Budget, Clock, DefaultStream, Session
from peers_problems import Subject, layers, network
from picture_files import check_picture, save_picture

from mini_dnn.cli import status_of
from mini_dnn.cli.common import DIFFERS, check_output
from mini_dnn.device import Device, open_device
from mini_dnn.errors import UsageError
from mini_dnn.measuring.bench import head_of
from mini_dnn.measuring.inference import Program
from mini_dnn.report.peers import SCHEMA, PeersFile, content_of
from mini_dnn.variant import Variant

BATCH = 10_000
IMPL = ["m3", "m3/fp32_split", "layers/fused"]
GROUPS = ("floors", "ours", "torch", "cupy", "compile")  # in this order, as the last one takes longest
BUDGET_S = 300.0


@dataclass(frozen=True)
class Bench:
    """The device and the subjects of the measurements."""

    device: Device
    default_stream: Clock  # for libraries
    subjects: Sequence[Subject]  # conv1, conv2, fused1, fused2, network
    variants: Sequence[Variant]
    budget_s: float


def measure(groups: Sequence[str], bench: Bench, session: Session) -> None:
    """Measure the groups, in the order of `GROUPS`. The record is written after each group."""
    for group in GROUPS:
        if group in groups:
            print(f"-- {group}", flush=True)
            _measure_group(group, bench, session)
            session.keep()


def _measure_group(group: str, bench: Bench, session: Session) -> None:
    device, subjects, budget = bench.device, bench.subjects, Budget(bench.budget_s)
    if group == "floors":
        for case in peers_floors.cases(subjects, device):
            session.attempt(case, device)
    elif group == "ours":
        for case in peers_ours.cases(bench.variants, subjects, device):
            session.attempt(case, device)
    elif group == "cupy":
        try:
            import cupy
            import peers_cupy
        except (ImportError, OSError) as error:  # OSError: from a library that it loads
            session.skip({"peer": "CuPy"}, f"it cannot be imported: {error}")
            return
        session.record["versions"]["cupy"] = cupy.__version__
        for case in peers_cupy.cases(subjects, cupy):
            session.attempt(case, bench.default_stream, budget)
    else:
        try:
            import peers_torch
        except (ImportError, OSError) as error:  # OSError: from a library that it loads
            session.skip({"peer": f"PyTorch ({group})"}, f"it cannot be imported: {error}")
            return
        session.record["versions"] |= peers_torch.versions()
        if group == "torch":
            for case in peers_torch.eager_cases(subjects):
                session.attempt(case, bench.default_stream, budget)
        else:
            peers_torch.run_compiled(session, subjects, bench.default_stream, budget)


def record_of(device: Device, data: str) -> dict[str, Any]:
    """The fields that describe the whole run."""
    shared = head_of(data, device, TIMING)
    place = shared.pop("device")
    shared["versions"] |= getattr(device, "versions", {})
    name = getattr(device, "device_name", device.description)
    return {
        "schema": SCHEMA,
        **shared,
        "device": name,
        "gpu": place.name,
        "cpu": place.cpu,
        "state": place.state,
    }


def subjects_of(batch: int, program: Program) -> list[Subject]:
    """All subjects at a batch size. The network has the shipped weights.

    Raises
    ------
    UsageError
        There are fewer images.
    """
    if batch < 1:
        raise UsageError(f"--batch {batch}: expected 1 or more")
    program.check_batch(batch)
    return [*layers(batch), network(program, batch)]


def run(args: argparse.Namespace) -> int:
    """Measure, or read existing measurements, and draw."""
    check_output("--out", args.out, force=True)
    check_picture(args.picture)
    if args.stored and not args.picture:
        raise UsageError("--from reads what --picture draws; add --picture FILE.svg")
    if args.stored and args.out:
        raise UsageError("--from measures nothing that --out could write; leave one of them out")
    if not args.budget > 0:
        raise UsageError(f"--budget {args.budget}: expected a positive number of seconds")
    record = peers_picture.read(args.stored) if args.stored else measured(args)
    if args.picture:
        save_picture(partial(peers_picture.draw, record), args.picture)
        print(f"drawn: {args.picture}")
    return DIFFERS if any(row["wrong"] for row in record.skipped) else 0


def measured(args: argparse.Namespace) -> PeersFile:
    """Run the measurements on the GPU and return the record."""
    variants = peers_ours.variants(args.impl)
    program = Program.load(data_dir=args.data_dir)
    with closing(open_device("cuda")) as device:
        print(f"{device.description}, batch {args.batch:,}, {program.data.name}", flush=True)
        subjects = subjects_of(args.batch, program)
        session = Session(record_of(device, program.data.name), device, args.out)
        measure(args.groups, Bench(device, DefaultStream(device), subjects, variants, args.budget), session)
    if args.out:
        print(f"written to {args.out}")
    return content_of(session.record, args.out or Path("the record"))


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    parser = parser_of(__doc__)
    add = parser.add_argument
    add("--out", type=Path, metavar="FILE", help="write the results to this JSON file")
    add("--picture", type=Path, metavar="FILE", help="draw the results, as .svg or .png")
    add(
        "--from",
        type=Path,
        metavar="FILE",
        dest="stored",
        help="draw the results in this file instead of measuring",
    )
    add("--batch", type=int, default=BATCH, help=f"images (default {BATCH})")
    add("--impl", nargs="+", default=IMPL, help=f"ours, beside all networks (default {' '.join(IMPL)})")
    add("--groups", nargs="+", choices=GROUPS, default=GROUPS, help="what to measure (default all)")
    add("--budget", type=float, default=BUDGET_S, metavar="S", help="seconds for each group of libraries")
    add("--data-dir", type=Path, help="folder with the four files of Fashion-MNIST")
    given = parser.parse_args(words)
    return status_of(lambda: run(given))


if __name__ == "__main__":
    sys.exit(main())
