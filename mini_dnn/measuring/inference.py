"""The course's program: a network classifies images, its heavy layers in a variant or all on a device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from mini_dnn import datasets, ops
from mini_dnn.datasets import ImageSet
from mini_dnn.device.host_memory import available_bytes
from mini_dnn.errors import CheckError, UsageError, VariantError
from mini_dnn.measuring.bench import Bench
from mini_dnn.measuring.layerwise import Convolutions, Layerwise
from mini_dnn.measuring.serving import Service
from mini_dnn.nn.layer import walk
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.models.resnet_arrays import sizes_of
from mini_dnn.nn.network import Network
from mini_dnn.nn.tokens import Positions
from mini_dnn.nn.transformer import MultiHeadAttention
from mini_dnn.nn.weights import WeightsInfo
from mini_dnn.nn.zoo import MODELS, Model, vit_sizes
from mini_dnn.ops import Arrays
from mini_dnn.ops.attention import AttentionShape
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.ops.vit import VitShape
from mini_dnn.variant import Variant, find

NETWORK = "lenet"  # the operation of all layers
PART_IMAGES = 1_000  # that run through all layers at a time where op times are no GPU's
BASE_BYTES = 250_000_000  # of the program, with all images as bytes
CHECK_BYTES = 250_000_000  # of a comparison with float64
IMAGE_BYTES = 240_000  # of an image on its way: LeNet's first output twice, and more than a transformer needs
STEPS = {"layers": "layer_by_layer", "fused": "fused_pool", "whole": "whole", "tensor": "tensor_cores"}
STEPS_OF = {  # by network
    NETWORK: STEPS,
    "vit": {"layers": "layer_by_layer", "fused": "fused"},
    "resnet18": {
        "transfers": "v0_transfers",
        "conv-bn": "v1_conv_bn",
        "layers": "v2_layers",
        "shared": "v3_shared",
        "tensor": "v4_tensor_cores",
    },
}


def network_of(variant: Variant) -> str:
    """The network that a variant computes; empty if it computes something else."""
    return next((name for name, model in MODELS.items() if model.operation == variant.op), "")


def find_step(name: str, network: str = NETWORK) -> Variant:
    """The variant of a network by a short name in `STEPS_OF`, or by any name or path that `find` takes.

    Raises
    ------
    VariantError
        There is none, or it computes something else.
    """
    steps = STEPS_OF[network]
    try:
        variant = find(f"networks/{network}/{steps[name]}" if name in steps else name)
    except VariantError as error:
        raise VariantError(f"--resident {name}: {error}; short names are {', '.join(steps)}") from error
    if network_of(variant) == network:
        return variant
    if other := network_of(variant):
        raise VariantError(f"{variant.name} computes {variant.op}: add --network {other}")
    raise VariantError(
        f"{variant.name} computes one {variant.op} and no whole network; --resident takes "
        f"{', '.join(steps)}, or a folder whose VARIANT has op='{MODELS[network].operation}'"
    )


@dataclass(frozen=True)
class Program:
    """The trained network, and the images that it classifies.

    Parameters
    ----------
    network
        With trained weights.
    info
        What the file of weights says of itself.
    weights_file
        That file.
    data
        The images.
    data_dir
        Where the published images lie: see `mini_dnn.datasets.load`.
    model
        Which network it is.
    """

    network: Network
    info: WeightsInfo
    weights_file: Path
    data: ImageSet
    data_dir: Path | None = None
    model: Model = MODELS["lenet"]

    @classmethod
    def load(
        cls,
        data: str = "auto",
        data_dir: Path | None = None,
        weights: Path | None = None,
        network: str = "lenet",
    ) -> Program:
        """Load test images, and the weights of a file: by default those that are shipped for the images.

        Raises
        ------
        DataError, WeightsError, UsageError
            One of them cannot be had.
        """
        model = MODELS[network]
        images = model.load(data, "test", data_dir)
        file = weights or model.weights(images.name)
        if weights is None and not file.is_file():
            train = f"run.py train --network {network} --data {images.name}"
            raise UsageError(
                f"no weights of {model.title} for the data set '{images.name}' are shipped: create them "
                f"with '{train}', and name the file with --weights"
            )
        built, info = model.read(file, images.name)
        return cls(built, info, file, images, data_dir, model)

    @cached_property
    def weights(self) -> Arrays:
        """The trained arrays, which are the network operation's of the role "weight"."""
        return {name: parameter.value for name, parameter in self.network.parameters().items()}

    def check_batch(self, batch: int) -> None:
        """Refuse a batch that is larger than the data set.

        Raises
        ------
        UsageError
            It is.
        """
        count = len(self.data.labels)
        if batch > count:
            raise UsageError(f"--batch {batch}: {self.data.name} has only {count} test images")

    def expected_accuracy(self, batch: int) -> float | None:
        """What the file of weights states for so many images of this data set; None if nothing."""
        return self.info.accuracies.get(batch) if self.info.dataset == self.data.name else None

    def check_memory(self, batch: int, part: int | None = None, checked: bool = False) -> None:
        """Refuse a batch that the memory has no room for, before the work.

        Parameters
        ----------
        part
            How many images are worked on at once: all of the batch if None.
        checked
            Whether they are compared with float64.

        Raises
        ------
        UsageError
            There is too little memory.
        """
        needed = BASE_BYTES + min(batch, part or batch) * IMAGE_BYTES + checked * CHECK_BYTES
        found = available_bytes()
        if needed > found:
            raise UsageError(
                f"--batch {batch}: it needs up to {needed / 1e9:.2g} GB of memory, and this process can use "
                f"{found / 1e9:.2g} GB more; use a smaller --batch, or free some memory"
            )

    def probabilities(self, batch: int, *elsewhere: Layerwise, part: int | None = None) -> np.ndarray:
        """What the network makes of the first ``batch`` images, with some kinds of layers ``elsewhere``.

        All layers run for ``part`` images before the next ones are begun, which bounds the memory; for all
        images at once if None.
        """
        for layers in elsewhere:
            layers.attach(self.network)
        found = []
        for first in range(0, batch, part or batch):
            images = self.data.images[first : min(batch, first + (part or batch))]
            try:
                found.append(self.network.forward(datasets.to_float(images)))
            except CheckError as error:
                where = f" (images are counted from number {first:,})" if first else ""
                raise CheckError(f"{error}{where}") from error
        return np.concatenate(found)

    def accuracy(self, batch: int, *elsewhere: Layerwise, part: int | None = None) -> float:
        """The fraction of the first ``batch`` images that the network gets right: see `probabilities`."""
        return self.share_right(self.probabilities(batch, *elsewhere, part=part).argmax(axis=1))

    def attention(self, batch: int) -> AttentionShape:
        """The problem that a layer's attention of so many images is, in halves."""
        kinds = {type(layer): layer for _, layer in walk(self.network.layers)}
        heads, tokens = kinds[MultiHeadAttention], kinds[Positions]
        assert isinstance(heads, MultiHeadAttention)
        assert isinstance(tokens, Positions)
        count = len(tokens.position.value)
        return AttentionShape(batch, heads.heads, count, heads.head_width, "fp16", "packed")

    def share_right(self, classes: np.ndarray) -> float:
        """Which fraction of the first images has the right class."""
        return float(np.mean(classes == self.data.labels[: len(classes)]))

    def images(self, batch: int, send: str) -> np.ndarray:
        """The first images in the form ``send``, one of `mini_dnn.datasets.SEND`.

        Raises
        ------
        UsageError
            The network has images of that size anyway.
        """
        if self.model.name != NETWORK and send == "uint8-28":
            raise UsageError(
                f"--send {send}: {self.model.title} uses images of the original size; use --send uint8"
            )
        return datasets.as_sent(self.data, batch, send, self.data_dir)

    def problem(self, images: np.ndarray) -> LenetBatch | VitShape | ResNetShape:
        """The whole network's for these images."""
        if self.model.name == NETWORK:
            return LenetBatch.of(images)
        if self.model.operation == "resnet":
            said = self.info.description
            shapes = {name: value.shape for name, value in self.weights.items()}
            sizes = ResNetSizes.from_json(said) if said else sizes_of(shapes, images.shape[2])
            return ResNetShape.of(images, sizes)
        return VitShape.of(images, vit_sizes(self.data.name))

    def service(self, variant: Variant, send: str, count: int) -> Service:
        """The network and the first ``count`` images, in a form of `datasets.SEND`."""
        images = self.images(count, send)
        channels = images.shape[1]
        scaled = {"mean": np.zeros(channels, np.float32), "deviation": np.ones(channels, np.float32)}
        problem = self.problem(images)
        given = {**self.weights, **scaled}  # where bytes become numbers there, they are divided by 255 alone
        arrays = {"images": images, **{name: given[name] for name in problem.named("weight")}}

        def score(probabilities: np.ndarray) -> float:
            return self.share_right(probabilities.argmax(axis=1))

        return Service(variant, send, problem, arrays, score)

    def bench(self, bench: Bench, variant: Variant, batch: int, sweep: bool = False) -> None:
        """Add a row for each convolution of the first ``batch`` images, with sweeps if these are asked for.

        Raises
        ------
        CheckError
            A convolution computes something else; nothing is recorded of the batch.
        """
        convolutions = Convolutions(variant, bench.setting)
        found = self.accuracy(batch, convolutions)
        for layer in convolutions.layers:
            bench.add(layer, found)
            if sweep:
                bench.sweep(variant, layer.name, layer.problem)

    def forms(self, variant: Variant) -> list[str]:
        """The forms of images, of `datasets.SEND`, that a network variant takes and that the data have."""
        drawn = {"uint8-28"} if self.data.name == datasets.synthetic.NAME else set()
        problems = ops.find(NETWORK).course
        return [send for send in datasets.SEND if send not in drawn and not variant.limit_for(problems[send])]
