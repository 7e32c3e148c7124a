"""The network forward, with its convolutions in one variant's kernels and what each of them took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from mini_dnn import datasets
from mini_dnn.datasets import ImageSet
from mini_dnn.device.base import Device
from mini_dnn.errors import CheckError
from mini_dnn.nn.network import LayerTime, Network
from mini_dnn.ops.compare import Comparison, check_conv2d
from mini_dnn.ops.shapes import ConvShape
from mini_dnn.progress import Bar
from mini_dnn.running import runner
from mini_dnn.running.runner import ConvResult
from mini_dnn.running.timing import Timing
from mini_dnn.variant import Variant

PART_IMAGES = 250  # on a CPU, so that progress moves


@dataclass(frozen=True)
class ConvLayer:
    """One convolution of a forward pass."""

    name: str
    shape: ConvShape
    result: ConvResult
    comparison: Comparison | None  # with float64, where that was asked for


@dataclass
class Convolutions:
    """Runs a network's convolutions in one variant.

    Parameters
    ----------
    variant
        What runs them.
    device
        Where; None for a variant that runs on the host.
    timing
        How each op is timed.
    check_images
        Compare each output with float64, for so many images from both ends of the batch.
    """

    variant: Variant
    device: Device | None
    timing: Timing
    check_images: int = 0
    layers: dict[str, ConvLayer] = field(default_factory=dict)

    def __call__(self, x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        """Convolve for the layer of that name.

        Raises
        ------
        CheckError
            The output differs from float64; the message has the first wrong element.
        """
        part = None if self.device and self.device.has_clock else PART_IMAGES
        with Bar(name, len(x)) as bar:
            result = runner.run(x, w, self.variant, self.device, self.timing, part, bar.update)
        _refuse_nan(result.y, f"{self.variant.name}, layer {name}")
        comparison = self._compare(x, w, result.y, name) if self.check_images else None
        self.layers[name] = ConvLayer(name, ConvShape.of(x, w), result, comparison)
        return result.y

    def _compare(self, x: np.ndarray, w: np.ndarray, y: np.ndarray, name: str) -> Comparison:
        with Bar(f"{name}, float64", min(len(x), self.check_images)) as bar:
            comparison = check_conv2d(x, w, y, self.variant.precision, self.check_images, bar.update)
        if not comparison.ok:
            raise CheckError(f"{self.variant.name}, layer {name}: {comparison}")
        return comparison


def _refuse_nan(y: np.ndarray, what: str) -> None:
    """Buffers are filled with NaN: where one is left, nobody wrote the element, or it is wrong."""
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isnan(y.sum()):  # cheaper than a look at each; infinities of both signs give NaN, too
            return
    nan = np.isnan(y)
    if nan.any():
        first = tuple(int(i) for i in np.unravel_index(int(nan.argmax()), y.shape))
        raise CheckError(
            f"{what}: {int(nan.sum())} of {y.size} output elements are NaN, the first at {first}: no thread "
            "wrote them (buffers start as NaN), or they were computed from such an element. Do the grid and "
            "the bounds cover the whole output?"
        )


def accuracy(
    network: Network,
    convolutions: Convolutions,
    data: ImageSet,
    batch: int,
    on_layer: Callable[[LayerTime], None] | None = None,
) -> float:
    """Classify the first ``batch`` images; the fraction that the network gets right."""
    network.convolve_with(convolutions)
    classes = network.predict(datasets.to_float(data.images[:batch]), on_layer=on_layer)
    return float(np.mean(classes == data.labels[:batch]))
