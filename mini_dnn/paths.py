"""Where the project lies, and how files are written safely."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent  # mini_dnn
ROOT = PACKAGE.parent  # the checkout, with run.py and the variants' folders


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that other processes see all of it or none of it; the last writer wins."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
