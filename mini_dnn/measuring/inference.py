"""The course's program: LeNet classifies images, each convolution in a variant or all layers on a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn import datasets, ops
from mini_dnn.datasets import ImageSet
from mini_dnn.device.host_memory import available_bytes
from mini_dnn.errors import CheckError, UsageError, VariantError
from mini_dnn.measuring.bench import Bench
from mini_dnn.measuring.measure import Measured, Setting, joined, measure
from mini_dnn.measuring.serving import Service
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.nn.weights import WeightsInfo, load
from mini_dnn.ops import Arrays
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.ops.problem import TYPES
from mini_dnn.variant import Variant, find

LAYER, NETWORK = "conv2d", "lenet"  # the operations of one convolution, and of all layers
LINEAR = "gemm"  # the operation of one linear layer
PART_IMAGES = 1_000  # that run through all layers at a time where op times are no GPU's
BASE_BYTES = 250_000_000  # of the program, with all images as bytes
CHECK_BYTES = 250_000_000  # of a comparison with float64
IMAGE_BYTES = 240_000  # of an image on its way through the layers: the first convolution's output twice
STEPS = {"layers": "layer_by_layer", "fused": "fused_pool", "whole": "whole", "tensor": "tensor_cores"}


def find_step(name: str) -> Variant:
    """The network variant of a short name in `STEPS`, or of any name or path that `find` takes.

    Raises
    ------
    VariantError
        There is none, or it computes something else.
    """
    try:
        variant = find(f"networks/lenet/{STEPS[name]}" if name in STEPS else name)
    except VariantError as error:
        raise VariantError(f"--resident {name}: {error}; short names are {', '.join(STEPS)}") from error
    if variant.op != NETWORK:
        raise VariantError(
            f"{variant.name} computes one {variant.op} and no whole network; --resident takes "
            f"{', '.join(STEPS)}, or a folder whose VARIANT has op='{NETWORK}'"
        )
    return variant


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
        Where the published images of Fashion-MNIST lie: see `mini_dnn.datasets.load`.
    """

    network: Network
    info: WeightsInfo
    weights_file: Path
    data: ImageSet
    data_dir: Path | None = None

    @classmethod
    def load(cls, data: str = "auto", data_dir: Path | None = None, weights: Path | None = None) -> Program:
        """Load test images, and the weights of a file: by default those that are shipped for the images.

        Raises
        ------
        DataError, WeightsError, UsageError
            One of them cannot be had.
        """
        images = datasets.load(data, "test", data_dir)
        network = lenet.build(np.random.default_rng(0))
        file = weights or lenet.default_weights(images.name)
        return cls(network, load(file, network), file, images, data_dir)

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
            raise UsageError(f"--batch {batch}: {self.data.name} has {count} test images at most")

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
                f"--batch {batch}: it takes up to {needed / 1e9:.2g} GB of memory, and this process may take "
                f"{found / 1e9:.2g} GB more; take a smaller --batch, or leave the machine more"
            )

    def accuracy(
        self,
        convolutions: Convolutions,
        batch: int,
        products: Products | None = None,
        part: int | None = None,
    ) -> float:
        """Classify the first ``batch`` images; the fraction that the network gets right.

        Linear layers are NumPy's, unless there are ``products``. All layers run for ``part`` images before
        the next ones are begun, which bounds the memory; for all images at once if None.
        """
        self.network.convolve_with(convolutions)
        if products:
            self.network.multiply_with(products)
        classes = []
        for first in range(0, batch, part or batch):
            images = self.data.images[first : min(batch, first + (part or batch))]
            try:
                classes.append(self.network.predict(datasets.to_float(images)))
            except CheckError as error:
                where = f" (images are counted from number {first:,})" if first else ""
                raise CheckError(f"{error}{where}") from error
        return self.share_right(np.concatenate(classes))

    def share_right(self, classes: np.ndarray) -> float:
        """Which fraction of the first images has the right class."""
        return float(np.mean(classes == self.data.labels[: len(classes)]))

    def images(self, batch: int, send: str) -> np.ndarray:
        """The first images in the form ``send``, one of `mini_dnn.datasets.SEND`."""
        return datasets.as_sent(self.data, batch, send, self.data_dir)

    def service(self, variant: Variant, send: str, count: int) -> Service:
        """The network and the first ``count`` images, in a form of `datasets.SEND`."""
        images = self.images(count, send)
        arrays = {"images": images, **self.weights}

        def score(probabilities: np.ndarray) -> float:
            return self.share_right(probabilities.argmax(axis=1))

        return Service(variant, send, LenetBatch.of(images), arrays, score)

    def bench(self, bench: Bench, variant: Variant, batch: int, sweep: bool = False) -> None:
        """Add a row for each convolution of the first ``batch`` images, with sweeps if these are asked for.

        Raises
        ------
        CheckError
            A convolution computes something else; nothing is recorded of the batch.
        """
        convolutions = Convolutions(variant, bench.setting)
        found = self.accuracy(convolutions, batch)
        for layer in convolutions.layers:
            bench.add(layer, found)
            if sweep:
                bench.sweep(variant, layer.name, layer.problem)

    def forms(self, variant: Variant) -> list[str]:
        """The forms of images, of `datasets.SEND`, that a network variant takes and that the data have."""
        drawn = {"uint8-28"} if self.data.name == datasets.synthetic.NAME else set()
        problems = ops.find(NETWORK).course
        return [send for send in datasets.SEND if send not in drawn and not variant.limit_for(problems[send])]


@dataclass
class Convolutions:
    """Runs a network's convolutions in one variant.

    Parameters
    ----------
    variant
        What runs them.
    setting
        Where and how.
    on_layer
        Called with each convolution as soon as it is done.
    """

    variant: Variant
    setting: Setting
    on_layer: Callable[[Measured], None] = lambda layer: None
    layers: list[Measured] = field(default_factory=list)  # without their outputs, which are large

    def __call__(self, x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        """Convolve for the layer of that name.

        Raises
        ------
        CheckError
            See `measure`.
        """
        problem, arrays = ops.find(LAYER).of(x, w)
        layer = measure(self.variant, name, problem, arrays, self.setting)
        self.layers.append(_without_outputs(layer))
        self.on_layer(self.layers[-1])
        return layer.result.y


@dataclass
class Products:
    """Runs a network's linear layers in one variant of the matrix product.

    Parameters
    ----------
    variant, setting, on_layer
        See `Convolutions`.
    """

    variant: Variant
    setting: Setting
    on_layer: Callable[[Measured], None] = lambda layer: None
    layers: list[Measured] = field(default_factory=list)

    def __call__(self, x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        """Multiply x by the transposed w for the layer of that name.

        Operands stay in fp32 where the variant takes that. Else they are rounded to the first type that it
        takes.

        Raises
        ------
        VariantError
            It takes no type, or one that cannot hold a number of x or w.
        CheckError
            See `measure`.
        """
        problem, arrays = self._problem(x, w)
        layer = measure(self.variant, name, problem, arrays, self.setting)
        self.layers.append(_without_outputs(layer))
        self.on_layer(self.layers[-1])
        return layer.result.y[0]

    def _problem(self, x: np.ndarray, w: np.ndarray) -> tuple[Any, Arrays]:
        """The product in the first type that the variant takes."""
        limits = []
        for dtype in TYPES.values():
            with np.errstate(over="ignore"):
                rounded = x.astype(dtype), w.astype(dtype)
            problem, arrays = ops.find(LINEAR).of(*rounded, layout="nt")
            limits.append(self.variant.limit_for(problem))
            if limits[-1]:
                continue
            if not all(np.isfinite(array).all() for array in rounded):
                raise VariantError(
                    f"{self.variant.name} takes linear layers in {dtype}, which cannot hold all numbers"
                )
            return problem, arrays
        raise VariantError(f"{self.variant.name} does not take a linear layer: {limits[0]}")


def by_layer(measured: Sequence[Measured]) -> list[Measured]:
    """One record a layer from those of its parts, in the order of the layers."""
    names = dict.fromkeys(one.name for one in measured)
    return [joined([one for one in measured if one.name == name]) for name in names]


def _without_outputs(layer: Measured) -> Measured:
    return replace(layer, result=replace(layer.result, outputs={}))
