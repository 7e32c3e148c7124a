"""Names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from mini_dnn import datasets
from mini_dnn.datasets import cifar10
from mini_dnn.errors import DataError, reason
from mini_dnn.paths import ROOT, read_regular

IMAGENET = "imagenet"
NUMBERED = "class {}"  # one without a name
FILE = ROOT / "data" / "imagenet-classes.txt"  # a name a line; lines that begin with # are a notice
MOST_BYTES = 1 << 20  # of such a file


def class_names(dataset: str, count: int) -> Sequence[str]:
    """Names of the classes of a data set in the order of their numbers.

    Parameters
    ----------
    dataset
        One of `mini_dnn.datasets.ALL`, or ``"imagenet"``. Classes of other data sets have only numbers.
    count
        The number of classes. If the data set has another number, its names are not used.

    Returns
    -------
    sequence of str
        ``count`` names, such as ``"class 7"`` if no names are known.

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
        known = read(FILE)
    return known if len(known) == count else [NUMBERED.format(i) for i in range(count)]


def read(path: Path) -> Sequence[str]:
    """Read the names of classes from a file: one per line, in order. Lines that begin with # are comments.

    Raises
    ------
    DataError
        It cannot be read, or is not a text file.
    """
    try:
        lines = read_regular(path, MOST_BYTES).decode("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is not UTF-8 text"
        hint = "'git checkout data' restores it" if path == FILE else "expected one name per line"
        raise DataError(f"the names of classes cannot be read from {path}: {why}; {hint}") from error
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]
