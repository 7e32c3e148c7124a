"""Which files a kernel is made of, and one hash over them."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

LOCAL_INCLUDE = re.compile(rb'^\s*#\s*include\s*"([^"]+)"', re.MULTILINE)


def source_files(source: Path) -> list[Path]:
    """The kernel file and all files that it includes by ``#include "..."``, itself first."""
    files = [source.resolve()]
    for file in files:  # grows while it is read
        for match in LOCAL_INCLUDE.findall(file.read_bytes()):
            included = (file.parent / match.decode()).resolve()
            if included.is_file() and included not in files:
                files.append(included)
    return files


def source_hash(source: Path) -> str:
    """SHA-256 over the kernel's files: two kernels with one hash are the same code."""
    digest = hashlib.sha256()
    for file in source_files(source):
        digest.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()
