"""A trained network that classifies pictures, on the host or resident on a device."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from mini_dnn import ops
from mini_dnn.datasets import ALL, NAMES, names, resize
from mini_dnn.device import Device
from mini_dnn.errors import UsageError
from mini_dnn.measuring.likeliest import softmax
from mini_dnn.measuring.pipeline import Finish, Pipeline, Spent
from mini_dnn.nn.folded import FoldedResNet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.network import Network
from mini_dnn.nn.weights import WeightsInfo, values
from mini_dnn.nn.zoo import MODELS, Model, resnet_sizes, vit_sizes
from mini_dnn.ops import Arrays, Operation
from mini_dnn.ops.lenet import CLASSES, SMALL_SIDE, LenetBatch
from mini_dnn.ops.resnet import ResNetShape
from mini_dnn.ops.vit import VitShape
from mini_dnn.pictures.recipe import IMAGENET, Recipe
from mini_dnn.running.resident import Resident
from mini_dnn.running.runnable import runs_on
from mini_dnn.variant import Variant, default_of, find, preferred

# Types of images sent to a device; the first one that a variant accepts is used
TYPES = ("uint8", "float32", "float16")
SHIPPED = "fashion-mnist"  # the data set on which the shipped weights were trained
SLOTS = 6  # batches in flight: copies on the host and classes take as long as the network, or longer
SCORES = "scores"  # the output of an operation without a final softmax


def same(probabilities: np.ndarray) -> np.ndarray:
    """Return the probabilities unchanged, if they are not processed further."""
    return probabilities


class Serve(Protocol):
    """A prepared network."""

    def __call__(self, batches: Iterable[np.ndarray], spent: Spent, finish: Finish = same) -> Iterator[Any]:
        """Yield the result of ``finish`` for the probabilities of each batch of pixels."""


class Sizes(Protocol):
    """The sizes of any network."""

    @property
    def image(self) -> int:
        """The rows and columns of its input."""

    @property
    def channels(self) -> int:
        """The channels of its input."""

    @property
    def classes(self) -> int:
        """The number of its classes."""


@dataclass(frozen=True)
class Published:
    """The sizes of LeNet's images as published. The network resizes them itself."""

    image: int = SMALL_SIDE
    channels: int = 1
    classes: int = CLASSES


@dataclass(frozen=True)
class Known:
    """Properties of a network besides its layers.

    Parameters
    ----------
    sizes
        The sizes of the network.
    operation
        The whole network as one operation, which variants compute.
    problem_of
        Returns the operation's problem for given images.
    host
        A function that returns the probabilities of normalised images.
    enlarged
        The enlargement of bytes ``(N, rows, columns, channels)``, which no device resizes, before they are
        normalised.
    title
        The network's name if it depends on the sizes.
    """

    sizes: Sizes
    operation: Operation
    problem_of: Callable[[np.ndarray], Any]
    host: Callable[[np.ndarray], np.ndarray]
    enlarged: Callable[[np.ndarray], np.ndarray] = lambda pixels: pixels
    title: str = ""


@dataclass(frozen=True)
class Classifier:
    """A trained network, and its preprocessing.

    Parameters
    ----------
    model
        The kind of network.
    network
        The network with trained weights.
    recipe
        The preprocessing of pictures.
    classes
        Names of the classes.
    weights_file
        The file of the weights.
    known
        Further properties.
    """

    model: Model
    network: Network
    recipe: Recipe
    classes: Sequence[str]
    weights_file: Path
    known: Known

    @classmethod
    def load(cls, name: str, weights: Path | None = None, recipe: Recipe | None = None) -> Classifier:
        """Load a network by its name.

        Parameters
        ----------
        weights
            A file of weights; by default, the shipped one.
        recipe
            The preprocessing of pictures, if it differs from that of the weights or of the training.

        Raises
        ------
        UsageError, WeightsError
            The weights cannot be used, or the recipe is for another network.
        """
        model = MODELS[name]
        file = weights or model.weights(SHIPPED)
        if weights is None and not file.is_file():
            raise UsageError(
                f"no weights of {model.title} are shipped: create them with 'run.py train --network {name}', "
                "and name the file with --weights"
            )
        network, info = model.read(file)
        known = _OPERATIONS[name](network, info)
        recipe = recipe or _recipe(info.dataset, known.sizes.image, known.sizes.channels)
        if (recipe.crop, recipe.channels) != (known.sizes.image, known.sizes.channels):
            raise UsageError(
                f"the recipe gives pictures of {recipe.crop} pixels in {recipe.channels} channels, and "
                f"{file} is for a network of {known.sizes.image} pixels in {known.sizes.channels}; change "
                "the recipe"
            )
        classes = names.class_names(info.dataset, known.sizes.classes)
        return cls(model, network, recipe, classes, file, known)

    @property
    def weights(self) -> Arrays:
        """The trained arrays, and those of the recipe, which an operation may accept."""
        given = {"mean": self.recipe.mean, "deviation": self.recipe.deviation}
        return values(self.network) | {name: np.array(value, np.float32) for name, value in given.items()}

    def on_host(self, batches: Iterable[np.ndarray], spent: Spent, finish: Finish = same) -> Iterator[Any]:
        """Compute with NumPy; a `Serve`."""
        for pixels in batches:
            start = time.perf_counter()
            found = self.known.host(self._formed(pixels, "float32"))
            spent.network += time.perf_counter() - start
            yield finish(found)

    def best(self, device: Device) -> Variant:
        """The variant that is used if none is named: see `Operation.preferred`."""
        operation = self.known.operation
        for variant in preferred(operation):
            images, limit = self._form_for(variant)
            if not limit and runs_on(variant, device, self.known.problem_of(images)):
                return variant
        return find(default_of(operation.name, operation.default))

    def _form_for(self, variant: Variant) -> tuple[np.ndarray, str]:
        """An image in a form that a variant supports, preferably bytes; or why it supports none."""
        pixels, limit = np.zeros((1, *self.recipe.shape), np.uint8), ""
        for dtype in TYPES:
            images = self._formed(pixels, dtype)
            problem = self.known.problem_of(images)
            if dtype == "uint8" and not self._is_scaled_alone and "mean" not in problem.named("weight"):
                continue  # the operation divides bytes by 255 and cannot do more
            limit = variant.limit_for(problem)
            if not limit:
                break
        return images, limit

    @property
    def _is_scaled_alone(self) -> bool:
        return set(self.recipe.mean) == {0} and set(self.recipe.deviation) == {1}

    def _formed(self, pixels: np.ndarray, dtype: str) -> np.ndarray:
        if dtype == "uint8":
            return pixels.transpose(0, 3, 1, 2)
        return self.recipe.normalised(self.known.enlarged(pixels)).astype(dtype, copy=False)

    @contextmanager
    def on_device(self, variant: Variant, batch: int, device: Device) -> Iterator[tuple[Serve, int]]:
        """Open the network on a device. Yield a function like `on_host`, and the largest number of pictures.

        Raises
        ------
        UsageError, VariantError, DeviceError
            The network cannot run on the device.
        """
        images, limit = self._form_for(variant)
        if limit:
            raise UsageError(f"{variant.name} does not support these pictures: {limit}; use another --impl")
        problem = self.known.problem_of(images).with_batch(batch)
        weights = {name: self.weights[name] for name in problem.named("weight")}
        (output,) = problem.named("out")
        with ExitStack() as stack:
            resident = Resident(variant, problem, weights, device, slots=SLOTS)
            stack.callback(resident.close)  # called when no thread writes to its memory any more
            pool = stack.enter_context(ThreadPoolExecutor(len(os.sched_getaffinity(0))))

            def serve(batches: Iterable[np.ndarray], spent: Spent, finish: Finish = same) -> Iterator[Any]:
                def finished(outputs: np.ndarray) -> Any:
                    return finish(softmax(outputs) if output == SCORES else outputs)

                yield from Pipeline(resident, self._formed, finished, pool, iter(batches), spent)

            yield serve, resident.problem.batch


def _recipe(dataset: str, image: int, channels: int) -> Recipe:
    """The preprocessing of pictures for a network that was trained on a data set."""
    if dataset in ALL:
        mean, deviation = (0.0,) * channels, (1.0,) * channels  # bytes divided by 255, as in training
        return Recipe(image, image, mean, deviation, background=0 if dataset in NAMES else 255)
    resize = round(image * IMAGENET.resize / IMAGENET.crop)
    if channels == IMAGENET.channels:
        return replace(IMAGENET, crop=image, resize=resize)
    return Recipe(resize, image, (0.0,) * channels, (1.0,) * channels)


def _lenet(network: Network, info: WeightsInfo) -> Known:
    def enlarged(pixels: np.ndarray) -> np.ndarray:
        return resize(pixels[..., 0]).transpose(0, 2, 3, 1)

    return Known(Published(), ops.find("lenet"), LenetBatch.of, network.forward, enlarged)


def _vit(network: Network, info: WeightsInfo) -> Known:
    sizes = vit_sizes(info.dataset)
    return Known(sizes, ops.find("vit"), lambda images: VitShape.of(images, sizes), network.forward)


def _resnet(network: Network, info: WeightsInfo) -> Known:
    sizes = ResNetSizes.from_json(info.description) if info.description else resnet_sizes(info.dataset)

    @cache
    def fast() -> FoldedResNet:  # it takes a second to create, and only the host needs it
        return FoldedResNet(sizes, values(network))

    return Known(
        sizes,
        ops.find("resnet"),
        lambda images: ResNetShape.of(images, sizes),
        lambda x: softmax(fast().scores(x)),
        title=sizes.title,
    )


_OPERATIONS: Mapping[str, Callable[[Network, WeightsInfo], Known]] = {
    "lenet": _lenet,
    "vit": _vit,
    "resnet18": _resnet,
}
