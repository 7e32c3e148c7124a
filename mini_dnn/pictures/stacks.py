"""Pictures that are already decoded: byte arrays in ``.npy`` and HDF5 files, which are read on demand."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import h5py
import numpy as np

from mini_dnn.errors import UsageError
from mini_dnn.paths import open_regular
from mini_dnn.pictures.recipe import Recipe

NPY = ".npy"
HDF5 = (".h5", ".hdf5")
BETWEEN = ":"  # between the name of a file and the name of an array in it


@dataclass(frozen=True)
class Stack:
    """Some of the pictures of a file.

    Parameters
    ----------
    name
        Its name in messages.
    path, array
        The file, and the name of the array in it; empty in a ``.npy`` file.
    shape
        The shape of one picture, (rows, columns, channels).
    planes
        Whether the array is ``(N, channels, rows, columns) uint8``, as networks on a device read it, and not
        ``(N, rows, columns, channels) uint8``.
    first, last
        The range of pictures.
    """

    name: str
    path: Path
    array: str
    shape: tuple[int, int, int]
    planes: bool
    first: int
    last: int

    @property
    def count(self) -> int:
        """The number of pictures."""
        return self.last - self.first

    def part(self, first: int, last: int) -> Stack:
        """Return a part of the file's pictures."""
        return replace(self, first=first, last=last)

    def names(self, first: int, last: int) -> list[str]:
        """Return names of some of the file's pictures: ``pictures.npy[7]``."""
        return [f"{self.name}[{i}]" for i in range(first, last)]

    def stamp(self) -> list[object]:
        """Identify the pictures and their array."""
        return [self.name, self.array, self.first, self.last]

    def batches(self, size: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield first and last picture, and pixels (n, rows, columns, channels), ``size`` at a time."""
        R, S, C = self.shape
        with opened(self.path, self.array) as pixels:
            for first in range(self.first, self.last, size):
                last = min(first + size, self.last)
                part = pixels[first:last]
                if self.planes:
                    yield first, last, part.transpose(0, 2, 3, 1)
                else:
                    yield first, last, part.reshape(last - first, R, S, C)


def is_stack(name: str) -> bool:
    """Whether the name is that of a file of pixels."""
    return _split(name) is not None


def stack(name: str, recipe: Recipe) -> Stack:
    """Return all pictures of a file: ``FILE.npy``, ``FILE.h5`` or ``FILE.h5:ARRAY``.

    Raises
    ------
    UsageError
        The file cannot be used, or its pixels do not fit the recipe.
    """
    R, S, C = recipe.shape
    shapes: list[tuple[int, ...]] = [(R, S, C), (C, R, S), *([(R, S)] if C == 1 else [])]
    kind = " or ".join(f"(N, {', '.join(map(str, shape))})" for shape in shapes)
    expected = f"expected decoded pictures, {kind} uint8; see docs/classify.md"
    path, array = named_array(name)
    try:
        with opened(path, array) as pixels:
            shape, dtype = tuple(pixels.shape), pixels.dtype
    except (OSError, ValueError, EOFError, KeyError) as error:
        why = reason(error)
        raise UsageError(f"{name} cannot be used: {why}; {expected}") from error
    if dtype != np.uint8 or shape[1:] not in shapes or not shape[0]:
        raise UsageError(f"{name} holds {shape} {dtype}; {expected}")
    planes = C > 1 and shape[1:] == (C, R, S) != (R, S, C)
    return Stack(name, path, array, recipe.shape, planes, 0, shape[0])


def named_array(name: str) -> tuple[Path, str]:
    """Split a name into the file and the name of an array in it, which is empty if there is none."""
    found = _split(name)
    assert found is not None, "the caller looks: see `is_stack`"
    return found


def _split(name: str) -> tuple[Path, str] | None:
    """Split a name into the file and the name of an array in it; None if it is something else."""
    if name.lower().endswith(NPY):
        return Path(name), ""
    for text, array in ((name, ""), name.rpartition(BETWEEN)[::2]):
        if text.lower().endswith(HDF5):
            return Path(text), array
    return None


@contextmanager
def opened(path: Path, array: str) -> Iterator[Any]:
    """Open an array of a file without reading it.

    Raises
    ------
    OSError, ValueError, EOFError, KeyError
        There is no such array.
    """
    open_regular(path).close()  # do not wait for the other end of a pipe
    if path.name.lower().endswith(NPY):
        try:
            pixels = np.load(path, mmap_mode="r", allow_pickle=False)
        except (TokenError, TypeError) as error:  # NumPy's, for some damaged headers
            raise ValueError(f"its header is damaged: {error.args[0]}") from error
        if not isinstance(pixels, np.ndarray):
            raise ValueError("it is an archive of arrays")
        yield pixels
        return
    # No lock: some network file systems refuse locks, and nothing is written.
    with h5py.File(path, "r", locking=False) as file:
        try:
            found = _mapped(path, _array(file, array))
        except RuntimeError as error:  # HDF5's, for damaged metadata
            raise OSError(str(error)) from error
        yield found


def reason(error: Exception) -> str:
    """Return why an array or a file cannot be read, from an error of `opened`."""
    return str(error.strerror if isinstance(error, OSError) and error.strerror else error.args[0])


def _mapped(path: Path, found: h5py.Dataset) -> Any:
    """Map an array into memory if it is stored contiguously, because HDF5 reads in one thread at a time."""
    offset = found.id.get_offset()  # None for chunks
    stored = found.id.get_storage_size() == found.nbytes  # false if it was never written
    if offset is None or not stored or found.dtype != np.uint8:
        return found
    return np.memmap(path, found.dtype, "r", offset, found.shape)


def _array(file: h5py.File, name: str) -> h5py.Dataset:
    """Return the array with this name in the file itself; without a name, the only array of pictures."""
    if not name:
        found = [key for key in file if isinstance(file.get(key, getlink=True), h5py.HardLink)]
        found = [key for key in found if isinstance(file[key], h5py.Dataset) and file[key].ndim > 2]
        if len(found) != 1:
            raise KeyError(
                f"it holds {', '.join(sorted(found)) or 'no array of pictures'}; name one, as in "
                f"{Path(file.filename).name}{BETWEEN}images"
            )
        name = found[0]
    link = file.get(name, getlink=True)
    if not isinstance(link, h5py.HardLink) or not isinstance(file[name], h5py.Dataset):
        raise KeyError(f"there is no array '{name}' in it")
    found_array = file[name]
    if found_array.is_virtual or found_array.external:
        raise OSError(f"'{name}' is stored in another file")
    if math.prod(found_array.chunks or ()) > 1 << 30:
        raise OSError(f"'{name}' has chunks of more than 1 GiB; write it with smaller ones")
    return found_array
