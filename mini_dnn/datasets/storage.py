"""The cache of resized 86×86 images: one HDF5 file for each set and split, which is checked when it is read.

A cache file is never changed in place. It is written under a temporary name and then renamed, so that no
process leaves or sees an incomplete file.

Its first 512 bytes are what HDF5 calls a user block: ours holds a checksum of all bytes after it. It is
compared before HDF5 sees the file, because damaged metadata can make the HDF5 library crash or hang.
"""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Mapping
from pathlib import Path

import h5py
import numpy as np

from mini_dnn.datasets import hdf5
from mini_dnn.errors import DataError, reason
from mini_dnn.paths import ROOT, expanded, open_regular, replacing

SIDE = 86  # pixels: what the course's network takes
SPLITS = ("train", "test")
BAR_STEP = 256  # images between two updates of a progress bar
DATA = ROOT / "data"  # of the repository
Pixels = tuple[np.ndarray, np.ndarray]  # images (N, 1, 86, 86) uint8, labels (N,) uint8
Recipe = Mapping[str, str]  # everything that determines the pixels; stored as the file's attributes

_USER_BLOCK = 512  # bytes; the smallest that HDF5 allows
_CHUNK = 1 << 20  # bytes read at once
_log = logging.getLogger(__name__)


def named_by(variable: str, data_dir: Path | str | None) -> tuple[Path, str] | None:
    """Folder that the user named, and how: by `data_dir`, or else by an environment variable."""
    if data_dir is not None:
        return expanded(str(data_dir)), f"data_dir={data_dir}"
    if value := os.environ.get(variable):  # an empty value counts as not set
        return expanded(value), f"{variable}={value}"
    return None


def check_folder(folder: Path) -> None:
    """Check that a folder exists.

    Raises
    ------
    DataError
        It does not exist, or the system refuses to tell.
    """
    try:
        exists = folder.is_dir()
    except OSError as error:  # the name is too long, or a folder above it may not be searched
        raise DataError(f"{folder} cannot be read: {reason(error)}") from error
    if not exists:
        raise DataError(f"there is no folder {folder}")


def read(path: Path, recipe: Recipe) -> Pixels | None:
    """Read cached images; None if there are none, or if they are not valid.

    Returns
    -------
    (images, labels) or None
        None if the file is missing, was made in another way, or is damaged. For a damaged file, the logger
        prints a warning. The caller creates the file again.
    """
    try:
        with open_regular(path) as raw:
            seal = raw.read(_USER_BLOCK)
        if seal != _seal(path):
            raise OSError("its checksum does not match")
        with hdf5.opened(path) as file:
            if {key: file.attrs.get(key) for key in recipe} != dict(recipe):
                return None
            return _checked(file)
    except FileNotFoundError:
        return None
    # h5py raises these for invalid files
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        _log.warning("the cache %s is damaged (%s); the images are created again", path, error)
        return None


def write(path: Path, recipe: Recipe, pixels: Pixels) -> None:
    """Cache images. If the file cannot be written, the logger prints a warning."""
    images, labels = pixels
    try:
        with replacing(path) as temporary:
            with hdf5.written(temporary, userblock_size=_USER_BLOCK) as file:
                file.create_dataset("images", data=images)
                file.create_dataset("labels", data=labels)
                file.attrs.update(recipe)
            seal = _seal(temporary)
            with temporary.open("r+b") as raw:
                raw.write(seal)
    except OSError as error:
        _log.warning(
            "no cache: %s cannot be written (%s); the images will be created again each time",
            path,
            reason(error),
        )


def _checked(file: h5py.File) -> Pixels:
    images, labels = hdf5.array(file, "images"), hdf5.array(file, "labels")
    count = labels.shape[0] if labels.shape else 0
    found = (images.shape, images.dtype, labels.shape, labels.dtype)
    wanted = ((count, 1, SIDE, SIDE), np.uint8, (count,), np.uint8)
    if found != wanted:
        raise OSError(f"it holds {found}, not {wanted}")
    return images[...], labels[...]


def _seal(path: Path) -> bytes:
    """The user block for the bytes after it."""
    checksum = 0
    with path.open("rb") as raw:
        raw.seek(_USER_BLOCK)
        while chunk := raw.read(_CHUNK):
            checksum = zlib.crc32(chunk, checksum)
    return f"mini_dnn image cache, crc32 of what follows this block: {checksum:08x}\n".encode().ljust(
        _USER_BLOCK
    )
