"""Names of classes."""

from __future__ import annotations

from collections.abc import Sequence

from mini_dnn import datasets
from mini_dnn.datasets import cifar10
from mini_dnn.errors import DataError
from mini_dnn.paths import ROOT, read_regular

IMAGENET = "imagenet"
FILE = ROOT / "data" / "imagenet-classes.txt"  # a name a line; lines that begin with # are a notice
MOST_BYTES = 1 << 20  # of that file


def class_names(dataset: str, count: int) -> Sequence[str]:
    """Names of the classes of a data set in the order of their numbers.

    Parameters
    ----------
    dataset
        One of `mini_dnn.datasets.ALL`, or ``"imagenet"``; the classes of another one have numbers only.
    count
        How many classes there are; where the data set has another number of them, these are not its own.

    Returns
    -------
    sequence of str
        ``count`` names, such as ``"class 7"`` where nothing better is known.

    Raises
    ------
    DataError
        The file with the names cannot be used.
    """
    known: Sequence[str] = ()
    if dataset == cifar10.NAME:
        known = cifar10.CLASSES
    elif dataset in datasets.NAMES:
        known = datasets.CLASSES
    elif dataset == IMAGENET:
        known = _of_imagenet()
    return known if len(known) == count else [f"class {i}" for i in range(count)]


def _of_imagenet() -> Sequence[str]:
    try:
        lines = read_regular(FILE, MOST_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the names of ImageNet's classes cannot be read from {FILE}: {error}; 'git checkout data' "
            "brings the file back"
        ) from error
    return [line for line in lines if not line.startswith("#")]
