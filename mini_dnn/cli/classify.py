"""Verb ``classify``: classify your own pictures, from picture files to names of classes."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path

from mini_dnn.cli.classified import FORMATS, Outputs, Tally, figures, in_words
from mini_dnn.cli.classify_by import HOST, Opened, open_classifier
from mini_dnn.cli.common import DIFFERS
from mini_dnn.datasets import names
from mini_dnn.device import DEVICES
from mini_dnn.device.gpus import GPUS
from mini_dnn.errors import ShapeError, UsageError, reason
from mini_dnn.measuring.answers import BATCH, GPU_BATCH
from mini_dnn.measuring.kept import Kept
from mini_dnn.measuring.pictures import Classifier
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.nn.zoo import MODELS
from mini_dnn.paths import read_regular
from mini_dnn.pictures.labels import Labels
from mini_dnn.pictures.recipe import IMAGENET, Recipe
from mini_dnn.pictures.sources import DECODED_SHARD, SHARD, sources
from mini_dnn.progress import Bar
from mini_dnn.work import EXECUTORS, digest

MOST_RECIPE_BYTES = 1 << 16


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "classify",
        help="classify pictures of your own: JPEG, PNG and other formats that Pillow reads",
        description="Classify pictures: files, folders and their subfolders, archives, .npy files of "
        "pixels, or - for a picture from standard input.",
    )
    parser.add_argument(
        "pictures", nargs="*", metavar="PICTURE", help="a file, a folder, an archive, FILE.npy, FILE.h5, or -"
    )
    networks = [name for name, model in MODELS.items() if model.pictures]
    parser.add_argument("--network", choices=networks, default=networks[-1], help="default %(default)s")
    parser.add_argument("--weights", type=Path, metavar="FILE", help="default: the shipped weights")
    parser.add_argument(
        "--impl",
        metavar="NAME|PATH",
        help=f"a variant that runs the network, or {HOST} (default: the best variant on a GPU; {HOST} "
        "without one)",
    )
    parser.add_argument(
        "--device", choices=DEVICES, default="auto", help="default auto: the GPU if there is one"
    )
    parser.add_argument(
        "--batch",
        type=int,
        metavar="N",
        help=f"pictures at a time (default {GPU_BATCH} on a GPU, {BATCH} otherwise)",
    )
    parser.add_argument("--gpus", metavar="all|N|LIST", help=GPUS)
    add_flags(parser, FORMATS)
    parser.add_argument("--force", action="store_true", help="replace existing results files")
    parser.set_defaults(run=run)


def add_flags(parser: argparse._ActionsContainer, formats: Iterable[str]) -> None:
    """Add the flags that all verbs for pictures have in common; ``formats`` are some of `FORMATS`."""
    parser.add_argument(
        "--list", metavar="FILE", help="a file that names more pictures, one per line; - for standard input"
    )
    parser.add_argument(
        "--labels",
        metavar="FILE",
        help="the correct class of each picture, for the accuracy: a name or a number per line, a .npy file, "
        "or FILE.h5:ARRAY",
    )
    parser.add_argument(
        "--classes",
        type=Path,
        metavar="FILE",
        help="names of the classes, one per line (default: those of the data that the weights were trained "
        "on)",
    )
    parser.add_argument(
        "--top", type=int, default=5, metavar="K", help="number of classes per picture (default 5)"
    )
    parser.add_argument(
        "--recipe",
        type=Path,
        metavar="FILE",
        help="JSON file with the preprocessing of pictures (default: that of the training of the weights)",
    )
    parser.add_argument(
        "--invert",
        action=argparse.BooleanOptionalAction,
        help="invert the pictures, or do not (default: as set in the recipe)",
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of workers that decode pictures, per GPU (default: one per core)",
    )
    parser.add_argument(
        "--executor",
        choices=EXECUTORS,
        help="run the shards in processes of this machine, Slurm through submitit or by hand, Dask, or MPI",
    )
    parser.add_argument(
        "--profile", type=Path, metavar="FILE", help="a TOML file with the settings of the executor"
    )
    parser.add_argument(
        "--shard",
        type=int,
        metavar="N",
        help="number of pictures that a GPU processes, and whose results are stored, at a time (default "
        f"{SHARD}; {DECODED_SHARD} if all pictures are decoded)",
    )
    for name in formats:
        parser.add_argument(f"--{name}", metavar="FILE", help=FORMATS[name])


def run(args: argparse.Namespace) -> int:
    """Classify. Return 0 if all pictures could be classified, and 1 if some could not be read."""
    _check_flags(args)
    outputs = Outputs({flag: getattr(args, flag) for flag in FORMATS}, args.force)
    with outputs.alone():
        return _run(args, outputs)


def _run(args: argparse.Namespace, outputs: Outputs) -> int:
    classifier = _classifier(args)
    found = sources(args.pictures, args.list, classifier.recipe)
    args.shard = args.shard or (DECODED_SHARD if found.are_decoded else SHARD)
    labels = Labels(args.labels, classifier.classes) if args.labels else None
    if labels:
        labels.check(found.count)
    with ExitStack() as stack:
        opened = open_classifier(args, classifier, found, outputs.kept, stack)
        describe = {
            "network": classifier.model.name,
            "weights": str(classifier.weights_file),
            "impl": opened.impl,
            "device": opened.device,
            "recipe": classifier.recipe.to_dict(),
        }
        _say_what(outputs.head, classifier, opened, found.count)
        weights = hashlib.sha256(classifier.weights_file.read_bytes()).hexdigest()
        code = [digest(), opened.code]
        about = [describe["network"], weights, describe["recipe"], *code, opened.kind, args.top]
        kept = Kept(outputs.kept if found.count > args.shard or args.executor else None, about)
        stack.push(lambda kind, *_: kind is not None and _say_kept(outputs.kept))
        writer = stack.enter_context(outputs.open(describe, classifier.classes, bool(labels)))
        expected = iter(labels or ())
        start, output, spent, tally = time.perf_counter(), 0.0, Spent(), Tally()
        with Bar("classifying", found.count) as bar:
            for answers in opened.answers(kept, spent):
                since = time.perf_counter()
                right = list(islice(expected, len(answers.names))) if labels else None
                writer.add(answers, right)
                tally.add(answers, right)
                bar.update(tally.done)
                output += time.perf_counter() - since
        seconds = time.perf_counter() - start
        writer.end(figures(tally, spent, output, seconds, bool(labels)))
    opened.remove()
    kept.remove()
    if labels and tally.accuracy is not None:
        outputs.head(
            f"\nTest Accuracy: {tally.accuracy:.4f} ({tally.right:,} of {tally.classified:,} pictures)"
        )
    _say_how(outputs.head, tally, found.count, seconds, in_words(spent, output, seconds))
    return DIFFERS if tally.failed else 0


def _say_kept(folder: Path | None) -> bool:
    """After an error or Ctrl-C, say what is kept. Return False, so that the exception propagates."""
    if folder and folder.is_dir():
        print(f"{folder} keeps the complete shards; use the same command to continue", file=sys.stderr)
    return False


def _classifier(args: argparse.Namespace) -> Classifier:
    classifier = Classifier.load(args.network, args.weights, _recipe(args.recipe))
    if args.classes:
        classifier = replace(classifier, classes=_names(args.classes, classifier))
    if args.invert is not None:
        classifier = replace(classifier, recipe=replace(classifier.recipe, invert=args.invert))
    count = len(classifier.classes)
    if args.top > count:
        raise UsageError(f"--top {args.top}: the network has {count} classes; expected 1 up to this number")
    return classifier


def _say_what(say: Callable[[str], None], classifier: Classifier, opened: Opened, count: int) -> None:
    """Print what classifies how many pictures."""
    title = classifier.known.title or classifier.model.title
    say(f"network   {title}, {len(classifier.classes)} classes, {opened.impl}")
    say(f"device    {opened.device}")
    say(f"weights   {classifier.weights_file}")
    if classifier.classes[0] == names.NUMBERED.format(0):
        say("          NOTE: the names of the classes are not known; --classes FILE sets them, one per line")
    say(f"pictures  {count:,}: {classifier.recipe}\n")


def _say_how(say: Callable[[str], None], tally: Tally, count: int, seconds: float, limited_by: str) -> None:
    """Print the rate, what limited it, and how many pictures failed."""
    rate = f"{tally.classified / seconds:,.1f} per second"
    say(f"\n{tally.classified:,} of {count:,} pictures in {seconds:.2f} s: {rate}")
    if tally.classified:
        say(f"limit     {limited_by}")
    if tally.failed:
        print(f"{tally.failed:,} of {count:,} pictures could not be read", file=sys.stderr)


def _check_flags(args: argparse.Namespace) -> None:
    if args.profile and not args.executor:
        raise UsageError(f"--profile {args.profile} needs --executor")
    if args.gpus and args.executor:
        raise UsageError(
            "--gpus uses the GPUs of this machine, and --executor one GPU per worker; use only one of them"
        )
    for flag in ("top", "batch", "workers", "shard"):
        value = getattr(args, flag)
        if value is not None and value < 1:
            raise UsageError(f"--{flag} {value}: expected 1 or more")
    if args.impl == HOST and args.gpus:
        raise UsageError(f"--impl {HOST} is NumPy and runs on the host; remove --gpus {args.gpus}")
    if args.impl == HOST and args.device != "auto":
        raise UsageError(f"--impl {HOST} is NumPy and runs on the host; remove --device {args.device}")


def _names(path: Path, classifier: Classifier) -> Sequence[str]:
    """Read the names of the network's classes from a file."""
    found, count = names.read(path), len(classifier.classes)
    if len(found) != count:
        raise UsageError(
            f"--classes {path} has {len(found)} names, and the network has {count} classes; expected one "
            "name per class, in the order of their numbers"
        )
    return found


def _recipe(path: Path | None) -> Recipe | None:
    """Read the recipe from a file; None without a file."""
    if path is None:
        return None
    try:
        found = json.loads(read_regular(path, MOST_RECIPE_BYTES))
        if not isinstance(found, dict):
            raise ShapeError(f"it contains {found!r:.40} instead of an object")
        return Recipe.from_dict(found)
    except (OSError, ValueError, RecursionError) as error:  # a ShapeError is a ValueError
        why = reason(error) if isinstance(error, OSError) else error
        raise UsageError(
            f"--recipe {path} cannot be used: {why}; expected a JSON object with the fields "
            f"{', '.join(IMAGENET.to_dict())}; a field that is omitted has its value for ImageNet"
        ) from error
