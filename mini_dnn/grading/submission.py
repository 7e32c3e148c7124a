"""Submissions: which variants a folder holds, and a copy of their files that nothing can change any more."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.errors import UsageError
from mini_dnn.grading.process import SubmissionError
from mini_dnn.grading.rubric import Rubric

MAX_FILES, MAX_BYTES = 200, 8 << 20  # of one variant; folders count as files
MAX_PATH = 200  # characters of a file's path within it
NEEDED = ("variant.py",)
LEFT_OUT = ("__pycache__",)


@dataclass(frozen=True)
class Submission:
    """One submission: a name, unique in a run, and its folder."""

    name: str
    folder: Path

    def variant(self, name: str, rubric: Rubric) -> Path | None:
        """Folder of the variant that the rubric calls so; None if the submission has none.

        Raises
        ------
        SubmissionError
            There is a symbolic link on the way.
        """
        if any((self.folder / file).exists() for file in ("variant.py", "kernel.cu")):
            return self.folder if name == rubric.single else None
        for place in (Path(name), Path("milestones", name)):
            folder = self.folder
            for part in place.parts:
                folder = folder / part
                if folder.is_symlink():
                    raise SubmissionError(f"{place} is a symbolic link; submit the files themselves")
            if folder.is_dir():
                return folder
        return None


def named(folders: Sequence[Path]) -> list[Submission]:
    """Submissions with names of their own: the folder's, with its parent's where that is not enough.

    Raises
    ------
    UsageError
        A folder is not there, is given twice, or differs from another only in characters that no name of a
        result has.
    """
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(
                f"no folder {folder}: a submission is a folder with variant.py and kernel.cu, or a "
                "repository with layers/custom and milestones"
            )
    resolved = [folder.resolve() for folder in folders]
    twice = [str(folder) for folder, count in Counter(resolved).items() if count > 1]
    if twice:
        raise UsageError(f"{twice[0]} is given twice")
    for depth in range(1, 1 + max(len(folder.parts) for folder in resolved)):
        names = [re.sub(r"[^\w.-]", "_", "-".join(folder.parts[-depth:])) for folder in resolved]
        if len(set(names)) == len(names):
            break
    same = [name for name, count in Counter(names).items() if count > 1]
    if same:
        clash = [str(folder) for folder, name in zip(resolved, names, strict=True) if name == same[0]]
        raise UsageError(f"results of {' and '.join(clash)} would have one name; rename one of the folders")
    return [Submission(name, folder) for name, folder in zip(names, resolved, strict=True)]


def digest(submission: Submission, rubric: Rubric) -> str:
    """SHA-256 over all files that are graded: two submissions with one digest get one grade."""
    total = hashlib.sha256()
    for variant in rubric.variants:
        try:
            folder = submission.variant(variant.name, rubric)
            files = read(folder) if folder else {}
        except SubmissionError as error:  # what it says is what is graded
            files = {"": str(error).encode()}
        for name, content in sorted(files.items()):
            for part in (variant.name.encode(), name.encode(), content):
                total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()


def read(folder: Path) -> dict[str, bytes]:
    """The files of a variant by their names in its folder.

    Raises
    ------
    SubmissionError
        A link, something that is no file, a name that is none, too much, or no ``variant.py``.
    """
    files: dict[str, bytes] = {}
    size = count = 0
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in LEFT_OUT)
        for name in sorted([*folders, *(name for name in names if not name.startswith("."))]):
            path = Path(where, name)
            inside = path.relative_to(folder).as_posix()
            _check_path(inside)
            if path.is_symlink():
                raise SubmissionError(f"{inside} is a symbolic link; submit the file itself")
            if name not in folders:
                files[inside] = _content(path, inside)
                size += len(files[inside])
            count += 1
            if count > MAX_FILES or size > MAX_BYTES:
                raise SubmissionError(
                    f"more than {MAX_FILES} files or {MAX_BYTES >> 20} MB in a variant's folder; "
                    "submit variant.py, kernel.cu and what they include"
                )
    missing = [name for name in NEEDED if name not in files]
    if missing:
        raise SubmissionError(
            f"there is no {missing[0]}; a variant is a folder with variant.py and kernel.cu"
        )
    return files


def _check_path(name: str) -> None:
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise SubmissionError(f"the name {name!a} is not UTF-8; rename the file") from error
    if len(name) > MAX_PATH:
        raise SubmissionError(f"{name[:50]}... is a path of {len(name)} characters; the most is {MAX_PATH}")


def _content(path: Path, name: str) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise SubmissionError(f"{name} is no ordinary file")
            return file.read(MAX_BYTES + 1)
    except OSError as error:
        raise SubmissionError(f"{name} cannot be read: {error.strerror}") from error


def write(files: dict[str, bytes], folder: Path) -> None:
    """A private copy that processes of the submission may read."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
