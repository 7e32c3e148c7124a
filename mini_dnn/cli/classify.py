"""Verb ``classify``: what is on pictures of one's own, from their files to names of classes."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mini_dnn.cli.classified import Classified, Outputs
from mini_dnn.cli.common import DIFFERS
from mini_dnn.datasets import names
from mini_dnn.device import DEVICES, Device, open_device
from mini_dnn.errors import DeviceError, ShapeError, UsageError
from mini_dnn.measuring.machine import cpu_name
from mini_dnn.measuring.pictures import Classifier, Serve, top
from mini_dnn.nn.zoo import MODELS
from mini_dnn.paths import read_regular
from mini_dnn.pictures.feed import Batch, Feed
from mini_dnn.pictures.recipe import IMAGENET, Recipe
from mini_dnn.pictures.sources import count, sources
from mini_dnn.progress import Bar
from mini_dnn.variant import Variant, find

HOST = "cpu"
BATCH = 32
MOST_RECIPE_BYTES = 1 << 16


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "classify",
        help="classify pictures of your own: JPEG, PNG and what else Pillow reads",
        description="Classify pictures: files, folders with all that is in them, .npy files of pixels, or - "
        "for a picture from standard input.",
    )
    parser.add_argument("pictures", nargs="*", metavar="PICTURE", help="a file, a folder, a .npy file, or -")
    parser.add_argument(
        "--list", metavar="FILE", help="a file that names more of them, one a line; - for standard input"
    )
    networks = [name for name, model in MODELS.items() if model.pictures]
    parser.add_argument("--network", choices=networks, default=networks[-1], help="default %(default)s")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="default: the shipped weights")
    parser.add_argument(
        "--classes",
        type=Path,
        metavar="FILE",
        help="names of the classes, one a line (default: those of what the weights were trained on)",
    )
    parser.add_argument("--top", type=int, default=5, metavar="K", help="classes a picture (default 5)")
    parser.add_argument(
        "--recipe",
        type=Path,
        metavar="FILE",
        help="JSON of what is done to pictures (default: as for the weights' training)",
    )
    parser.add_argument(
        "--invert",
        action=argparse.BooleanOptionalAction,
        help="swap light and dark, or do not (default: as the recipe says)",
    )
    parser.add_argument(
        "--impl",
        metavar="NAME|PATH",
        help=f"what runs the network: a variant of it, or {HOST} (default: the best variant on a GPU; {HOST} "
        "without one)",
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="default auto: the GPU if there is one"
    )
    parser.add_argument(
        "--batch", type=int, default=BATCH, metavar="N", help=f"pictures at a time (default {BATCH})"
    )
    parser.add_argument("--workers", type=int, metavar="N", help="that decode pictures (default: one a core)")
    parser.add_argument("--json", metavar="FILE", help="write the classes there; - for standard output")
    parser.add_argument("--csv", metavar="FILE", help="the same as a table, a line for each class")
    parser.add_argument("--force", action="store_true", help="replace files of --json and --csv that exist")
    parser.set_defaults(run=run)


@dataclass
class Tally:
    """What became of the pictures so far."""

    right: int = 0  # that were classified
    failed: int = 0
    parts: deque[Batch] = field(default_factory=deque)  # under way

    @property
    def done(self) -> int:
        """Pictures that need no more work."""
        return self.right + self.failed


def run(args: argparse.Namespace) -> int:
    """Classify; 0 if that was possible for all pictures, 1 if some could not be read."""
    _check_flags(args)
    outputs = Outputs(args.json, args.csv, args.force)
    classifier = Classifier.load(args.network, args.weights, _recipe(args.recipe))
    if args.classes:
        classifier = replace(classifier, classes=_names(args.classes, classifier))
    if args.invert is not None:
        classifier = replace(classifier, recipe=replace(classifier.recipe, invert=args.invert))
    if args.top > len(classifier.classes):
        raise UsageError(
            f"--top {args.top}: the network knows {len(classifier.classes)} classes; give 1 to that"
        )
    found = sources(args.pictures, args.list, classifier.recipe)
    total = count(found)
    parts = -(-total // args.batch)
    with ExitStack() as stack:
        variant, device = _where(args, classifier, stack)
        name = variant.name if variant else HOST
        describe = {
            "network": classifier.model.name,
            "weights": str(classifier.weights_file),
            "impl": name,
            "device": device.description if device else f"the host: {cpu_name()}, NumPy",
            "recipe": classifier.recipe.to_dict(),
        }
        say = outputs.head
        say(f"network   {classifier.model.title}, {len(classifier.classes)} classes, {name}")
        say(f"device    {describe['device']}")
        say(f"weights   {classifier.weights_file}")
        if classifier.classes[0] == names.NUMBERED.format(0):
            say("          NOTE: nobody says what its classes are called; --classes FILE does, a name a line")
        say(f"pictures  {total:,}: {classifier.recipe}\n")
        serve: Serve = classifier.on_host
        size = -(-total // parts)
        if variant and device:
            serve, size = stack.enter_context(classifier.on_device(variant, size, device))
        writer = stack.enter_context(outputs.open(describe))
        feed = Feed(found, classifier.recipe, size, args.workers or len(os.sched_getaffinity(0)))
        start = time.perf_counter()
        tally = Tally()
        with Bar("classifying", total) as bar:
            for result in _classified(feed, serve, classifier, args.top, tally):
                writer.add(result)
                bar.update(tally.done)
        seconds = time.perf_counter() - start
        writer.end(
            {
                "classified": tally.right,
                "failed": tally.failed,
                "seconds": seconds,
                "decoding_seconds": feed.decoding_s,
                "waited_for_pictures_seconds": feed.waited_s,
                "limit": _limit(feed, seconds),
            }
        )
    say(f"\n{tally.right:,} of {total:,} pictures in {seconds:.2f} s: {tally.right / seconds:,.1f} a second")
    if tally.right:
        say(f"limit     {_words(feed, seconds)}")
    if tally.failed:
        print(f"{tally.failed:,} of {total:,} pictures could not be read", file=sys.stderr)
    return DIFFERS if tally.failed else 0


def _check_flags(args: argparse.Namespace) -> None:
    for flag in ("top", "batch", "workers"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            raise UsageError(f"--{flag} {value}: expected 1 or more")
    if args.impl == HOST and args.device != "auto":
        raise UsageError(f"--impl {HOST} is NumPy and runs on the host; leave --device {args.device} out")


def _names(path: Path, classifier: Classifier) -> Sequence[str]:
    """Names of the network's classes in a file."""
    found, count = names.read(path), len(classifier.classes)
    if len(found) != count:
        raise UsageError(
            f"--classes {path} has {len(found)} names, and the network knows {count} classes; give a name "
            "for each, in the order of their numbers"
        )
    return found


def _recipe(path: Path | None) -> Recipe | None:
    """The recipe in a file; None without one."""
    if path is None:
        return None
    try:
        found = json.loads(read_regular(path, MOST_RECIPE_BYTES))
        if not isinstance(found, dict):
            raise ShapeError(f"it is no object, but {found!r:.40}")
        return Recipe.from_dict(found)
    except (OSError, ValueError, RecursionError) as error:  # a ShapeError is a ValueError
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(
            f"--recipe {path} cannot be used: {why}; expected a JSON object with the fields "
            f"{', '.join(IMAGENET.to_dict())}, of which those that are left out are ImageNet's"
        ) from error


def _where(
    args: argparse.Namespace, classifier: Classifier, stack: ExitStack
) -> tuple[Variant | None, Device | None]:
    """The variant that runs the network, and on which device; neither where NumPy does."""
    variant = find(args.impl) if args.impl not in (None, HOST) else None
    op = classifier.known.operation.name
    if variant and variant.op != op:
        raise UsageError(
            f"--impl {args.impl}: it computes {variant.op}, and {classifier.model.title} is the operation "
            f"{op}; 'run.py list {op}' shows what computes it, and {HOST} does"
        )
    if args.impl == HOST:
        return None, None
    try:
        device = open_device("cuda" if not variant and args.device == "auto" else args.device)
    except DeviceError:
        if variant or args.device != "auto":
            raise
        return None, None
    stack.callback(device.close)
    if not variant:
        variant = classifier.best(device)
    return variant, device


def _classified(
    feed: Feed, serve: Serve, classifier: Classifier, most: int, tally: Tally
) -> Iterator[Classified]:
    """Each picture in its order, as soon as it is classified or known to be broken."""

    def pixels(batches: Iterable[Batch]) -> Iterator[np.ndarray]:
        for batch in batches:
            tally.parts.append(batch)
            if len(batch.pixels):
                yield batch.pixels

    for probabilities in serve(pixels(feed)):
        chosen = top(probabilities, most)
        yield from _broken(tally)
        yield from _with_classes(tally.parts.popleft(), probabilities, chosen, classifier, tally)
    yield from _broken(tally)


def _broken(tally: Tally) -> Iterator[Classified]:
    """Pictures of the next batches, as far as none of them could be read."""
    while tally.parts and not len(tally.parts[0].pixels):
        batch = tally.parts.popleft()
        for name, error in zip(batch.names, batch.errors, strict=True):
            tally.failed += 1
            yield Classified(name, error)


def _with_classes(
    batch: Batch, probabilities: np.ndarray, chosen: np.ndarray, classifier: Classifier, tally: Tally
) -> Iterator[Classified]:
    rows = iter(range(len(chosen)))
    for name, error in zip(batch.names, batch.errors, strict=True):
        if error:
            tally.failed += 1
            yield Classified(name, error)
            continue
        n = next(rows)
        tally.right += 1
        classes = [(int(k), classifier.classes[k], float(probabilities[n, k])) for k in chosen[n]]
        yield Classified(name, "", classes)


def _limit(feed: Feed, seconds: float) -> str:
    """What took most of the time: ``"decoding"`` or ``"network"``."""
    return "decoding" if feed.waited_s > seconds / 2 else "network"


def _words(feed: Feed, seconds: float) -> str:
    waited = f"{feed.waited_s / seconds:.0%} of the time"
    decoding = f"decoding took {feed.decoding_s:.2f} s by {feed.workers} workers"
    if _limit(feed, seconds) == "decoding":
        return f"decoding: the network waited for pictures {waited}; {decoding}"
    if not feed.decoding_s:
        return f"the network: nothing had to be decoded, and it waited for pictures {waited}"
    return f"the network: it waited for pictures {waited}; {decoding} beside it"
