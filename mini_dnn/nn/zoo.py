"""The networks that can be trained and run by name: their data, their training, and their weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mini_dnn import datasets
from mini_dnn.datasets import ALL, NAMES, SMALL_SIDE, ImageSet
from mini_dnn.datasets.storage import SIDE
from mini_dnn.errors import ShapeError, UsageError, WeightsError
from mini_dnn.nn.files import describe, unusable
from mini_dnn.nn.models import lenet, resnet, vit
from mini_dnn.nn.network import Network
from mini_dnn.nn.train import Settings
from mini_dnn.nn.weights import PREPROCESSING, WeightsInfo, load
from mini_dnn.paths import ROOT


@dataclass(frozen=True)
class Model:
    """A named network.

    Parameters
    ----------
    name, title
        Its name on the command line, and its name for people.
    make
        ``(name of the data set, rng)``: returns the network for it, newly initialised.
    data
        The names of the data sets that it supports.
    side
        The side of an image of garments, in pixels.
    preprocessing
        The preprocessing of the published images, in words.
    settings
        The settings of its training, unless flags change them.
    layer
        The operation of its heavy layers, which variants compute.
    operation
        The operation of the whole network.
    impl
        The default variant. If empty, it is the best one that the device can run.
    describe
        ``(name of the data set)``: returns JSON with the network's sizes for a file of weights. It is empty
        if the name of the data set is enough.
    described
        ``(JSON)``: returns the sizes in such a description.
    pictures
        Whether it can also classify picture files.
    """

    name: str
    title: str
    make: Callable[[str, np.random.Generator], Network]
    data: Sequence[str]
    side: int
    preprocessing: str
    settings: Settings
    layer: str
    operation: str
    impl: str = ""
    describe: Callable[[str], str] = lambda _: ""
    described: Callable[[str], resnet.ResNetSizes] | None = None
    pictures: bool = False

    def load(self, name: str, split: str, data_dir: Path | None = None) -> ImageSet:
        """Load one split of a data set in the size that it needs: see `mini_dnn.datasets.load`.

        Raises
        ------
        UsageError
            It does not support that data set.
        DataError
            The data are not available.
        """
        if name not in self.data:
            fits = [other.name for other in MODELS.values() if name in other.data]
            raise UsageError(
                f"{self.title} does not support the data set '{name}', only {', '.join(self.data)}; "
                f"'{name}' needs --network {' or '.join(fits)}"
            )
        return datasets.load(name, split, data_dir, self.side)

    def read(self, path: Path, dataset: str = "") -> tuple[Network, WeightsInfo]:
        """Read the network and its metadata from a file of weights.

        Parameters
        ----------
        dataset
            The data set for the network, if the file does not describe the network; by default, the one it
            was trained on.

        Raises
        ------
        WeightsError
            The file is missing, damaged, or for another network.
        """
        rng = np.random.default_rng(0)
        said = describe(path)
        if said.get("description") and self.described:
            try:
                sizes = self.described(str(said["description"]))
            except ShapeError as error:
                raise WeightsError(f"cannot use {path} as weights: {error}") from error
            # Compared first, because a small file could describe a network that does not fit into memory
            wanted, found = sum(map(math.prod, sizes.shapes.values())), int(said["numbers"])
            if wanted > found:
                problem = f"it contains {found:,} numbers, and the network that it describes has {wanted:,}"
                raise unusable(path, "weights", problem)
            network = resnet.build(sizes, rng)
        else:
            known = dataset or str(said.get("dataset"))
            network = self.make(known if known in self.data else self.data[-1], rng)
        return network, load(path, network)

    def weights(self, dataset: str) -> Path:
        """Return the file of the shipped weights for a data set. For some data sets, it does not exist."""
        return ROOT / "data" / f"{self.name}-{dataset}.h5"


def vit_sizes(dataset: str) -> vit.VitSizes:
    """Return the sizes of the transformer for a data set."""
    return vit.PRESETS["fashion-mnist" if dataset in NAMES else dataset]


def resnet_sizes(dataset: str) -> resnet.ResNetSizes:
    """Return the sizes of the residual network for a data set."""
    return resnet.PRESETS["fashion-mnist" if dataset in NAMES else dataset]


def _resnet(dataset: str, rng: np.random.Generator) -> Network:
    return resnet.build(resnet_sizes(dataset), rng)


def _vit(dataset: str, rng: np.random.Generator) -> Network:
    return vit.build(vit_sizes(dataset), rng)


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="lenet",
            title="LeNet",
            make=lambda _, rng: lenet.build(rng),
            data=NAMES,
            side=SIDE,
            preprocessing=PREPROCESSING,
            settings=Settings(),
            layer="conv2d",
            operation="lenet",
            impl="m3",
            pictures=True,
        ),
        Model(
            name="vit",
            title="the vision transformer",
            make=_vit,
            data=ALL,
            side=SMALL_SIDE,
            preprocessing="uint8 / 255",
            settings=Settings(epochs=12, batch=128, rate=3e-3, rise=0.1, decay=0.05, muon=True, part=16),
            layer="attention",
            operation="vit",
            pictures=True,
        ),
        Model(
            name="resnet18",
            title="ResNet-18",
            make=_resnet,
            data=ALL,
            side=SMALL_SIDE,
            preprocessing="uint8 / 255",
            settings=Settings(epochs=12, batch=256, rate=8e-3, decay=0.05, shift=1, part=16),
            layer="conv2d_padded",
            operation="resnet",
            impl="cpu",
            describe=lambda dataset: resnet_sizes(dataset).to_json(),
            described=resnet.ResNetSizes.from_json,
            pictures=True,
        ),
    )
}
