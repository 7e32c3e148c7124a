"""The changes from one variant to another, file by file."""

from __future__ import annotations

import ast
import difflib

from mini_dnn.device.sources import read_source
from mini_dnn.variant.variant import Variant

FILES = ("kernel.cu", "variant.py")


def compare(old: Variant, new: Variant, file: str, heads: bool = True) -> list[str]:
    """The lines of a unified diff of one file of two variants, or a sentence if the files are equal.

    Parameters
    ----------
    heads
        Whether to compare the comment or docstring at the top of the file, too.
    """
    for variant in (old, new):
        if not (variant.folder / file).is_file():
            return ["", f"{file}: {variant.name} runs on the host and does not have this file"]
    before, after = (_lines(variant, file, heads) for variant in (old, new))
    if before == after:
        rest = "" if heads else " except for the comment at its head"
        return ["", f"{file}: equal{rest}"]
    old_name, new_name = f"{old.name}/{file}", f"{new.name}/{file}"
    return ["", *difflib.unified_diff(before, after, old_name, new_name, lineterm="")]


def _lines(variant: Variant, file: str, heads: bool) -> list[str]:
    text = read_source(variant.folder / file)
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
