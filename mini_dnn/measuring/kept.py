"""The answers for pictures, and files that store them until a run is complete."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from mini_dnn.errors import UsageError
from mini_dnn.measuring.pipeline import Spent
from mini_dnn.paths import write_atomically
from mini_dnn.pictures.sources import Shard

KEPT, DIGITS = ".npz", 64  # of the names of files with stored answers


@dataclass(frozen=True, eq=False)
class Answers:
    """Some pictures in order, and the most likely classes of those that could be read."""

    names: Sequence[str]
    errors: Sequence[str]  # what is wrong with each; empty if nothing is
    classes: np.ndarray  # (n, k) for the n without an error, the likeliest first
    probabilities: np.ndarray  # (n, k)
    spent: Spent = field(default_factory=Spent)

    def split(self, count: int) -> tuple[Answers, Answers]:
        """Split into the first ``count`` pictures and the others."""
        good = self.errors[:count].count("")
        return (
            Answers(self.names[:count], self.errors[:count], self.classes[:good], self.probabilities[:good]),
            Answers(self.names[count:], self.errors[count:], self.classes[good:], self.probabilities[good:]),
        )

    @classmethod
    def joined(cls, parts: Sequence[Answers], spent: Spent | None = None) -> Answers:
        """Join the answers of several parts."""
        return cls(
            [name for part in parts for name in part.names],
            [error for part in parts for error in part.errors],
            np.concatenate([part.classes for part in parts]),
            np.concatenate([part.probabilities for part in parts]),
            spent or Spent(),
        )


class Kept:
    """Stores the answers of complete shards, in one file each, until all shards are complete.

    A file's name is a hash of the pictures' names, sizes and times, and of everything that the answers depend
    on. The same run therefore finds them again, and a different run does not.

    Parameters
    ----------
    folder
        The folder, which is created for the first complete shard. If None, nothing is stored.
    about
        Everything that answers depend on, besides the pictures, in a form that JSON can represent.

    Raises
    ------
    UsageError
        A file has the name of the folder.
    """

    def __init__(self, folder: Path | None, about: object) -> None:
        if folder and folder.exists() and not folder.is_dir():
            raise UsageError(
                f"{folder} is not a folder, but complete shards are stored in a folder of this name until "
                "all are complete; move the file, or give the results another name"
            )
        self._folder, self.about = folder, about
        self._files: dict[int, Path] = {}  # of shards that were requested and are not complete

    def find(self, shard: Shard) -> Path | None:
        """Return the file with the answers of a shard, or None if the shard is not complete."""
        if self._folder is None:
            return None
        file = self._folder / f"{shard.key(self.about)}{KEPT}"
        with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile):  # missing or damaged: recompute
            found = self.read(file)
            if len(found.names) == len(found.errors) == shard.count:
                return file
        self._files[shard.number] = file
        return None

    @staticmethod
    def read(file: Path) -> Answers:
        """Return the answers in a file."""
        with np.load(io.BytesIO(file.read_bytes()), allow_pickle=False) as found:
            names, errors = json.loads(found["words"].tobytes())
            return Answers(names, errors, found["classes"], found["probabilities"])

    def load(self, shard: Shard) -> Answers | None:
        """Return the answers of a shard, or None if the shard is not complete."""
        return self.read(file) if (file := self.find(shard)) else None

    def save(self, shard: int, answers: Answers) -> None:
        """Store the answers of the shard with this number."""
        file = self._files.pop(shard, None)
        if file is None:
            return
        words = json.dumps([list(answers.names), list(answers.errors)]).encode()
        content = io.BytesIO()
        np.savez(
            content,
            words=np.frombuffer(words, np.uint8),
            classes=answers.classes,
            probabilities=answers.probabilities,
        )
        write_atomically(file, content.getvalue())

    def remove(self) -> None:
        """Remove all of them, after the results have been written."""
        if self._folder is None:
            return
        for file in self._folder.glob(f"*{KEPT}"):
            if len(file.name) == len(KEPT) + DIGITS:
                file.unlink()
        with suppress(OSError):  # it never existed, or somebody put something else there
            self._folder.rmdir()
