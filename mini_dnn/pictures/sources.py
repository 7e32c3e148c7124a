"""Where pictures come from: files, folders, lists of files, standard input, arrays of finished pixels."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mini_dnn.errors import PictureError, UsageError
from mini_dnn.paths import open_regular, read_regular
from mini_dnn.pictures.decode import MOST_BYTES, suffixes
from mini_dnn.pictures.recipe import Recipe

STDIN = "-"
STACK = ".npy"  # the ending of a file of finished pixels
MOST_LIST_BYTES = 1 << 30  # of a list of files


@dataclass(frozen=True)
class File:
    """A picture that is still to be decoded: a file, what was in one, or why there is none."""

    name: str
    source: Path | bytes | PictureError


@dataclass(frozen=True, eq=False)
class Stack:
    """Pictures that are decoded, mapped to memory: ``(N, rows, columns, channels) uint8``."""

    name: str
    pixels: np.ndarray

    def names(self, first: int, last: int) -> list[str]:
        """Of some of its pictures: ``pictures.npy[7]``."""
        return [f"{self.name}[{i}]" for i in range(first, last)]


Source = File | Stack


def sources(given: Sequence[str], listed: str | None, recipe: Recipe) -> list[Source]:
    """What a command line names, in its order; folders with all that is in them, in the order of names.

    A name that leads nowhere is among them, and so is a folder without pictures: they fail when they are
    decoded, and the others do not.

    Parameters
    ----------
    given
        Files of pictures, folders, ``.npy`` files of pixels, and ``-``: a picture from standard input.
    listed
        A file with more of them, one a line; ``-`` for standard input.
    recipe
        What the pixels of a ``.npy`` file were made by.

    Raises
    ------
    UsageError
        Nothing is named, or standard input twice; the list, or a file of pixels, cannot be used.
    """
    names = list(given)
    if [*names, listed].count(STDIN) > 1:
        raise UsageError(
            "standard input was asked for twice; it holds one picture (-), or one list (--list -)"
        )
    if listed is not None:
        names += _lines(listed)
    found = [source for name in names for source in _expanded(name, recipe)]
    if not found:
        raise UsageError("no picture is named; name files or folders, or give --list a file that names some")
    return found


def count(found: Sequence[Source]) -> int:
    """How many pictures these are."""
    return sum(len(source.pixels) if isinstance(source, Stack) else 1 for source in found)


def _lines(listed: str) -> list[str]:
    """Names of files, one a line; the list's own order."""
    try:
        if listed == STDIN:
            text = sys.stdin.buffer.read(MOST_LIST_BYTES)
        else:
            text = read_regular(Path(listed), MOST_LIST_BYTES)
    except OSError as error:
        raise UsageError(
            f"--list {listed} cannot be read: {error.strerror}; expected a file that names a picture a line"
        ) from error
    if b"\0" in text:
        raise UsageError(f"--list {listed} is no text; expected a file that names a picture a line")
    return [os.fsdecode(line) for line in text.splitlines() if line.strip()]


def _expanded(name: str, recipe: Recipe) -> Iterator[Source]:
    if name == STDIN:
        yield File("standard input", _from_stdin())
    elif Path(name).is_dir():
        yield from _folder(name)
    elif name.lower().endswith(STACK):
        yield _stack(Path(name), recipe)
    else:
        yield File(name, Path(name))


def _from_stdin() -> bytes | PictureError:
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        return PictureError(f"it has more than {MOST_BYTES:,} bytes; make it smaller")
    return data


def _folder(name: str) -> Iterator[File]:
    """Files whose names end as pictures' do, those of a folder before those of the folders in it."""
    failed: list[OSError] = []
    taken, count = suffixes(), 0
    for folder, folders, files in os.walk(name, onerror=failed.append):
        folders[:] = sorted(inner for inner in folders if not inner.startswith("."))
        for file in sorted(files):
            if not file.startswith(".") and os.path.splitext(file)[1].lower() in taken:  # noqa: PTH122
                path = Path(folder) / file
                count += 1
                yield File(str(path), path)
    for error in failed:
        where = str(error.filename)
        yield File(
            where, PictureError(f"the folder cannot be read: {error.strerror}; change its permissions")
        )
    if not count and not failed:
        yield File(name, PictureError("no file in this folder has a picture's ending, such as .jpg or .png"))


def _stack(path: Path, recipe: Recipe) -> Stack:
    """Pixels that are decoded already; of them only what is looked at is ever read.

    Raises
    ------
    UsageError
        They are no such pixels.
    """
    R, S, C = recipe.shape
    kind = f"(N, {R}, {S}, {C}) uint8" + (f" or (N, {R}, {S}) uint8" if C == 1 else "")
    expected = f"expected a NumPy file of pictures that are decoded, {kind}; see docs/classify.md"
    try:
        open_regular(path).close()
        pixels = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{path} cannot be used: {why}; {expected}") from error
    if not isinstance(pixels, np.ndarray):
        raise UsageError(f"{path} is an archive of arrays; {expected}")
    if C == 1 and pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[1:] != recipe.shape or not len(pixels):
        raise UsageError(f"{path} holds {pixels.shape} {pixels.dtype}; {expected}")
    return Stack(str(path), pixels)
