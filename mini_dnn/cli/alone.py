"""A lock on an output file against other runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

from mini_dnn.work.locks import locked


def alone(path: Path, what: str) -> AbstractContextManager[None]:
    """Lock a file against other runs, whatever path they use for it; ``what`` is what such a run is."""
    path = path.resolve()
    refusal = f"another {what} is writing {path}; wait until it ends, or name another file"
    return locked(path.with_name(f".{path.name}.lock"), refusal, remove=True)
