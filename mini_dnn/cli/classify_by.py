"""Where ``classify`` runs: in this process, in a process for each GPU, or on an engine."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from mini_dnn.cli.common import say_lost
from mini_dnn.device import Device, open_device
from mini_dnn.device.gpus import places
from mini_dnn.errors import DeviceError, UsageError
from mini_dnn.measuring.answers import ABOUT, Job, by_team, by_this_process
from mini_dnn.measuring.bench import code_of
from mini_dnn.measuring.elsewhere import Elsewhere
from mini_dnn.measuring.kept import Answers, Kept
from mini_dnn.measuring.machine import cpu_name
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.paths import ROOT
from mini_dnn.pictures.feed import MANY
from mini_dnn.pictures.sources import Sources
from mini_dnn.running.team import Team
from mini_dnn.variant import Variant, find, has_variants
from mini_dnn.work import digest, find_engine, read_profile

HOST = "cpu"


@dataclass(frozen=True)
class Opened:
    """A classifier, and its description."""

    answers: Callable[[Kept, Spent], Iterator[Answers]]
    impl: str
    code: str | None  # a hash of the code
    device: str
    kind: str  # kind of device: answers of GPUs are reused for any number of GPUs
    remove: Callable[[], None] = lambda: None  # removes the files that were kept


def open_classifier(
    args: argparse.Namespace, classifier: Classifier, found: Sources, folder: Path | None, stack: ExitStack
) -> Opened:
    """Open a classifier: an engine, a process for each GPU, or this process with a device or NumPy."""
    total, cores = found.count, len(os.sched_getaffinity(0))
    impl = "" if args.impl in (None, HOST) else args.impl
    few = total if total <= args.shard else 0
    workers = args.workers or cores
    job = Job(args.network, args.weights, classifier.recipe, impl, args.batch, args.top, workers, False, few)
    if args.executor:
        _check_impl(args.impl, classifier)
        return _by_engine(args, job, found, folder)
    if args.gpus:
        _check_impl(args.impl, classifier)
        some = places(args.gpus, args.device)
        workers = args.workers or max(1, min(cores // len(some), len(some[0].cores)))
        job = replace(job, workers=workers, many=total >= MANY)
        team = stack.enter_context(Team(some, job, say_lost))
        name, code = team.each(ABOUT)[0]
        return Opened(
            partial(by_team, team, found.shards(args.shard)), name, code, team.description, team.kind
        )
    variant, device = _where(args, classifier, stack)
    answering = stack.enter_context(job.on(device))
    return Opened(
        partial(by_this_process, answering, found.shards(args.shard)),
        variant.name if variant else HOST,
        code_of(variant) if variant else None,
        device.description if device else f"the host: {cpu_name()}, NumPy",
        device.name if device else HOST,
    )


def _by_engine(args: argparse.Namespace, job: Job, found: Sources, folder: Path | None) -> Opened:
    """Open a classifier on processes, Slurm, Dask or MPI."""
    if folder is None:
        raise UsageError(f"--executor {args.executor} needs a results file, such as --jsonl FILE")
    if args.impl in (None, HOST) and args.device == "auto":
        device, kind, code = "", HOST, None
    else:
        device = kind = args.device
        code = code_of(find(job.impl)) if job.impl else digest(ROOT / "networks")  # a worker chooses one
    profile = read_profile(args.profile, args.executor)
    job = replace(job, workers=args.workers or profile.cpus, many=False)
    elsewhere = Elsewhere(find_engine(args.executor, profile), folder, job, device)

    def answers(kept: Kept, spent: Spent) -> Iterator[Answers]:
        return elsewhere.answers(found.shards(args.shard), kept.about, spent)

    where = f"{args.executor}: {device or 'NumPy'}"
    return Opened(answers, args.impl or HOST, code, where, kind, elsewhere.remove)


def _check_impl(name: str | None, classifier: Classifier) -> Variant | None:
    """Return the variant with this name, which computes the network; None if there is no name."""
    variant = find(name) if name not in (None, HOST) else None
    op = classifier.known.operation.name
    if variant and variant.op != op:
        raise UsageError(
            f"--impl {name}: it computes {variant.op}, but {classifier.model.title} needs {op}; use a "
            "variant "
            f"that 'run.py list {op}' shows, or {HOST}"
        )
    return variant


def _where(
    args: argparse.Namespace, classifier: Classifier, stack: ExitStack
) -> tuple[Variant | None, Device | None]:
    """Return the variant that runs the network, and its device; neither if NumPy runs it."""
    variant = _check_impl(args.impl, classifier)
    is_auto = not variant and args.device == "auto"
    if args.impl == HOST or (is_auto and not has_variants(classifier.known.operation)):
        return None, None
    try:
        device = open_device("cuda" if is_auto else args.device)
    except DeviceError:
        if not is_auto:
            raise
        return None, None
    stack.callback(device.close)
    if not variant:
        variant = classifier.best(device)
    return variant, device
