"""The course's program: a network classifies images, with its heavy layers or all layers on a device."""

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
PART_IMAGES = 1_000  # images that run through all layers at a time if op times are not those of a GPU
BASE_BYTES = 250_000_000  # memory of the program, with all images as bytes
CHECK_BYTES = 250_000_000  # memory of a comparison with float64
IMAGE_BYTES = 240_000  # memory of an image: LeNet's first output twice, and more than a transformer needs
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
    """Return the network that a variant computes, or an empty string if it computes something else."""
    return next((name for name, model in MODELS.items() if model.operation == variant.op), "")


def step_name(name: str, network: str) -> str:
    """Return the full name for a short name in `STEPS_OF`; other names stay as they are."""
    steps = STEPS_OF[network]
    return f"networks/{network}/{steps[name]}" if name in steps else name


def find_step(name: str, network: str = NETWORK) -> Variant:
    """Find the variant of a network by a short name in `STEPS_OF`, or by a name or path as for `find`.

    Raises
    ------
    VariantError
        There is no such variant, or it computes something else.
    """
    steps = STEPS_OF[network]
    try:
        variant = find(step_name(name, network))
    except VariantError as error:
        short = "" if name in steps else f"short names are {', '.join(steps)}; "
        raise VariantError(f"--resident {name}: {short}{error}") from error
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
    """The trained network and the images that it classifies.

    Parameters
    ----------
    network
        The network with trained weights.
    info
        The metadata in the file of weights.
    weights_file
        The file of weights.
    data
        The images.
    data_dir
        The folder of the published images: see `mini_dnn.datasets.load`.
    model
        The kind of network.
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
        """Load test images and a file of weights; by default, the weights that are shipped for the images.

        Raises
        ------
        DataError, WeightsError, UsageError
            One of them is not available.
        """
        model = MODELS[network]
        images = model.load(data, "test", data_dir)
        file = weights or model.weights(images.name)
        if weights is None and not file.is_file():
            train = f"run.py train --network {network} --data {images.name}"
            note = f". NOTE: {images.note}" if images.note else ""
            raise UsageError(
                f"no weights of {model.title} for the data set '{images.name}' are shipped: create them "
                f"with '{train}', and name the file with --weights{note}"
            )
        built, info = model.read(file, images.name)
        return cls(built, info, file, images, data_dir, model)

    @cached_property
    def weights(self) -> Arrays:
        """The trained arrays, which have the role "weight" in the network's operation."""
        return {name: parameter.value for name, parameter in self.network.parameters().items()}

    def check_batch(self, batch: int) -> None:
        """Raise an error for a batch that is larger than the data set.

        Raises
        ------
        UsageError
            The batch is larger.
        """
        count = len(self.data.labels)
        if batch > count:
            raise UsageError(f"--batch {batch}: {self.data.name} has only {count} test images")

    def expected_accuracy(self, batch: int) -> float | None:
        """Return the accuracy that the file of weights states for this many images, or None."""
        return self.info.accuracies.get(batch) if self.info.dataset == self.data.name else None

    def check_memory(self, batch: int, part: int | None = None, checked: bool = False) -> None:
        """Raise an error, before the work, for a batch that does not fit in memory.

        Parameters
        ----------
        part
            The number of images that are processed at once; None for the whole batch.
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
        """Return the network's output for the first ``batch`` images, with some layers ``elsewhere``.

        All layers run for ``part`` images before the next images begin, which limits the memory. With None,
        all images are processed at once.
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
        """Return the fraction of the first ``batch`` images with the right class: see `probabilities`."""
        return self.share_right(self.probabilities(batch, *elsewhere, part=part).argmax(axis=1))

    def attention(self, batch: int) -> AttentionShape:
        """The problem of a layer's attention for ``batch`` images, in halves."""
        kinds = {type(layer): layer for _, layer in walk(self.network.layers)}
        heads, tokens = kinds[MultiHeadAttention], kinds[Positions]
        assert isinstance(heads, MultiHeadAttention)
        assert isinstance(tokens, Positions)
        count = len(tokens.position.value)
        return AttentionShape(batch, heads.heads, count, heads.head_width, "fp16", "packed")

    def share_right(self, classes: np.ndarray) -> float:
        """Return the fraction of the first images whose class is right."""
        return float(np.mean(classes == self.data.labels[: len(classes)]))

    def images(self, batch: int, send: str) -> np.ndarray:
        """Return the first images in the form ``send``, one of `mini_dnn.datasets.SEND`.

        Raises
        ------
        UsageError
            The network always has images of that size.
        """
        if self.model.name != NETWORK and send == "uint8-28":
            raise UsageError(
                f"--send {send}: {self.model.title} uses images of the original size; use --send uint8"
            )
        return datasets.as_sent(self.data, batch, send, self.data_dir)

    def problem(self, images: np.ndarray) -> LenetBatch | VitShape | ResNetShape:
        """The problem of the whole network for these images."""
        if self.model.name == NETWORK:
            return LenetBatch.of(images)
        if self.model.operation == "resnet":
            said = self.info.description
            shapes = {name: value.shape for name, value in self.weights.items()}
            sizes = ResNetSizes.from_json(said) if said else sizes_of(shapes, images.shape[2])
            return ResNetShape.of(images, sizes)
        return VitShape.of(images, vit_sizes(self.data.name))

    def service(self, variant: Variant, send: str, count: int) -> Service:
        """The network with the first ``count`` images, in a form of `datasets.SEND`."""
        images = self.images(count, send)
        channels = images.shape[1]
        scaled = {"mean": np.zeros(channels, np.float32), "deviation": np.ones(channels, np.float32)}
        problem = self.problem(images)
        # Where bytes become numbers on the device, they are only divided by 255
        given = {**self.weights, **scaled}
        arrays = {"images": images, **{name: given[name] for name in problem.named("weight")}}

        def score(probabilities: np.ndarray) -> float:
            return self.share_right(probabilities.argmax(axis=1))

        return Service(variant, send, problem, arrays, score)

    def bench(self, bench: Bench, variant: Variant, batch: int, sweep: bool = False) -> None:
        """Add a row for each convolution of the first ``batch`` images, with sweeps if requested.

        Raises
        ------
        CheckError
            A convolution computes something else. Nothing is recorded for the batch.
        """
        convolutions = Convolutions(variant, bench.setting)
        found = self.accuracy(batch, convolutions)
        for layer in convolutions.layers:
            bench.add(layer, found)
            if sweep:
                bench.sweep(variant, layer.name, layer.problem)

    def forms(self, variant: Variant) -> list[str]:
        """The forms of images, of `datasets.SEND`, that a network variant accepts and that the data have."""
        drawn = {"uint8-28"} if self.data.name == datasets.synthetic.NAME else set()
        problems = ops.find(NETWORK).course
        return [send for send in datasets.SEND if send not in drawn and not variant.limit_for(problems[send])]
