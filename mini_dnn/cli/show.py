"""Verb ``show``: a variant's kernel, as it is or as one file that stands alone."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console
from rich.syntax import Syntax

from mini_dnn.checking.launches import shared_limit
from mini_dnn.cli.common import problems_of
from mini_dnn.errors import MiniDnnError, UsageError
from mini_dnn.variant import find
from mini_dnn.variant.export import expand


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "show",
        help="print a variant's kernel, or export it as one .cu",
        description="Print a variant's kernel. With --expand it is one self-contained .cu for one "
        "problem, such as a layer of the course's network: local files inlined, definitions written out, "
        "launches in a comment.",
    )
    parser.add_argument("impl", metavar="NAME", help="the variant")
    parser.add_argument("--expand", action="store_true", help="make it stand alone")
    parser.add_argument(
        "--at", "--layer", metavar="NAME", help="the problem that --expand is for (default: the first one)"
    )
    parser.add_argument("--shapes", metavar="SIZES", help="the same by its sizes, such as 1,1,86,86,4,7,7")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it there instead of printing it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print or write the kernel."""
    variant = find(args.impl)
    if (args.at or args.shapes) and not args.expand:
        raise UsageError("--at and --shapes go with --expand; the kernel file itself serves all problems")
    if args.expand:
        asked = problems_of(variant.operation, [args.at] if args.at else None, _listed(args.shapes))
        name, problem = next(iter(asked.items()))
        text, language = expand(variant, problem, name, shared_limit(variant.min_arch)), "cuda"
    else:
        file = variant.source if variant.plan else variant.folder / "variant.py"
        text, language = file.read_text(), "cuda" if variant.plan else "python"
    if args.out:
        _write(args.out, text)
        print(f"written to {args.out}")
    else:
        _print(text, language)
    return 0


def _listed(shapes: str | None) -> list[str] | None:
    return [shapes] if shapes else None


def _write(path: Path, text: str) -> None:
    try:
        with path.open("x") as file:  # never over another file
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"--out {path} exists already; remove it, or name another file") from error
    except OSError as error:
        raise MiniDnnError(f"--out {path} cannot be written: {error}") from error


def _print(text: str, language: str) -> None:
    """Print, in colour on a terminal; elsewhere exactly the text, so that it can go into a file."""
    console = Console(soft_wrap=True)
    if console.is_terminal:
        console.print(Syntax("", language, theme="ansi_dark").highlight(text), end="")
    else:
        print(text, end="")
