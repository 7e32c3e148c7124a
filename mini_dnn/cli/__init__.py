"""The command line: one small module a verb, imported when it is named."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module

from mini_dnn.cli.common import DIFFERS, INTERRUPTED, WRONG_USE
from mini_dnn.errors import CheckError, MiniDnnError

VERBS = {  # and their modules
    "infer": "infer",
    "list": "list_variants",
    "run": "one",
    "train": "train",
    "bench": "bench",
    "check": "check",
    "grade": "grade",
    "report": "report",
    "profile": "profile",
    "diff": "diff",
    "show": "show",
    "new": "new",
}
DEFAULT_VERB = "infer"

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, DEFAULT_VERB)
    named = [words[0]] if words[0] in VERBS else VERBS  # the others need not be imported
    args = _parser(named).parse_args(words)
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


def _parser(named: Iterable[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="run.py",
        description="A network on Fashion-MNIST whose heavy work is done by CUDA kernels that you can read.",
        epilog=f"Flags without a verb mean '{DEFAULT_VERB}': run.py --batch 10000 --impl m3",
    )
    verbs = parser.add_subparsers(title="verbs", required=True, metavar="VERB")
    for name in named:
        import_module(f"{__name__}.{VERBS[name]}").add_parser(verbs)
    return parser
