"""``infer --pictures``: picture files instead of test images, classified by the code of ``classify``."""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from mini_dnn.cli import classify
from mini_dnn.cli.classified import FORMATS
from mini_dnn.errors import UsageError
from mini_dnn.measuring.answers import BATCH, GPU_BATCH
from mini_dnn.measuring.inference import STEPS_OF, find_step

OTHERS = tuple(name for name in FORMATS if name != "json")  # infer uses --json for its own figures


def add_flags(parser: argparse.ArgumentParser, others: Iterable[str]) -> None:
    """Add the flags to ``infer``. The flags ``others`` only apply to test images."""
    group = parser.add_argument_group(
        "pictures",
        "Classify pictures from files of any size, instead of the data set's test images: see "
        "docs/datasets.md. --json then has an entry for each picture, and --batch is the number of pictures "
        f"at a time (default {GPU_BATCH} on a GPU, {BATCH} otherwise).",
    )
    group.add_argument(
        "--pictures",
        nargs="+",
        default=[],
        metavar="NAME",
        help="files, folders, .tar archives, .npy files, FILE.h5:ARRAY, or -",
    )
    classify.add_flags(group, OTHERS)
    alone = argparse.ArgumentParser()
    classify.add_flags(alone, OTHERS)
    of_pictures = vars(alone.parse_args([]))
    of_test_images = {name: parser.get_default(name) for name in others}
    parser.set_defaults(of_pictures=of_pictures, of_test_images=of_test_images)


def wanted(args: argparse.Namespace) -> bool:
    """Whether picture files are to be classified.

    Raises
    ------
    UsageError
        A flag would have no effect.
    """
    asked = bool(args.pictures or args.list)
    for name, default in (args.of_test_images if asked else args.of_pictures).items():
        if getattr(args, name) == default:
            continue
        flag = f"--{name.replace('_', '-')}"
        if asked:
            raise UsageError(f"{flag} is for the test images of a data set; remove it, or --pictures")
        raise UsageError(f"{flag} needs --pictures, which names files, folders or archives")
    return asked


def run(args: argparse.Namespace) -> int:
    """Classify; see `classify.run`.

    Raises
    ------
    UsageError
        Flags cannot be combined, or something that they name cannot be used.
    """
    steps = STEPS_OF[args.network]
    if args.impl and args.resident:
        raise UsageError(
            f"--impl {args.impl} and --resident {args.resident} cannot be combined; use only one"
        )
    if args.impl not in (None, classify.HOST):
        raise UsageError(
            f"--impl {args.impl} runs single layers, and pictures from files need a whole network: use "
            f"--resident with {', '.join(steps)} or a path, or --impl {classify.HOST}"
        )
    if args.resident:
        found = find_step(args.resident, args.network)
        args.impl = found.name if args.resident in steps else args.resident
    args.json = str(args.json) if args.json else None
    return classify.run(args)
