"""The networks that are trained and run by name: what each takes, how it is trained, where weights are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mini_dnn import datasets
from mini_dnn.datasets import ALL, NAMES, SMALL_SIDE, ImageSet
from mini_dnn.datasets.storage import SIDE
from mini_dnn.errors import ShapeError, UsageError, WeightsError
from mini_dnn.nn.models import lenet, resnet, vit
from mini_dnn.nn.network import Network
from mini_dnn.nn.train import Settings
from mini_dnn.nn.weights import PREPROCESSING, WeightsInfo, describe, load
from mini_dnn.paths import ROOT


@dataclass(frozen=True)
class Model:
    """A network by its name.

    Parameters
    ----------
    name, title
        On the command line, and for people.
    make
        ``(data set's name, rng)``: the network for it, freshly initialised.
    data
        Names of data sets that it takes.
    side
        Of an image of garments, in pixels.
    preprocessing
        What is done to the published images, in words.
    settings
        How it is trained unless flags say otherwise.
    layer
        The operation that variants compute for it.
    operation
        That of all its layers.
    impl
        The variant where none is named; empty for the best one that the device runs.
    describe
        ``(data set's name)``: JSON of the network's sizes, which a file of weights then holds; empty where
        the data set's name is enough.
    described
        ``(JSON, rng)``: the network of such sizes.
    pictures
        Whether it classifies pictures from files, too.
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
    described: Callable[[str, np.random.Generator], Network] | None = None
    pictures: bool = False

    def load(self, name: str, split: str, data_dir: Path | None = None) -> ImageSet:
        """Load one split of a data set in the size that it takes: see `mini_dnn.datasets.load`.

        Raises
        ------
        UsageError
            It does not take that data set.
        DataError
            The data cannot be had.
        """
        if name not in self.data:
            fits = [other.name for other in MODELS.values() if name in other.data]
            raise UsageError(
                f"{self.title} does not support the data set '{name}', only {', '.join(self.data)}; "
                f"'{name}' needs --network {' or '.join(fits)}"
            )
        return datasets.load(name, split, data_dir, self.side)

    def read(self, path: Path, dataset: str = "") -> tuple[Network, WeightsInfo]:
        """Network and what is said about it in a file of weights.

        Parameters
        ----------
        dataset
            What the network is for, where the file does not describe it; by default what it was trained on.

        Raises
        ------
        WeightsError
            The file is missing, damaged or of another network.
        """
        rng = np.random.default_rng(0)
        said = describe(path)
        if said.get("description") and self.described:
            try:
                network = self.described(str(said["description"]), rng)
            except ShapeError as error:
                raise WeightsError(f"cannot use {path} as weights: {error}") from error
        else:
            known = dataset or str(said.get("dataset"))
            network = self.make(known if known in self.data else self.data[-1], rng)
        return network, load(path, network)

    def weights(self, dataset: str) -> Path:
        """The file of the shipped weights for a data set; it may be missing for some."""
        return ROOT / "data" / f"{self.name}-{dataset}.h5"


def vit_sizes(dataset: str) -> vit.VitSizes:
    """Of the transformer for a data set."""
    return vit.PRESETS["fashion-mnist" if dataset in NAMES else dataset]


def resnet_sizes(dataset: str) -> resnet.ResNetSizes:
    """Of the residual network for a data set."""
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
            described=lambda text, rng: resnet.build(resnet.ResNetSizes.from_json(text), rng),
            pictures=True,
        ),
    )
}
