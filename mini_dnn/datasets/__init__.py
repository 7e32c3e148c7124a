"""Data sets: Fashion-MNIST, a drawn substitute that needs no network connection, and CIFAR-10.

>>> from mini_dnn.datasets import load, to_float
>>> test = load("auto", "test")  # Fashion-MNIST, or the drawn garments if it is not available; see `note`
>>> x = to_float(test.images[:100])  # (100, 1, 86, 86) float32

Garments are resized to 86×86 for the course's network; `load` gives other networks other sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mini_dnn.datasets import cifar10, fashion_mnist, synthetic
from mini_dnn.datasets.fashion_mnist import resize
from mini_dnn.datasets.storage import SIDE, SPLITS
from mini_dnn.datasets.synthetic import draw
from mini_dnn.errors import DataError, ShapeError, UsageError

__all__ = [
    "ALL",
    "CLASSES",
    "NAMES",
    "SEND",
    "SMALL_SIDE",
    "ImageSet",
    "as_sent",
    "draw",
    "load",
    "load_small",
    "resize",
    "to_float",
]

NAMES = ("auto", fashion_mnist.NAME, synthetic.NAME)  # garments
ALL = (*NAMES, cifar10.NAME)
SMALL_SIDE = 28  # pixels: Fashion-MNIST as it is published
# Forms of an image that is sent to a device: 29,584, 7,396 or 784 bytes
SEND = ("float32", "uint8", "uint8-28")
SUBSTITUTED = (
    "using synthetic images: Fashion-MNIST is not cached and could not be downloaded. Name the folder of its "
    f"files with --data-dir or {fashion_mnist.VARIABLE}; --data {fashion_mnist.NAME} reports the cause"
)
CLASSES: tuple[str, ...] = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)  # Fashion-MNIST's names in the order of its labels; the drawn set has the same


@dataclass(frozen=True, eq=False)
class ImageSet:
    """Labelled images and their origin."""

    name: str  # "fashion-mnist", "synthetic" or "cifar10"
    split: str  # "train" or "test"
    images: np.ndarray  # (N, 1, 86, 86) uint8, or the size given to `load`
    labels: np.ndarray  # (N,) uint8, indices into CLASSES; for CIFAR-10 into `cifar10.CLASSES`
    origin: str  # in words: "FASHION_MNIST_DIR=…", "cache", "downloaded from …", "drawn from seed 0"
    note: str  # empty, or why the substitute is used


def load(
    name: str = "auto", split: str = "test", data_dir: Path | str | None = None, side: int = SIDE
) -> ImageSet:
    """Load one split of a data set.

    Fashion-MNIST is searched for in `data_dir`, in the folder that the environment variable
    ``FASHION_MNIST_DIR`` names, in the repository's ``data/``, and on the authors' servers. If a folder is
    named, the files must be there: other places are not searched. CIFAR-10 is searched for in the same way;
    its variable is ``CIFAR10_DIR``.

    Parameters
    ----------
    name : {"auto", "fashion-mnist", "synthetic", "cifar10"}
        "auto" is Fashion-MNIST, or the drawn set if Fashion-MNIST can neither be found nor downloaded; `note`
        then contains the reason. To load a second split of the same set, pass the `name` of the first result.
    split : {"train", "test"}
        Fashion-MNIST has 60,000 and 10,000 images, the drawn set 10,000 and 10,000, CIFAR-10 50,000 and
        10,000.
    data_dir : Path or str, optional
        A folder with the four files of Fashion-MNIST, packed (``.gz``) or not; or with CIFAR-10's archive.
    side : {86, 28}
        The side of an image of garments. With 28, Fashion-MNIST is as published, and drawn garments are
        reduced. Images of CIFAR-10 are always (3, 32, 32).

    Returns
    -------
    ImageSet
        Images as ``(N, 1, side, side) uint8``.

    Raises
    ------
    UsageError
        Unknown `name`, `split` or `side`, or a `data_dir` for the drawn set.
    DataError
        A published set is not available, or a named folder is incomplete or damaged.
    """
    _check_choice("data set", name, ALL)
    _check_choice("split", split, SPLITS)
    if side not in (SIDE, SMALL_SIDE):
        raise UsageError(f"no garments with a side of {side} pixels; available are {SIDE} and {SMALL_SIDE}")
    if name == cifar10.NAME:
        return ImageSet(name, split, *cifar10.load(split, data_dir), note="")
    if name == synthetic.NAME:
        if data_dir is not None:
            raise UsageError(
                f"the data set '{synthetic.NAME}' is drawn and reads no files, but data_dir={data_dir} was "
                f"given; omit data_dir, or use '{fashion_mnist.NAME}'"
            )
        return _synthetic(split, "", side)
    of_side = fashion_mnist.load if side == SIDE else fashion_mnist.load_published
    try:
        images, labels, origin = of_side(split, data_dir)
    except DataError:
        if name != "auto" or fashion_mnist.named_folder(data_dir) is not None:
            raise
        return _synthetic(split, SUBSTITUTED, side)
    return ImageSet(fashion_mnist.NAME, split, images, labels, origin, note="")


def load_small(data: ImageSet, data_dir: Path | str | None = None) -> np.ndarray:
    """The images of a set before they were resized, ``(N, 1, 28, 28) uint8``.

    Raises
    ------
    UsageError
        The set was drawn at its full size.
    DataError
        The published files are not available; see `load`.
    """
    if data.name != fashion_mnist.NAME:
        raise UsageError(
            f"the data set '{data.name}' is drawn at 86×86: it has no images of 28×28; send images of 86×86 "
            f"(--send uint8), or use '{fashion_mnist.NAME}'"
        )
    return fashion_mnist.load_published(data.split, data_dir)[0]


def as_sent(data: ImageSet, count: int, send: str, data_dir: Path | str | None = None) -> np.ndarray:
    """The first ``count`` images of a set, in the form in which they are sent to a device.

    Parameters
    ----------
    send
        ``"float32"``, ``"uint8"`` (both 86×86) or ``"uint8-28"``: see `SEND`.

    Raises
    ------
    UsageError, DataError
        See `load_small`.
    """
    _check_choice("form of images", send, SEND)
    if send == "uint8-28":
        return load_small(data, data_dir)[:count]
    return to_float(data.images[:count]) if send == "float32" else data.images[:count]


def to_float(images: np.ndarray) -> np.ndarray:
    """Scale bytes to [0, 1]: the preprocessing that the shipped weights were trained with.

    Parameters
    ----------
    images : (N, C, H, W) uint8

    Returns
    -------
    (N, C, H, W) float32
        ``images / 255``.

    Raises
    ------
    ShapeError
        `images` are not uint8, so they may be scaled already.
    """
    if images.dtype != np.uint8:
        raise ShapeError(
            f"to_float expects uint8 images in 0…255; found {images.dtype}; pass ImageSet.images"
        )
    return np.divide(images, np.float32(255), dtype=np.float32)


def _synthetic(split: str, note: str, side: int) -> ImageSet:
    images, labels, origin = synthetic.load(split)
    if side != SIDE:
        images = resize(images[:, 0], side)
    return ImageSet(synthetic.NAME, split, images, labels, origin, note)


def _check_choice(what: str, given: str, choices: tuple[str, ...]) -> None:
    if given not in choices:
        raise UsageError(f"no {what} '{given}'; choose one of {', '.join(choices)}")
