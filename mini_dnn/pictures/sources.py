"""Sources of pictures: files, folders, archives, lists of files, standard input, arrays of pixels."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mini_dnn.errors import PictureError, UsageError, reason
from mini_dnn.paths import is_folder, read_regular
from mini_dnn.pictures.archives import ARCHIVES, Member, members, refused
from mini_dnn.pictures.decode import MOST_BYTES, suffixes
from mini_dnn.pictures.recipe import Recipe
from mini_dnn.pictures.stacks import Stack, is_stack, stack

STDIN = "-"
MOST_LIST_BYTES = 1 << 30  # of a list of files
SHARD = 1_000  # pictures
DECODED_SHARD = 16_000  # pictures that are already decoded, which take no longer


@dataclass(frozen=True)
class File:
    """A picture to be decoded: a file, a part of an archive, bytes, or the reason why there is none."""

    name: str
    source: Path | Member | bytes | PictureError

    def stamp(self) -> list[object]:
        """A text that changes if the picture changes."""
        match self.source:
            case Path():
                return [self.name, *_stamp(self.source)]
            case Member(archive, offset, size):
                return [self.name, *_stamp(archive), offset, size]
            case bytes():
                return [self.name, hashlib.sha256(self.source).hexdigest()]
        return [self.name, str(self.source)]


Source = File | Stack


@dataclass(frozen=True)
class Shard:
    """Consecutive pictures, which are processed, stored and moved to another GPU together."""

    number: int
    sources: Sequence[Source]
    count: int

    def __str__(self) -> str:
        """A description of the shard."""
        return f"shard {self.number} of {self.count:,} pictures"

    def key(self, more: object) -> str:
        """A hash of the names, sizes and times of its files, and of ``more``, which JSON can represent."""
        stamps = [
            source.stamp() if isinstance(source, File) else [*source.stamp(), *_stamp(source.path)]
            for source in self.sources
        ]
        return hashlib.sha256(json.dumps([stamps, more]).encode()).hexdigest()


@dataclass(frozen=True)
class Sources:
    """The pictures that a command line names. They are listed in each iteration, and not kept in memory.

    A name that does not exist counts as a picture, and so does a folder without pictures. They fail when they
    are decoded, without affecting the others.

    Parameters
    ----------
    names
        Files of pictures, folders, archives, and files of pixels.
    recipe
        The preprocessing by which the pixels of such a file were created.
    stdin
        A picture from standard input, for the name ``-``.
    """

    names: Sequence[str]
    recipe: Recipe
    stdin: File | None = None

    def __iter__(self) -> Iterator[Source]:
        """All sources in order, with the content of folders sorted by name."""
        for name in self.names:
            yield from self._expanded(name)

    @cached_property
    def count(self) -> int:
        """The number of pictures. They are counted once, for which folders and archives are read."""
        return sum(source.count if isinstance(source, Stack) else 1 for source in self)

    @property
    def are_decoded(self) -> bool:
        """Whether all of them are already decoded."""
        return all(is_stack(name) and not is_folder(Path(name)) for name in self.names)

    def shards(self, size: int = SHARD) -> Iterator[Shard]:
        """Yield all pictures in shards of this size."""
        some: list[Source] = []
        room, number = size, 0
        for source in self._cut(size):
            some.append(source)
            room -= source.count if isinstance(source, Stack) else 1
            if not room:
                yield Shard(number, tuple(some), size)
                some, room, number = [], size, number + 1
        if some:
            yield Shard(number, tuple(some), size - room)

    def _cut(self, size: int) -> Iterator[Source]:
        """The sources, with stacks divided at the ends of shards."""
        before = 0
        for source in self:
            if isinstance(source, File):
                before += 1
                yield source
                continue
            first = source.first
            while first < source.last:
                last = min(source.last, first + size - before % size)
                yield source.part(first, last)
                before += last - first
                first = last

    def _expanded(self, name: str) -> Iterator[Source]:
        if name == STDIN:
            assert self.stdin is not None, "it was read where it is named"
            yield self.stdin
        elif is_folder(Path(name)):
            yield from _folder(name)
        elif name.lower().endswith(ARCHIVES):
            yield from _archive(name)
        elif is_stack(name):
            yield stack(name, self.recipe)
        else:
            yield File(name, Path(name))


def sources(given: Sequence[str], listed: str | None, recipe: Recipe) -> Sources:
    """The sources that a command line names, in order.

    Parameters
    ----------
    given
        Files of pictures, folders, ``.tar`` archives, ``.npy`` and HDF5 files of pixels, and ``-``: a picture
        from standard input.
    listed
        A file with more of them, one per line; ``-`` for standard input.
    recipe
        The preprocessing by which the pixels of a file were created.

    Raises
    ------
    UsageError
        Nothing is named, or standard input twice; the list, an archive or a file of pixels cannot be used.
    """
    names = list(given)
    if [*names, listed].count(STDIN) > 1:
        raise UsageError(
            "standard input is named twice; it can contain one picture (-) or one list (--list -)"
        )
    if listed is not None:
        names += _lines(listed)
    if not names:
        raise UsageError(
            "no pictures are named; name files or folders, or use --list with a file that names them"
        )
    for name in names:
        if is_stack(name) and not is_folder(Path(name)):
            stack(name, recipe)  # raises an error, before the work, if it cannot be used
        if why := refused(name):
            raise UsageError(why)
    return Sources(names, recipe, File("standard input", _from_stdin()) if STDIN in names else None)


def _lines(listed: str) -> list[str]:
    """Names of files, one per line, in the order of the list."""
    try:
        if listed == STDIN:
            text = sys.stdin.buffer.read(MOST_LIST_BYTES + 1)
        else:
            text = read_regular(Path(listed), MOST_LIST_BYTES)
    except OSError as error:
        raise UsageError(
            f"--list {listed} cannot be read: {reason(error)}; expected a file that names one picture per "
            "line"
        ) from error
    if len(text) > MOST_LIST_BYTES:
        raise UsageError(f"--list {listed} has more than {MOST_LIST_BYTES:,} bytes; divide it")
    if b"\0" in text:
        raise UsageError(
            f"--list {listed} is not a text file; expected a file that names one picture per line"
        )
    lines = text.removeprefix(BOM_UTF8).splitlines()  # editors may write a byte order mark
    return [os.fsdecode(line) for line in lines if line.strip()]


def _from_stdin() -> bytes | PictureError:
    data = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        return PictureError(f"it has more than {MOST_BYTES:,} bytes; make it smaller")
    return data


def _folder(name: str) -> Iterator[File]:
    """Files with the extension of a picture: those of a folder, then those of its subfolders."""
    failed: list[OSError] = []
    found = False
    for folder, folders, files in os.walk(name, onerror=failed.append):
        folders[:] = sorted(inner for inner in folders if not inner.startswith("."))
        for file in sorted(filter(_is_picture, files)):
            path = Path(folder) / file
            found = True
            yield File(str(path), path)
    for error in failed:
        where = str(error.filename)
        yield File(where, PictureError(f"the folder cannot be read: {reason(error)}; change its permissions"))
    if not found and not failed:
        yield File(
            name, PictureError("no file in this folder has the extension of a picture, such as .jpg or .png")
        )


def _is_picture(name: str) -> bool:
    """Whether a file name has the extension of a picture."""
    return not name.startswith(".") and os.path.splitext(name)[1].lower() in suffixes()  # noqa: PTH122


def _archive(name: str) -> Iterator[File]:
    """The pictures of an archive in order, and then its error, if any."""
    found = False
    try:
        for inner, member in members(Path(name)):
            if _is_picture(inner.rpartition("/")[2]):
                found = True
                yield File(f"{name}/{inner}", member)
    except PictureError as error:
        yield File(name, error)
        return
    if not found:
        yield File(name, PictureError("no file in this archive has the extension of a picture, such as .jpg"))


def _stamp(path: Path) -> list[object]:
    try:
        found = path.stat()
    except OSError as error:
        return [reason(error)]
    return [found.st_size, found.st_mtime_ns]
