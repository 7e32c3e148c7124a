"""Verb ``list``: the variants that ``--impl`` takes."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.markup import escape

from mini_dnn.errors import VariantError
from mini_dnn.variant import SHORT_NAMES, find, names, network_names


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser("list", help="show the variants that --impl takes")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print two lines for each variant: what it is called, and its idea."""
    short = {name: short for short, name in SHORT_NAMES.items()}
    console = Console(highlight=False, soft_wrap=True)
    listed = names() + network_names()
    width = max(map(len, listed))
    for name in listed:
        label = f"{short.get(name, ''):<4} [bold]{escape(name):<{width}}[/bold]"
        try:
            variant = find(name)
        except VariantError as error:
            console.print(f"{label} broken: {escape(str(error))}\n")
            continue
        facts = [variant.precision, "on the host" if variant.host else "on a GPU or the emulator"]
        facts += [f"improves on {variant.parent}"] if variant.parent else []
        console.print(f"{label} {', '.join(facts)}")
        console.print(f"     {escape(variant.idea)}\n")
    console.print(
        "--impl takes a short name, a name, or the path to any folder with variant.py and kernel.cu; "
        "--resident takes networks."
    )
    return 0
