"""Which files a kernel is made of, and one hash over them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

INCLUDE = Path(__file__).resolve().parents[1] / "include"  # of the headers that every kernel may include
LOCAL_INCLUDE = re.compile(r'^\s*#\s*include\s*(?P<spelled>"(?P<local>[^"]+)"|<(?P<shared>mini_dnn/[^>]+)>)')


def included(file: Path, line: str) -> Path | None:
    """The file that a line of ``file`` includes, if it is the kernel's or this project's; else None.

    ``#include "..."`` is looked for beside the file, ``#include <mini_dnn/...>`` among the project's headers.
    """
    match = LOCAL_INCLUDE.match(line)
    if match is None:
        return None
    path = file.parent / match["local"] if match["local"] else INCLUDE / match["shared"]
    return path.resolve() if path.is_file() else None


def source_files(source: Path) -> list[Path]:
    """The kernel file and all files that it includes (see `included`), itself first."""
    files = [source.resolve()]
    for file in files:  # grows while it is read
        for line in file.read_text(errors="replace").splitlines():
            path = included(file, line)
            if path is not None and path not in files:
                files.append(path)
    return files


def source_hash(source: Path) -> str:
    """SHA-256 over the kernel's files: two kernels with one hash are the same code."""
    digest = hashlib.sha256()
    for file in source_files(source):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
