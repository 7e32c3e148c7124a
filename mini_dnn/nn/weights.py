"""Trained parameters in files, whose formats `files` describes.

A file contains one array per parameter (``conv1/weight``, ``fc1/bias`` ...) and attributes that describe the
training.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mini_dnn.errors import WeightsError
from mini_dnn.nn.files import describe, read_arrays, unusable, write_arrays
from mini_dnn.nn.network import Network

PREPROCESSING = "uint8 / 255, bilinear 28 -> 86 (Pillow)"
TEST_COUNTS = (100, 1_000, 10_000)  # the course's batch sizes


@dataclass(frozen=True)
class WeightsInfo:
    """The attributes of a weights file."""

    dataset: str  # such as "fashion-mnist", or "unknown" if a conversion could not tell
    # On the first n test images, for each n of `TEST_COUNTS` that is available
    accuracies: Mapping[int, float]
    seed: int
    command: str  # the command that creates the file again
    preprocessing: str = PREPROCESSING
    created_with: str = ""  # `save` fills in this field and the following ones
    architecture: str = ""
    checksum: str = ""  # see `checksum`
    description: str = ""  # JSON with the network's sizes, if its name does not determine them


def save(path: Path, network: Network, info: WeightsInfo) -> None:
    """Write a network's parameters, replacing the file only once the new one is complete.

    Raises
    ------
    WeightsError
        The file cannot be written. An older file is unchanged.
    """
    attributes: dict[str, str | int | float] = {
        "dataset": info.dataset,
        "preprocessing": info.preprocessing,
        "seed": info.seed,
        "command": info.command,
    }
    if info.description:
        attributes["description"] = info.description
    attributes |= {f"accuracy_{n}": accuracy for n, accuracy in info.accuracies.items()}
    write_arrays(path, "weights", network.architecture, values(network), attributes)


def load(path: Path, network: Network) -> WeightsInfo:
    """Fill a network's parameters from a file. If a part of the file is not valid, nothing is changed.

    Raises
    ------
    WeightsError
        The file is missing, damaged, or for another network. The message says which, and the next step.
    """
    arrays, attributes = read_arrays(path, "weights", network.architecture, values(network))
    try:
        info = WeightsInfo(
            dataset=str(attributes["dataset"]),
            accuracies={
                n: float(attributes[f"accuracy_{n}"]) for n in TEST_COUNTS if f"accuracy_{n}" in attributes
            },
            seed=int(attributes["seed"]),
            command=str(attributes["command"]),
            preprocessing=str(attributes["preprocessing"]),
            created_with=str(attributes["created_with"]),
            architecture=str(attributes["architecture"]),
            checksum=str(attributes["checksum"]),
            description=str(attributes.get("description", "")),
        )
    except (KeyError, ValueError, OverflowError) as error:
        raise unusable(path, "weights", f"an attribute is missing or not valid ({error})") from error
    for name, array in values(network).items():
        array[...] = arrays[name]
    return info


def is_ours(path: Path) -> bool:
    """Whether a file can be read and was written by `write_arrays`."""
    try:
        return describe(path).get("kind") == "weights"
    except WeightsError:
        return False


def values(network: Network) -> dict[str, np.ndarray]:
    """Return the arrays of a network's parameters by name, without copies."""
    return {name: parameter.value for name, parameter in network.parameters().items()}
