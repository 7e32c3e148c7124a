"""The command line: one small module a verb."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from mini_dnn.cli import (
    bench,
    check,
    diff,
    grade,
    infer,
    list_variants,
    new,
    one,
    profile,
    report,
    show,
    train,
)
from mini_dnn.cli.common import DIFFERS, INTERRUPTED, WRONG_USE
from mini_dnn.errors import CheckError, MiniDnnError

VERBS = (infer, list_variants, one, train, bench, check, grade, report, profile, diff, show, new)
DEFAULT_VERB = "infer"

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, DEFAULT_VERB)
    args = _parser().parse_args(words)
    try:
        return int(args.run(args))
    except MiniDnnError as error:
        sys.stdout.flush()
        print(f"error: {error}", file=sys.stderr)
        return DIFFERS if isinstance(error, CheckError) else WRONG_USE
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DIFFERS
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="A network on Fashion-MNIST whose convolutions run in CUDA kernels that you can read.",
        epilog=f"Flags without a verb mean '{DEFAULT_VERB}': run.py --batch 10000 --impl m3",
    )
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for module in VERBS:
        module.add_parser(verbs)
    return parser
