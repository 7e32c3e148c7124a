"""HDF5 files from any source. Only plain arrays that are stored in full in the file itself are read."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py

from mini_dnn.paths import open_regular

MOST_ATTRIBUTES = 100
MOST_ARRAYS, MOST_DEPTH = 10_000, 10


@contextmanager
def opened(path: Path) -> Iterator[h5py.File]:
    """A file for reading.

    Raises
    ------
    OSError
        The file does not exist, or is not a regular file in the format HDF5.
    """
    open_regular(path).close()  # HDF5 would wait for a pipe's other end
    # No lock: the file never changes once it has its name, and some network file systems refuse locks.
    with h5py.File(path, "r", locking=False) as file:
        yield file


@contextmanager
def written(path: Path, **options: Any) -> Iterator[h5py.File]:
    """A new file, which is written to the disk at the end.

    Until then it is in memory. If HDF5 itself meets a full disk, it prints an error for each array, raises
    different errors, and may crash when the process ends.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    memory = io.BytesIO()
    with h5py.File(memory, "w", **options) as file:
        yield file
    path.write_bytes(memory.getbuffer())


def array(file: h5py.File, name: str) -> h5py.Dataset:
    """An array of the file, not yet read.

    A file of a few kilobytes may describe gigabytes that are compressed, or were never written. Files of
    mini_dnn are not compressed, so an array whose sizes in the file and in memory differ is refused, and so
    is a link.

    Raises
    ------
    KeyError
        It is missing, or not an array.
    OSError
        It is not a plain array.
    """
    folder: h5py.Group = file
    *groups, last = name.split("/")
    for part in groups:
        folder = _linked(folder, part, h5py.Group)
    found = _linked(folder, last, h5py.Dataset)
    if found.is_virtual or found.external:
        raise OSError(f"'{name}' is stored in another file")
    in_memory = found.dtype.itemsize * math.prod(found.shape)
    in_file = found.id.get_storage_size()
    if found.chunks or found.dtype.hasobject or in_file != in_memory:
        raise OSError(f"'{name}' takes {in_file:,} bytes in the file and {in_memory:,} in memory")
    return found


def names(file: h5py.File, folder: str = "") -> list[str]:
    """Names of all arrays of the file, such as ``conv1/weight``; links are not followed.

    Raises
    ------
    OSError
        There are too many, or they are nested too deep.
    """
    found: list[str] = []
    pending = [folder]
    while pending:
        at = pending.pop()
        group = file[at] if at else file
        for name in group:
            path = f"{at}/{name}" if at else name
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise OSError(f"'{name}' is a link, and links are not followed")
            (found if isinstance(group[name], h5py.Dataset) else pending).append(path)
        if len(found) + len(pending) > MOST_ARRAYS or at.count("/") > MOST_DEPTH:
            raise OSError(
                f"it has more than {MOST_ARRAYS:,} arrays, or they are nested {MOST_DEPTH} folders deep"
            )
    return found


def attributes(file: h5py.File) -> dict[str, object]:
    """The file's attributes: numbers and strings of fixed length.

    Raises
    ------
    OSError
        There is an attribute of another kind.
    """
    if len(file.attrs) > MOST_ATTRIBUTES:
        raise OSError(f"it has {len(file.attrs):,} attributes, but at most {MOST_ATTRIBUTES} are allowed")
    for name in file.attrs:
        kind = file.attrs.get_id(name)
        if kind.shape != () or kind.dtype.kind not in "biufS":
            raise OSError(f"the attribute {name!r:.60} is neither a number nor a string of fixed length")
    return dict(file.attrs)


def _linked(folder: h5py.Group, name: str, kind: type) -> h5py.Dataset | h5py.Group:
    link = folder.get(name, getlink=True)
    if link is None:
        raise KeyError(f"'{name}' is missing")
    if not isinstance(link, h5py.HardLink):
        raise OSError(f"'{name}' is a link, and links are not followed")
    found = folder[name]
    if not isinstance(found, kind):
        raise KeyError(f"'{name}' is not a {kind.__name__.lower()}")
    return found
