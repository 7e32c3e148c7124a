"""Variants that students receive, with everything that these need."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from mini_dnn.device.sources import read_source, source_files
from mini_dnn.errors import UsageError, meant
from mini_dnn.variant.folders import SHORT_NAMES, find, names


def given(words: Iterable[str], flag: str) -> tuple[str, ...]:
    """Names of variants, with their ancestors and those whose kernels they include or launch.

    Parameters
    ----------
    words
        Names, or beginnings of names: ``m1``, ``softmax``, ``gemm/v0``.
    flag
        The name of the flag in messages.

    Raises
    ------
    UsageError
        No variant has such a name.
    """
    asked: list[str] = []
    for word in words:
        short = SHORT_NAMES.get(word)
        begins = (f"{word}/", f"{word}_") if "/" in word else f"{word}/"  # gemm/v1 is gemm/v1_coalesced
        found = [name for name in names() if name == short or f"{name}/".startswith(begins)]
        if not found:
            groups = sorted({name.partition("/")[0] for name in names()})
            hint = meant(word, [*names(), *groups]) or f"; expected one of {', '.join(groups)}"
            raise UsageError(f"{flag} {word}: no variant has that name{hint}")
        asked += found
    for name in asked:  # grows while it is read
        variant = find(name)
        inside = [path.parent for path in sources([name]) if (path.parent / "variant.py").is_file()]
        # Also other texts, of which only the names of variants count
        called = re.findall(r'"([\w/]+)"', read_source(variant.folder / "variant.py"))
        needed = [variant.parent, *called, *(find(folder).name for folder in inside)]
        asked += [other for other in needed if other in names() and other not in asked]
    return tuple(name for name in names() if name in asked)


def sources(of: Iterable[str]) -> set[Path]:
    """The kernel files of variants, and the files that they include."""
    variants = (find(name) for name in of)
    return {path for variant in variants if variant.plan for path in source_files(variant.source)}
