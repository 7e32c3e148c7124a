"""Fashion-MNIST, resized to 86×86: found or downloaded, verified and cached.

Source: H. Xiao, K. Rasul, R. Vollgraf, "Fashion-MNIST: a Novel Image Dataset for Benchmarking Machine
Learning Algorithms", arXiv:1708.07747. Copyright (c) 2017 Zalando SE, MIT licence.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL

from mini_dnn.datasets import idx, storage
from mini_dnn.datasets.download import download
from mini_dnn.datasets.storage import BAR_STEP, DATA, SIDE, Pixels
from mini_dnn.errors import DataError, reason
from mini_dnn.paths import read_regular
from mini_dnn.progress import Bar

NAME = "fashion-mnist"
MOST_BYTES = 64 << 20  # of a file; the largest has 47 MB
VARIABLE = "FASHION_MNIST_DIR"


@dataclass(frozen=True)
class IdxFile:
    """One published file."""

    name: str  # of the unpacked file; packed it is followed by ".gz"
    packed_md5: str  # as the authors publish it
    unpacked_md5: str  # of the content of the file with that packed_md5

    @property
    def packed_name(self) -> str:
        """Name of the file that is downloaded."""
        return f"{self.name}.gz"


@dataclass(frozen=True)
class Source:
    """Where a data set of IDX files is published."""

    splits: dict[str, tuple[IdxFile, IdxFile]]  # images and labels of each split
    mirrors: tuple[str, ...]  # folders, tried in this order; each ends in "/"


PUBLISHED = Source(
    splits={
        "train": (
            IdxFile(
                "train-images-idx3-ubyte",
                "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
                "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            ),
            IdxFile(
                "train-labels-idx1-ubyte",
                "25c81989df183df01b3e8a0aad5dffbe",
                "9018921c3c673c538a1fc5bad174d6f9",
            ),
        ),
        "test": (
            IdxFile(
                "t10k-images-idx3-ubyte",
                "bef4ecab320f06d8554ea6380940ec79",
                "8181f5470baa50b63fa0f6fddb340f0a",
            ),
            IdxFile(
                "t10k-labels-idx1-ubyte",
                "bb300cfdad3c16e7a12a480ee83cd310",
                "15d484375f8d13e6eb1aabb0c3f46965",
            ),
        ),
    },
    mirrors=(
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
    ),
)


def named_folder(data_dir: Path | str | None) -> tuple[Path, str] | None:
    """Folder that the user named, and how: by `data_dir`, or else by ``FASHION_MNIST_DIR``."""
    return storage.named_by(VARIABLE, data_dir)


def load(
    split: str, data_dir: Path | str | None = None, root: Path = DATA, source: Source = PUBLISHED
) -> tuple[np.ndarray, np.ndarray, str]:
    """Load one split, resized.

    Parameters
    ----------
    split : {"train", "test"}
    data_dir : Path or str, optional
        Folder with the files; without it `named_folder` says where else one is named.
    root : Path
        The folder that keeps downloads (``fashion-mnist/``) and resized images (``cache/``). If it is not
        writable, both are created each time, and the logger prints a warning.
    source : Source
        The files and where they are published.

    Returns
    -------
    images : (N, 1, 86, 86) uint8
    labels : (N,) uint8
    origin : str
        A description of where the files came from.

    Raises
    ------
    DataError
        A named folder lacks a file or has a damaged one; or no folder is named, and the files can neither be
        found nor downloaded.
    """
    files = source.splits[split]
    named = named_folder(data_dir)
    contents, origin = None, "cache"
    if named is not None:
        folder, origin = named
        contents = _read_named(folder, origin, files)
    path = root / "cache" / f"{NAME}-{SIDE}-{split}.h5"
    recipe = _recipe(files)
    if (pixels := storage.read(path, recipe)) is None:
        if contents is None:
            contents, origin = _find_or_fetch(files, root / NAME, source)
        pixels = _resized(_parsed(contents, files))
        storage.write(path, recipe, pixels)
    return *pixels, origin


def load_published(
    split: str, data_dir: Path | str | None = None, root: Path = DATA, source: Source = PUBLISHED
) -> tuple[np.ndarray, np.ndarray, str]:
    """One split as its authors publish it, with images ``(N, 1, 28, 28) uint8``; see `load`.

    Raises
    ------
    DataError
        As for `load`.
    """
    files = source.splits[split]
    named = named_folder(data_dir)
    if named:
        contents, origin = _read_named(*named, files), named[1]
    else:
        contents, origin = _find_or_fetch(files, root / NAME, source)
    images, labels = _parsed(contents, files)
    return images[:, None], labels, origin


def _recipe(files: Sequence[IdxFile]) -> storage.Recipe:
    return {
        "source": ", ".join(f"{file.packed_name} md5:{file.packed_md5}" for file in files),
        "method": "bilinear",
        "size": f"{SIDE}x{SIDE}",
        "Pillow": PIL.__version__,
    }


def _read(folder: Path, file: IdxFile) -> bytes:
    """Content of a file, packed or not, after its MD5 was verified."""
    storage.check_folder(folder)
    for name, wanted in ((file.packed_name, file.packed_md5), (file.name, file.unpacked_md5)):
        path = folder / name
        try:
            content = read_regular(path, MOST_BYTES)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DataError(f"{path} cannot be read: {reason(error)}") from error
        found = hashlib.md5(content, usedforsecurity=False).hexdigest()
        if found != wanted:
            raise DataError(f"{path} is damaged: its MD5 is {found}, not {wanted} as published")
        return content
    raise DataError(f"{folder} has neither {file.packed_name} nor {file.name}")


def _read_named(folder: Path, origin: str, files: Sequence[IdxFile]) -> list[bytes]:
    try:
        return [_read(folder, file) for file in files]
    except DataError as error:
        raise DataError(
            f"{error}. The folder was named by {origin}: put {_listed(files)} there as their authors "
            "publish them, name another folder, or name none to download them"
        ) from error


def _find_or_fetch(files: Sequence[IdxFile], folder: Path, source: Source) -> tuple[list[bytes], str]:
    """Take the files from the cache's folder, or download them into it."""
    try:
        return [_read(folder, file) for file in files], "cache"
    except DataError as error:
        missing = error  # nobody named this folder: missing or damaged files in it are downloaded again
    try:
        wanted = {file.packed_name: file.packed_md5 for file in files}
        with download(wanted, source.mirrors, folder) as (place, mirror):
            return [_read(place, file) for file in files], f"downloaded from {mirror}"
    except DataError as error:
        raise DataError(
            f"Fashion-MNIST is not available: {missing}, and the download failed: {error}. Put "
            f"{_listed(files)} into {folder} or into a folder that {VARIABLE} names, or use the data set "
            "'synthetic'"
        ) from error


def _listed(files: Sequence[IdxFile]) -> str:
    return " and ".join(file.packed_name for file in files)


def _parsed(contents: Sequence[bytes], files: Sequence[IdxFile]) -> Pixels:
    """Images (N, H, W) and labels (N,) of the two files."""
    unpacked = [gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content for content in contents]
    images = idx.parse(unpacked[0], 3, files[0].name)
    labels = idx.parse(unpacked[1], 1, files[1].name)
    if len(images) != len(labels):
        raise DataError(
            f"{files[0].name} has {len(images)} images, but {files[1].name} has {len(labels)} labels"
        )
    if labels.size and labels.max() > 9:
        raise DataError(f"{files[1].name}: label {labels.max()}; expected 0…9")
    return images, labels


def resize(given: np.ndarray, side: int = SIDE) -> np.ndarray:
    """Grey images (N, H, W) uint8 at another size, (N, 1, side, side) uint8, by Pillow."""
    from PIL import Image

    images = np.empty((len(given), 1, side, side), np.uint8)
    with Bar(f"resizing to {side}×{side}", len(given)) as bar:
        for i, image in enumerate(given):
            resized = Image.fromarray(image).resize((side, side), Image.Resampling.BILINEAR)
            images[i, 0] = np.asarray(resized)
            if i % BAR_STEP == 0:
                bar.update(i)
    return images


def _resized(pixels: Pixels) -> Pixels:
    small, labels = pixels
    return resize(small), labels.copy()
