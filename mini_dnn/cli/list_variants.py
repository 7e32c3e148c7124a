"""Verb ``list``: the variants that ``--impl`` accepts, by operation."""

from __future__ import annotations

import argparse
from textwrap import TextWrapper

from rich.console import Console
from rich.markup import escape

from mini_dnn import ops
from mini_dnn.errors import UsageError, VariantError
from mini_dnn.ops import Operation
from mini_dnn.variant import SHORT_NAMES, Variant, climbed, find, mine, names

USE = (
    "--impl accepts a short name, a full name, its unique beginning (also without networks/),\n"
    "or the path of any folder with variant.py and kernel.cu."
)
_LINES = TextWrapper(
    110, initial_indent=" " * 5, subsequent_indent=" " * 14, break_long_words=False, break_on_hyphens=False
)


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "list",
        help="list the operations and the variants that --impl accepts",
        description="List the variants of each operation, from the first to the last of its ladder: the type "
        "that they compute in, where they run, the parent that they improve on, and the idea.",
    )
    parser.add_argument(
        "op", nargs="?", metavar="OPERATION", help="list the variants of this operation only (default all)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print two lines for each variant: its name and its idea."""
    console = Console(highlight=False, soft_wrap=True)
    asked = [_operation(args.op)] if args.op else list(ops.names())
    loaded = {name: _loaded(name) for name in (*names(), *mine())}
    width = max(map(len, loaded), default=0)
    for operation in map(ops.find, asked):
        own = {n: v for n, v in loaded.items() if isinstance(v, Variant) and v.op == operation.name}
        _print_head(console, operation, len(own))
        for name in climbed({name: variant.parent for name, variant in own.items()}):
            _print_variant(console, name, own[name], width)
    broken = {n: error for n, error in loaded.items() if isinstance(error, VariantError)}
    for name, error in broken.items():
        console.print(f"     [bold]{escape(name):<{width}}[/bold] broken: {escape(str(error))}\n")
    console.print(USE)
    return 0


def _operation(name: str) -> str:
    """Check the name of an operation and return it."""
    known = {*names(), *mine(), *SHORT_NAMES}
    if name not in ops.names() and name in known:
        op = find(name).op
        raise UsageError(
            f"{name} is a variant of {op}: 'run.py show {name}' prints it, and 'run.py list {op}' lists all "
            "variants of the operation"
        )
    return ops.find(name).name


def _loaded(name: str) -> Variant | VariantError:
    try:
        return find(name)
    except VariantError as error:
        return error


def _print_head(console: Console, operation: Operation, count: int) -> None:
    problems = ", ".join(operation.course)
    console.print(f"[bold underline]{operation.name}[/]: {escape(operation.about)}")
    console.print(_LINES.fill(escape(f"problems {problems}, or --shapes {operation.usage}")))
    console.print("" if count else "     no variants yet; 'run.py new' makes one from another variant\n")


def _print_variant(console: Console, name: str, variant: Variant, width: int) -> None:
    short = {name: short for short, name in SHORT_NAMES.items()}
    where = "on the host" if variant.host else "on a GPU or the emulator"
    facts = [variant.precision, "on a GPU" if variant.needs_gpu else where]
    facts += [f"improves on {variant.parent}"] if variant.parent else []
    label = f"{short.get(name, ''):<4} [bold]{escape(name):<{width}}[/bold]"
    console.print(f"{label} {', '.join(facts)}")
    console.print(f"     {escape(variant.idea)}\n")
