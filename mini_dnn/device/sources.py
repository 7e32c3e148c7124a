"""The files that a variant consists of, and a hash of its kernel's files."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from mini_dnn.paths import PACKAGE

INCLUDE = PACKAGE / "include"  # headers that every kernel may include
HEADERS = (".cuh", ".h")
PRAGMA_ONCE = re.compile(r"^\s*#\s*pragma\s+once\b", re.MULTILINE)
LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<spelled>"(?P<local>[^"]+)"|<(?P<shared>mini_dnn/[^>]+)>)')


def read_source(file: Path) -> str:
    """Return the text of a source file. It need not be UTF-8: compilers accept any bytes in comments."""
    return file.read_text(encoding="utf-8-sig", errors="replace")  # editors may write a byte order mark


def write_source(file: Path, text: str) -> None:
    """Write a source file in UTF-8, whatever the locale is."""
    file.write_text(text, encoding="utf-8")


def included(file: Path, line: str) -> Path | None:
    """Return the file that a line of ``file`` includes if it is the kernel's or this project's, else None.

    ``#include "..."`` is resolved relative to the file, then among the project's headers, as by compilers.
    ``#include <mini_dnn/...>`` is resolved among the project's headers.
    """
    match = LOCAL_INCLUDE.match(line) if "include" in line else None
    if match is None:
        return None
    name = match["local"] or match["shared"]
    folders = (file.parent, INCLUDE) if match["local"] else (INCLUDE,)
    return next((path.resolve() for folder in folders if (path := folder / name).is_file()), None)


def source_files(source: Path) -> list[Path]:
    """Return the kernel's file, followed by all files that it includes (see `included`)."""
    files = [source.resolve()]
    for file in files:  # the list grows during the loop
        for line in read_source(file).splitlines():
            path = included(file, line)
            if path is not None and path not in files:
                files.append(path)
    return files


def is_part(file: Path) -> bool:
    """Whether a file is part of the file that includes it: a header without ``#pragma once``."""
    return file.suffix in HEADERS and not PRAGMA_ONCE.search(read_source(file))


def lines_of(file: Path, within: tuple[Path, ...] = ()) -> Iterator[tuple[Path, str]]:
    """Yield the lines of a file, with the lines of its parts in their places (see `is_part`).

    Yields
    ------
    Path
        The file that contains the line.
    str
        The line, including its end.
    """
    # Latin-1 accepts every byte: nvcc does not require UTF-8 in comments either
    for line in file.read_bytes().decode("latin-1").splitlines(keepends=True):
        path = included(file, line)
        if path is not None and path not in (*within, file) and is_part(path):
            yield from lines_of(path, (*within, file))
            yield path, "\n"  # in case the part does not end with a newline
        else:
            yield file, line


def texts(source: Path) -> list[str]:
    """Return the texts of the kernel's file and of all files that it includes, each with its parts."""
    files, found = [source.resolve()], []
    for file in files:  # the list grows during the loop
        lines = list(lines_of(file))
        found.append("".join(line for _, line in lines))
        for path in (included(origin, line) for origin, line in lines):
            if path is not None and path not in files:
                files.append(path)
    return found


def host_halves() -> dict[str, Path]:
    """The modules that decide what is launched, by name. Others define problems, plans and variants."""
    files = (*PACKAGE.glob("quads.py"), *sorted(PACKAGE.glob("plans/[a-z]*.py")))
    return {".".join(("mini_dnn", *file.relative_to(PACKAGE).with_suffix("").parts)): file for file in files}


def python_files(description: Path) -> list[Path]:
    """Return a ``variant.py`` and the modules of `host_halves` that it imports, directly or not."""
    files, halves = [description], host_halves()
    for file in files:  # the list grows during the loop
        imported = _imported(file.read_text(encoding="utf-8-sig"))
        files += [half for name, half in halves.items() if name in imported and half not in files]
    return files


@cache
def _imported(text: str) -> frozenset[str]:
    """The names of all imported modules, and of what is imported from them."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names)


def source_hash(source: Path) -> str:
    """SHA-256 over the kernel's files. Kernels with the same hash are the same code."""
    digest = hashlib.sha256()
    for file in source_files(source):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
