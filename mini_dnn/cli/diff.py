"""Verb ``diff``: what one variant changes in another, its parent as a rule."""

from __future__ import annotations

import argparse
import ast
import difflib

from rich.console import Console
from rich.text import Text

from mini_dnn.errors import UsageError
from mini_dnn.variant import Variant, find

FILES = ("kernel.cu", "variant.py")
STYLES = {
    "+++": "bold",
    "---": "bold",
    "@@": "cyan",
    "+": "green",
    "-": "red",
}  # by a line's first characters


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Add the verb to the command line."""
    parser = verbs.add_parser(
        "diff",
        help="show what a variant changes in its parent",
        description="Show what variant A changes in variant B, file by file: - is B's line, + is A's.",
    )
    parser.add_argument("impl", metavar="A", help="the variant")
    parser.add_argument(
        "other", metavar="B", nargs="?", help="what it is compared with (default: A's parent)"
    )
    parser.add_argument(
        "--no-comments", action="store_true", help="leave out the comment at the head of each file"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the differences."""
    new = find(args.impl)
    old = find(args.other) if args.other else _parent(new)
    console = Console(highlight=False, soft_wrap=True)
    for sign, variant in (("-", old), ("+", new)):
        console.print(Text(f"{sign} {variant.name}: {variant.idea}", style="bold"))
    for file in FILES:
        for line in compare(old, new, file, heads=not args.no_comments):
            style = next((style for start, style in STYLES.items() if line.startswith(start)), "")
            console.print(Text(line, style=style))
    return 0


def compare(old: Variant, new: Variant, file: str, heads: bool = True) -> list[str]:
    """Lines of a unified diff of one file of two variants; a sentence where there is none.

    Parameters
    ----------
    heads
        Compare the comment or docstring at the top of the file too.
    """
    for variant in (old, new):
        if not (variant.folder / file).is_file():
            return ["", f"{file}: {variant.name} runs on the host and has none"]
    before, after = (_lines(variant, file, heads) for variant in (old, new))
    if before == after:
        rest = "" if heads else " but for the comment at its head"
        return ["", f"{file}: equal{rest}"]
    old_name, new_name = f"{old.name}/{file}", f"{new.name}/{file}"
    return ["", *difflib.unified_diff(before, after, old_name, new_name, lineterm="")]


def _parent(variant: Variant) -> Variant:
    if variant.parent is None:
        raise UsageError(f"{variant.name} names no parent; name what to compare it with: run.py diff A B")
    return find(variant.parent)


def _lines(variant: Variant, file: str, heads: bool) -> list[str]:
    text = (variant.folder / file).read_text()
    lines = text.splitlines()
    if heads:
        return lines
    return lines[_docstring_end(text) :] if file.endswith(".py") else lines[_comment_end(lines) :]


def _docstring_end(text: str) -> int:
    """Number of the first line after a module's docstring."""
    first = next(iter(ast.parse(text).body), None)
    is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return first.end_lineno or 0 if first is not None and is_text else 0


def _comment_end(lines: list[str]) -> int:
    """Number of the first line that is neither empty nor of a comment with ``//``."""
    return next((i for i, line in enumerate(lines) if line.strip() and not line.startswith("//")), len(lines))
