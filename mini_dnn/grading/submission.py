"""Submissions: their names, the variants in their folders, and a digest of what is graded."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mini_dnn.errors import UsageError, meant_file, reason
from mini_dnn.grading.asked import Rubric
from mini_dnn.grading.confined.process import SubmissionError
from mini_dnn.grading.submitted import MAX_BYTES, MAX_FILES, read, read_file
from mini_dnn.paths import is_folder
from mini_dnn.variant.folders import HOMES, MINE

MAX_WRAPPERS = 8  # folders around a submission
MAX_NAME_BYTES = 120  # of a submission's name, because results are files named after it
NAMES_OF_FILES = ("variant.py", "kernel.cu")
ARCHIVES = (".zip", ".gz", ".tgz", ".tar", ".xz", ".7z", ".rar")
MAX_LISTED = 8  # the most names of a submission's contents that a message shows


@dataclass(frozen=True)
class Submission:
    """One submission: a name, unique in a run, and its folder."""

    name: str
    folder: Path

    def variant(self, name: str, rubric: Rubric) -> Path | None:
        """Return the folder of the variant with this name in the rubric, or None if there is none.

        Raises
        ------
        SubmissionError
            There is a symbolic link on the way to it, or a folder that may not be searched.
        """
        top = self._top(rubric)
        if self.is_folder_of_variant(rubric):
            return top if name == rubric.single else None
        for path in (Path(MINE, name), Path(name), *(Path(home, name) for home in HOMES)):
            try:
                if folder := _within(top, path):
                    return folder
            except OSError as error:
                raise SubmissionError(f"{path} cannot be read: {reason(error)}") from error
        return None

    def log(self, rubric: Rubric) -> bytes | None:
        """Return the content of the work log, or None if the rubric or the submission has none.

        Raises
        ------
        SubmissionError
            The log is a link or not a file, cannot be read, or is too large.
        """
        if rubric.log is None:
            return None
        top, file = self._top(rubric), rubric.log.file
        path = next((path for path in (top / file, top / MINE / file) if os.path.lexists(path)), None)
        if path is None:
            return None
        if path.is_symlink() or path.parent.is_symlink():
            raise SubmissionError(f"{path.name} is a symbolic link; submit the file itself")
        text = read_file(path, path.name)
        if len(text) > MAX_BYTES:
            raise SubmissionError(f"{path.name} has more than {MAX_BYTES >> 20} MB; submit a shorter log")
        return text

    def is_folder_of_variant(self, rubric: Rubric) -> bool:
        """Whether the submission is the folder of a single variant."""
        return any(path.name in NAMES_OF_FILES for path in _visible(self._top(rubric)))

    def is_of_several(self, rubric: Rubric) -> bool:
        """Whether several of its folders hold variants, so that none of them is graded."""
        return len(self._tops(rubric)) > 1

    def missing(self, name: str, rubric: Rubric) -> str:
        """Explain to the author that the submission lacks the variant with this name."""
        tops = self._tops(rubric)
        if self.is_of_several(rubric):
            several = " and ".join(sorted(str(top.relative_to(self.folder)) for top in tops[:MAX_LISTED]))
            return (
                f"it is not clear which {name} is meant, because {several} have variants; submit one of them"
            )
        held = [path.name for path in _visible(self._top(rubric))]
        listed = ", ".join(held[:MAX_LISTED]) + ", …" * (len(held) > MAX_LISTED)
        short = Path(MINE, Path(name).name)  # where `run.py new --exercise` makes a copy of the variant
        if (self._top(rubric) / short).is_dir():
            return f"there is no {name}; move {short} to {MINE}/{name}, where it is expected"
        packed = [one for one in held if one.lower().endswith(ARCHIVES)]
        return (
            f"there is no {name}; submit that folder, with variant.py and kernel.cu. "
            f"The submission {f'holds {listed}' if held else 'is empty'}"
            + (f"; {packed[0]} is not unpacked: submit the files themselves" if packed else "")
        )

    def _top(self, rubric: Rubric) -> Path:
        """The folder with the files. Archives often add enclosing folders, and other folders next to them."""
        tops = self._tops(rubric)
        return tops[0] if len(tops) == 1 else self.folder

    def _tops(self, rubric: Rubric) -> list[Path]:
        """The folders that hold variants, at the smallest depth at which there are any."""
        asked = (one.name.partition("/")[0] for one in rubric.variants)
        expected = {"layers", "networks", MINE, *HOMES, *asked}
        level = [self.folder]
        for _ in range(MAX_WRAPPERS):
            held = {folder: _visible(folder) for folder in level}
            found = [
                folder for folder in level if any(_is_of_variant(path, expected) for path in held[folder])
            ]
            if found:
                return found
            inner = [path for paths in held.values() for path in paths]
            level = [path for path in inner if is_folder(path) and not path.is_symlink()][:MAX_FILES]
        return []


def _within(top: Path, path: Path) -> Path | None:
    """The folder with this path in another one, or None if there is none.

    Raises
    ------
    SubmissionError
        There is a symbolic link on the way to it.
    """
    folder = top
    for part in path.parts:
        folder = folder / part
        if folder.is_symlink():
            raise SubmissionError(f"{path} is a symbolic link; submit the files themselves")
    return folder if folder.is_dir() else None


def _is_of_variant(path: Path, expected: set[str]) -> bool:
    if path.name in NAMES_OF_FILES:
        return not is_folder(path)  # `read` refuses what is no file, or cannot be read
    return path.name in expected and is_folder(path)


def _visible(folder: Path) -> list[Path]:
    """The contents of a folder, sorted, without the files that operating systems and archives add.

    A folder that cannot be read counts as empty.
    """
    try:
        found = list(folder.iterdir())
    except OSError:
        return []
    return sorted(path for path in found if not path.name.startswith(".") and path.name != "__MACOSX")


def named(folders: Sequence[Path]) -> list[Submission]:
    """Name submissions after their folders, with the parent folder's name added where names would clash.

    Raises
    ------
    UsageError
        A folder does not exist, is given twice, or differs from another only in characters that the name of a
        result cannot have.
    """
    for folder in folders:
        if not folder.is_dir():
            what = "a folder with variant.py and kernel.cu, or a repository with layers or ladders"
            if folder.exists():
                raise UsageError(
                    f"{folder} is a file, and a submission is {what}; unpack it into a folder of its own, or "
                    "name only the folders: submissions/*/"
                )
            raise UsageError(f"no folder {folder}{meant_file(folder)}; a submission is {what}")
    resolved = [folder.resolve() for folder in folders]
    twice = _repeated([str(folder) for folder in resolved])
    if twice:
        raise UsageError(f"{twice[0]} is given twice")
    shown = [Path(os.path.abspath(folder)) for folder in folders]  # noqa: PTH100 - a link has its own name
    names = [_name(folder, 1) for folder in shown]
    for depth in range(2, 1 + max(len(folder.parts) for folder in shown)):
        shared = set(_repeated(names))
        names = [
            _name(folder, depth) if name in shared else name
            for name, folder in zip(names, shown, strict=True)
        ]
    same = _repeated(names)
    if same:
        clash = [str(folder) for folder, name in zip(resolved, names, strict=True) if name == same[0]]
        raise UsageError(
            f"results of {' and '.join(clash)} would have the same name; rename one of the folders"
        )
    return [Submission(name, folder) for name, folder in zip(names, resolved, strict=True)]


def check_apart(submissions: Sequence[Submission], out: Path, rubric: Rubric) -> None:
    """Ensure that results are not graded, and that they do not change what is graded.

    Raises
    ------
    UsageError
        The folder of the results is that of a submission, or is among the files of a variant.
    """
    out = out.resolve()
    for one in submissions:
        inside = one.is_folder_of_variant(rubric) and out.is_relative_to(one.folder)
        if out == one.folder or inside:
            what = "is" if out == one.folder else f"is in {one.folder}, which is"
            raise UsageError(
                f"--out {out} {what} named as a submission; name only submissions, or write the results to "
                "a folder beside them"
            )


def _repeated(names: Sequence[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def _name(folder: Path, depth: int) -> str:
    """The last parts of its path, limited to the characters and the length of a result's name."""
    path = unicodedata.normalize("NFC", "-".join(folder.parts[-depth:]))  # macOS decomposes accented letters
    name = re.sub(r"[^\w.-]", "_", path)
    if len(name.encode()) <= MAX_NAME_BYTES:
        return name
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name.encode()[: MAX_NAME_BYTES - 1 - len(mark)].decode(errors='ignore')}-{mark}"


def digest(submission: Submission, rubric: Rubric) -> str:
    """SHA-256 over all graded files. Submissions with equal digests get equal grades."""
    total = hashlib.sha256()
    if rubric.log:
        try:
            log = submission.log(rubric)
            total.update(hashlib.sha256(log).digest() if log is not None else b"none")
        except SubmissionError as error:
            total.update(str(error).encode())
    for variant in rubric.variants:
        try:
            folder = submission.variant(variant.name, rubric)
            files = read(folder) if folder else {"": os.fsencode(submission.missing(variant.name, rubric))}
        except SubmissionError as error:  # the error is what is graded
            files = {"": os.fsencode(str(error))}
        for name, content in sorted(files.items()):
            for part in (variant.name.encode(), os.fsencode(name), content):  # names need not be UTF-8
                total.update(len(part).to_bytes(8, "little") + part)
    return total.hexdigest()
