"""Verb ``bench``: op times of variants, with everything that is needed to trust a figure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mini_dnn import datasets, ops
from mini_dnn.cli import bench_serving
from mini_dnn.cli.common import add_force, check_output, only, problems_of
from mini_dnn.cli.log import Trial, add_log, logged
from mini_dnn.device import DEVICES, Device, open_device
from mini_dnn.errors import DeviceError, UsageError, VariantError, nearest
from mini_dnn.measuring.bench import CHECKED, PUBLISHED, RANDOM, Bench
from mini_dnn.measuring.bench_elsewhere import Measurements, remove
from mini_dnn.measuring.files import write
from mini_dnn.measuring.inference import Program
from mini_dnn.measuring.layerwise import LAYER
from mini_dnn.measuring.measure import UNSETTLED, Setting
from mini_dnn.measuring.records import Row, Skipped
from mini_dnn.measuring.work_log import Tried
from mini_dnn.running.runnable import divided
from mini_dnn.variant import Variant, default_of, find, mine, names
from mini_dnn.work import EXECUTORS, find_engine, read_profile

BATCHES = "100,1000,10000"
ALL = "all"


@dataclass(frozen=True)
class Asked:
    """What to measure."""

    in_network: Sequence[Variant]  # each at all `batches`, on images
    batches: Sequence[int]
    at_random: Sequence[Variant]  # each at the `problems` of its operation, on random inputs
    problems: Sequence[tuple[str, str, Any]]  # operation, name and problem


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "bench",
        help="measure variants and write a results file",
        description="Measure variants. Each result is first compared with float64. With the name of "
        "an operation, measure all its variants at the problems of the course, on random inputs. "
        "Without it, measure the variants of the network's layers in the network, on images; other "
        "variants that --impl names are measured at their problems.",
    )
    parser.add_argument(
        "op",
        nargs="?",
        metavar="OPERATION|VARIANT",
        help="a name that 'run.py list' shows; the name of a variant means the same as --impl",
    )
    parser.add_argument("--impl", nargs="+", help="variants, or 'all' (the default)")
    parser.add_argument("--at", nargs="+", metavar="NAME", help="names of problems (default all)")
    parser.add_argument("--shapes", nargs="+", metavar="SIZES", help="problems as sizes, instead of --at")
    parser.add_argument(
        "--batch",
        help=f"batches, separated by commas (default: {BATCHES} in the network, otherwise those of the "
        "problems)",
    )
    parser.add_argument("--device", choices=DEVICES, default="cuda", help="default cuda")
    parser.add_argument("--data", choices=datasets.NAMES, default="auto", help="the data set (default auto)")
    parser.add_argument("--data-dir", type=Path, help="folder with the four files of Fashion-MNIST")
    parser.add_argument(
        "--budget", type=float, default=PUBLISHED.budget_s, help="seconds for one op's timed runs (default 5)"
    )
    parser.add_argument("--sweep", action="store_true", help="also time all candidates of searched variants")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results to FILE, as JSON")
    parser.add_argument(
        "--executor",
        choices=EXECUTORS,
        help="measure by processes, Slurm through submitit or by hand, Dask, or MPI; the same command "
        "continues an interrupted run",
    )
    parser.add_argument("--profile", type=Path, metavar="FILE", help="TOML file with the executor's settings")
    add_force(parser)
    add_log(parser)
    bench_serving.add_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Measure, print a line for each row, and write the results."""
    serving = bench_serving.wanted(args)
    batches = _batches(args.batch) if args.batch else None
    variants = _variants(args, serving)
    check_output("--out", args.out, args.force)
    if not args.budget > 0:
        raise UsageError(f"--budget {args.budget}: expected a positive number of seconds")
    if serving and (args.log or args.expect):
        raise UsageError("--log and --expect record op times only; remove them, or the flags for serving")
    _check_executor(args, serving)
    if args.sweep and args.device == "emulator":
        raise UsageError(
            "--sweep compares op times, and there are none on the emulator, because CPU time does not "
            "predict GPU time; use --device cuda"
        )
    if serving:
        return bench_serving.run(args, variants, batches)
    asked = _asked(args, variants, batches)
    if args.executor:
        return _elsewhere(args, variants, asked)
    with closing(_device(args.device)) as device:
        able, needs = divided(variants, device)
        print("\n".join(_head(args, device.description, needs)))
        asked = _asked(args, able, batches)
        with logged(args, able) as trial:
            program = Program.load(args.data, args.data_dir) if asked.in_network else None
            if program:
                program.check_batch(max(asked.batches))
                program.check_memory(max(asked.batches), checked=True)
                print(f"data      {program.data.name}, {program.data.origin}")
            setting = Setting(device, replace(PUBLISHED, budget_s=args.budget), CHECKED)
            bench = Bench(setting, program.data.name if program else RANDOM, _printer(asked, trial))
            trial.device, trial.verdict = device.description, "measured; agrees with float64"
            _measure(bench, program, asked, args)
    if args.out:
        print(f"written to {args.out}")
    return 0


def _head(args: argparse.Namespace, device: str, needs: Sequence[str]) -> list[str]:
    """The lines about a device and what it cannot run; an error if variants were named that it cannot run."""
    if needs and ALL not in (args.impl or [ALL]):
        raise DeviceError(needs[0])
    return [f"device    {device}", *(f"left out  {need}" for need in needs)]


def _device(name: str) -> Device:
    try:
        return open_device(name)
    except DeviceError as error:
        if name == "emulator":
            raise
        raise DeviceError(
            f"bench measures on a GPU: {error}. Without a GPU, 'run.py profile' estimates times"
        ) from error


def _check_executor(args: argparse.Namespace, serving: bool) -> None:
    if args.profile and not args.executor:
        raise UsageError(f"--profile {args.profile} needs --executor")
    if args.executor and serving:
        raise UsageError("--executor measures op times only; remove it, or the flags for serving")
    if args.executor and not args.out:
        raise UsageError(
            f"--executor {args.executor} needs --out FILE: the measurements are stored next to it, in a "
            "folder that all workers can read"
        )


def _elsewhere(args: argparse.Namespace, variants: Sequence[Variant], asked: Asked) -> int:
    """Measure on an engine. Apart from times, the file is the same as that of one process."""
    profile = read_profile(args.profile, args.executor)
    if profile.gpu and args.device != "emulator":
        profile = profile.gpu
    if args.executor == "local" and profile.workers > 1 and args.device != "emulator":
        raise UsageError(
            f"workers = {profile.workers}: processes of this machine would share one GPU, and their times "
            "would be wrong; use 1"
        )
    todo = Measurements(args.device, args.budget, args.data, args.data_dir, args.sweep)
    for variant in asked.in_network:
        for batch in asked.batches:
            todo.in_network(variant, batch)
    for op, name, problem in asked.problems:
        for variant in (variant for variant in asked.at_random if variant.op == op):
            todo.at_random(variant, name, problem)
    folder = Path(f"{args.out}.parts")
    able = list(variants)
    with logged(args, able) as trial:
        print(
            f"executor  {args.executor}: {len(todo.items)} measurement{'s' * (len(todo.items) != 1)}",
            flush=True,
        )
        trial.verdict = "measured; agrees with float64"
        record = todo.run(find_engine(args.executor, profile), folder, _printer(asked, trial))
        trial.device = record.device.name
        head = _head(args, record.device.name, list(todo.needs.values()))
        able[:] = [one for one in able if str(one.folder) not in todo.needs]  # only these are logged
        write(record, args.out)
    remove(folder)
    print("\n".join([*head, f"written to {args.out}"]))
    return 0


def _measure(bench: Bench, program: Program | None, asked: Asked, args: argparse.Namespace) -> None:
    """Measure everything. Results are written as they arrive, so that a later failure loses none of them."""

    def keep() -> None:
        if args.out:
            write(bench.record, args.out)

    for variant in asked.in_network:
        assert program is not None, "it was loaded for these"
        for batch in asked.batches:
            program.bench(bench, variant, batch, args.sweep)
        keep()
    for op, name, problem in asked.problems:
        of_op = [variant for variant in asked.at_random if variant.op == op]
        bench.run(of_op, name, problem)
        for variant in of_op if args.sweep else ():
            bench.sweep(variant, name, problem)
        keep()


def _variants(args: argparse.Namespace, serving: bool) -> list[Variant]:
    """Return the requested variants, or raise an error if they cannot be combined."""
    if args.op and args.op not in ops.names():
        args.op, args.impl = None, [_variant_name(args.op), *(args.impl or ())]
    op = ops.find(args.op).name if args.op else None
    default = [default_of(op or LAYER, ops.find(op or LAYER).default)] if serving else [ALL]
    chosen = [name for given in args.impl or default for name in given.split(",") if name]
    chosen = [*names(op or LAYER), *mine(op or LAYER)] if ALL in chosen else chosen
    variants = [find(name) for name in chosen]
    if not variants:
        raise UsageError(f"{op} has no variants yet; 'run.py new' makes one from another variant")
    if op:
        only(variants, op, "--impl")
    elif args.at or args.shapes:
        only(variants, variants[0].op, "--at and --shapes need variants of one operation; --impl")
    return variants


def _variant_name(name: str) -> str:
    """Check that this is the name of a variant, and return it."""
    try:
        find(name)
    except VariantError as error:
        near = nearest(name, ops.names())
        known = f"did you mean '{near}'?" if near else ", ".join(ops.names())
        raise UsageError(f"{name} is neither an operation ({known}) nor a variant: {error}") from error
    return name


def _asked(args: argparse.Namespace, variants: Sequence[Variant], batches: Sequence[int] | None) -> Asked:
    """Determine what to measure of the variants, or raise an error if it does not go together."""
    if args.shapes and batches:
        raise UsageError("--shapes already contains the sizes of the batches; remove --batch")
    elsewhere = args.op or args.at or args.shapes
    in_network = [] if elsewhere else [variant for variant in variants if variant.op == LAYER]
    at_random = [variant for variant in variants if variant not in in_network]
    problems = [
        (op, name, problem)
        for op in dict.fromkeys(variant.op for variant in at_random)
        for batch in batches or (None,)
        for name, problem in problems_of(ops.find(op), args.at, args.shapes, batch).items()
    ]
    return Asked(in_network, batches or _batches(BATCHES), at_random, problems)


def _batches(text: str) -> list[int]:
    words = text.split(",")
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--batch {text}: expected integers separated by commas, such as 100,1000,10000")
    return [int(word) for word in words]


def _printer(asked: Asked, trial: Trial) -> Callable[[Row | Skipped], None]:
    """Print the table's head. Return a function that prints rows and keeps them for the work log."""
    variants = [variant.name for variant in (*asked.in_network, *asked.at_random)]
    problems = [*ops.find(LAYER).course, *(name for _, name, _ in asked.problems)]
    width, wide = max(map(len, variants)), max(map(len, problems))
    head = f"{'variant':<{width}} {'batch':>7}  {'problem':<{wide}} {'op ms':>10} {'±':>6} {'runs':>5}"
    print(f"{head} {'layer ms':>9}  accuracy")

    def show(row: Row | Skipped) -> None:
        if isinstance(row, Skipped):
            print(f"{row.variant:<{width}} {row.problem}: skipped, {row.reason}", flush=True)
            return
        op = "none" if row.op_ms is None else f"{row.op_ms:.4f}"
        error = "" if row.median_error is None else f"{row.median_error:.1%}"
        accuracy = "" if row.accuracy is None else f"{row.accuracy:.4f}"
        trial.add(
            row.variant,
            Tried(
                problem=row.problem,
                shape=row.shape,
                op_ms=row.op_ms,
                layer_ms=row.layer_ms,
                max_error=row.max_error,
            ),
        )
        line = f"{row.variant:<{width}} {row.batch:>7}  {row.problem:<{wide}} {op:>10} {error:>6}"
        print(f"{line} {row.repeats:>5} {row.layer_ms:>9.1f}  {accuracy}".rstrip(), flush=True)
        if not row.settled:
            print(UNSETTLED, flush=True)

    return show
