"""Verb ``diff``: what a variant changes compared with another, by default with its parent."""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.text import Text

from mini_dnn.checking.launches import SHARED_LIMIT
from mini_dnn.cli.assembly import assembled, counts
from mini_dnn.cli.common import ARCH, check_arch, problems_of
from mini_dnn.device.assembly import SASS
from mini_dnn.device.nvcc import nvcc_arch
from mini_dnn.errors import UsageError
from mini_dnn.progress import busy
from mini_dnn.variant import Variant, find
from mini_dnn.variant.differences import FILES, compare

STYLES = {
    "+++": "bold",
    "---": "bold",
    "@@": "cyan",
    "+": "green",
    "-": "red",
}  # by the first characters of a line


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "diff",
        help="show what a variant changes in its parent",
        description="Show what variant A changes in variant B, file by file: - is B's line, + is A's.",
    )
    parser.add_argument("impl", metavar="A", help="the variant")
    parser.add_argument(
        "other", metavar="B", nargs="?", help="the variant to compare with (default: A's parent)"
    )
    parser.add_argument(
        "--no-comments", action="store_true", help="skip the comment at the head of each file"
    )
    parser.add_argument(
        "--instructions",
        action="store_true",
        help="also compare registers, spills and counts of instructions in the machine code; needs nvcc and "
        "nvdisasm",
    )
    parser.add_argument(
        "--at",
        metavar="NAME",
        help="the problem for --instructions (default: the first one that both support)",
    )
    parser.add_argument(
        "--arch", type=int, choices=SHARED_LIMIT, help=f"the GPU for --instructions (default {ARCH})"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the differences."""
    new = find(args.impl)
    old = find(args.other) if args.other else _parent(new)
    if (args.at or args.arch) and not args.instructions:
        raise UsageError(f"{'--at' if args.at else '--arch'} needs --instructions")
    compared = _instructions(old, new, args.at, args.arch or ARCH) if args.instructions else []
    console = Console(highlight=False, soft_wrap=True)
    for sign, variant in (("-", old), ("+", new)):
        console.print(Text(f"{sign} {variant.name}: {variant.idea}", style="bold"))
    for file in FILES:
        for line in compare(old, new, file, heads=not args.no_comments):
            style = next((style for start, style in STYLES.items() if line.startswith(start)), "")
            console.print(Text(line, style=style))
    for line in compared:
        console.print(Text(line))
    return 0


def _instructions(old: Variant, new: Variant, at: str | None, arch: int) -> list[str]:
    """Lines of a table that compares the machine code of two variants."""
    if old.op != new.op:
        raise UsageError(
            f"{old.name} computes {old.op} and {new.name} {new.op}: they have no problem in common"
        )
    for variant in (old, new):
        check_arch(variant, arch)
    asked = problems_of(new.operation, [at] if at else None)
    both = [name for name, one in asked.items() if not (old.limit_for(one) or new.limit_for(one))]
    if not both:
        raise UsageError(
            f"no problem is supported by both {old.name} and {new.name} (tried: {', '.join(asked)}); name "
            "another variant to compare with"
        )
    name, problem = both[0], asked[both[0]]
    with busy("compiling both with nvcc ..."):
        before, after = (assembled(variant, problem, arch, SASS) for variant in (old, new))
    rows = counts(before, after)
    width = max(len(name) for name, _, _ in rows)
    head = f"machine code for {name}, {problem}, by nvcc for {nvcc_arch(arch)} (in the code, not executed)"
    lines = ["", head, f"{'':<{width}} {'-':>8} {'+':>8} {'change':>8}"]
    return lines + [f"{name:<{width}} {a:>8,} {b:>8,} {b - a:>+8,}" for name, a, b in rows]


def _parent(variant: Variant) -> Variant:
    if variant.parent is None:
        raise UsageError(f"{variant.name} has no parent; name a variant to compare it with: run.py diff A B")
    return find(variant.parent)
