"""CIFAR-10 from its published binary files, which are found or downloaded, and verified.

Source: A. Krizhevsky, "Learning Multiple Layers of Features from Tiny Images", 2009;
https://www.cs.toronto.edu/~kriz/cifar.html, which also describes the format: a file is a sequence of records,
each with a byte for the label, then 1,024 bytes each of red, green and blue, line by line.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mini_dnn.datasets.download import download
from mini_dnn.datasets.storage import DATA, check_folder, named_by
from mini_dnn.errors import DataError, reason
from mini_dnn.paths import read_regular

NAME = "cifar10"
VARIABLE = "CIFAR10_DIR"
SIDE, CHANNELS = 32, 3
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MOST_BYTES = 64 << 20  # of an unpacked file; each has 31 MB
RECORD = 1 + CHANNELS * SIDE * SIDE  # bytes of an image and its label


@dataclass(frozen=True)
class Source:
    """Where CIFAR-10 is published.

    Parameters
    ----------
    archive, md5
        The file's name and its MD5, as the author publishes both.
    folder
        Of the files in it.
    splits
        The files of each split.
    records
        Images in each file.
    mirrors
        Folders, tried in this order; each ends in "/".
    """

    archive: str
    md5: str
    folder: str
    splits: dict[str, tuple[str, ...]]
    records: int
    mirrors: tuple[str, ...]


PUBLISHED = Source(
    archive="cifar-10-binary.tar.gz",
    md5="c32a1d4ab5d03f1284b67883e8d87530",
    folder="cifar-10-batches-bin",
    splits={"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "test": ("test_batch.bin",)},
    records=10_000,
    mirrors=("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/"),
)


def load(
    split: str, data_dir: Path | str | None = None, root: Path = DATA, source: Source = PUBLISHED
) -> tuple[np.ndarray, np.ndarray, str]:
    """Load one split.

    Parameters
    ----------
    split : {"train", "test"}
    data_dir : Path or str, optional
        Folder with the archive, or with its files; by default the one that ``CIFAR10_DIR`` names.
    root : Path
        The folder that keeps the downloaded archive, in ``cifar10/``. If it is not writable, the archive is
        downloaded each time, and the logger prints a warning.
    source : Source
        The files and where they are published.

    Returns
    -------
    images : (N, 3, 32, 32) uint8
        50,000 to train with, 10,000 to test with.
    labels : (N,) uint8
    origin : str
        A description of where the files came from.

    Raises
    ------
    DataError
        A named folder lacks the files or has damaged ones; or no folder is named, and the files can neither
        be found nor downloaded.
    """
    named = named_by(VARIABLE, data_dir)
    if named is not None:
        folder, origin = named
        try:
            return *_read(folder, split, source), origin
        except DataError as error:
            raise DataError(
                f"{error}. The folder was named by {origin}: put {source.archive} there as its author "
                "publishes it, or its files; name another folder, or name none to download it"
            ) from error
    return _find_or_fetch(split, root / NAME, source)


def _find_or_fetch(split: str, folder: Path, source: Source) -> tuple[np.ndarray, np.ndarray, str]:
    """Take the archive from the cache's folder, or download it into that."""
    try:
        return *_read(folder, split, source), "cache"
    except DataError as error:
        missing = error  # nobody named this folder: missing or damaged files in it are downloaded again
    try:
        with download({source.archive: source.md5}, source.mirrors, folder) as (place, mirror):
            return *_read(place, split, source), f"downloaded from {mirror}"
    except DataError as error:
        raise DataError(
            f"CIFAR-10 is not available: {missing}, and the download failed: {error}. Put {source.archive} "
            f"into {folder} or into a folder that {VARIABLE} names, or use another data set"
        ) from error


def _read(folder: Path, split: str, source: Source) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels of a split, from the archive or from files that were unpacked."""
    check_folder(folder)
    files = source.splits[split]
    archive = folder / source.archive
    try:
        if archive.is_file():
            contents = _unpacked(archive, files, source)
        else:
            place = folder / source.folder if (folder / source.folder).is_dir() else folder
            contents = [read_regular(place / name, MOST_BYTES) for name in files]
    except FileNotFoundError as error:
        raise DataError(f"{folder} has neither {source.archive} nor {Path(error.filename).name}") from error
    except OSError as error:
        raise DataError(f"{error.filename or archive} cannot be read: {reason(error)}") from error
    parts = [_parsed(content, name, source) for content, name in zip(contents, files, strict=True)]
    images, labels = (np.concatenate(some) for some in zip(*parts, strict=True))
    return images, labels


def _unpacked(archive: Path, files: Sequence[str], source: Source) -> list[bytes]:
    """Contents of some files of the archive, after its MD5 was verified."""
    with archive.open("rb") as raw:
        found = hashlib.file_digest(raw, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    if found != source.md5:
        raise DataError(f"{archive} is damaged: its MD5 is {found}, not {source.md5} as published")
    with tarfile.open(archive, "r:gz") as packed:
        members = [packed.extractfile(f"{source.folder}/{name}") for name in files]
        return [member.read() for member in members if member is not None]


def _parsed(content: bytes, name: str, source: Source) -> tuple[np.ndarray, np.ndarray]:
    """Images (N, 3, 32, 32) and labels (N,) of a file."""
    wanted = source.records * RECORD
    if len(content) != wanted:
        raise DataError(
            f"{name}: {len(content)} bytes, but {source.records} images of {RECORD} bytes have {wanted}: it "
            "is truncated, or not a binary file of CIFAR-10"
        )
    records = np.frombuffer(content, np.uint8).reshape(-1, RECORD)
    labels = records[:, 0]
    if labels.max() >= len(CLASSES):
        raise DataError(f"{name}: label {labels.max()}; expected 0…{len(CLASSES) - 1}")
    return records[:, 1:].reshape(-1, CHANNELS, SIDE, SIDE), labels
