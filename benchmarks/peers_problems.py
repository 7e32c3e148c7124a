"""What is computed: convolutions and the whole network, with their float64 answers and the check."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mini_dnn.errors import CheckError
from mini_dnn.nn.layers import MaxPool2d
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.ops.compare import conv2d_float64
from mini_dnn.ops.course import layer_shape
from mini_dnn.ops.fused import ConvPoolShape
from mini_dnn.ops.shapes import ConvShape, LenetBatch

CHECKED = 64  # images that are compared with float64, from all over the batch
POOLS = {"conv1": 2, "conv2": 4}
# of ||y - reference|| / ||reference||, and of the largest error over the largest value
TOLERANCE = {"fp32": (1e-5, 1e-4), "tf32": (2e-3, 1e-2), "fp16": (2e-3, 1e-2)}
OF_PROBABILITY = {"fp32": 1e-4, "tf32": 2e-2, "fp16": 2e-2}


@dataclass(frozen=True, eq=False)
class Convolution:
    """A convolution, alone or with ReLU and max-pool, with random inputs."""

    what: str  # "conv1", "conv2", "fused1" or "fused2"
    shape: ConvShape  # a ConvPoolShape with ReLU and max-pool
    x: np.ndarray
    w: np.ndarray
    compared: np.ndarray  # indices of images
    expected: np.ndarray  # their results in float64

    output = "y"  # the buffer that a variant leaves its result in

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Arrays by the names that a variant's buffers have."""
        return {"x": self.x, "w": self.w}

    @property
    def pool(self) -> int:
        """Rows of a window of the pool; 0 without one."""
        return self.shape.pool if isinstance(self.shape, ConvPoolShape) else 0

    def check(self, found: np.ndarray, precision: str) -> dict[str, float]:
        """Errors of the results of the compared images.

        Raises
        ------
        CheckError
            They are too large, or something is no number.
        """
        error = np.abs(found - self.expected)
        relative = float(np.linalg.norm(error) / np.linalg.norm(self.expected))
        largest = float(error.max())
        of_norm, of_largest = TOLERANCE[precision]
        if not (relative <= of_norm and largest <= of_largest * np.abs(self.expected).max()):  # NaN fails
            raise CheckError(f"relative error {relative:.2e}, largest error {largest:.2e}, for {precision}")
        return {"relative_error": relative, "max_error": largest}


@dataclass(frozen=True, eq=False)
class Classification:
    """The whole network, from images on the device to probabilities."""

    shape: LenetBatch
    images: np.ndarray  # (N, 1, 86, 86) float32
    labels: np.ndarray
    weights: Mapping[str, np.ndarray]
    expected: np.ndarray  # (CHECKED, 10) float64, of images all over the batch

    what = "network"
    output = "probabilities"

    @property
    def inputs(self) -> dict[str, np.ndarray]:
        """Arrays by the names that a variant's buffers have."""
        return {"images": self.images, **self.weights}

    @property
    def compared(self) -> np.ndarray:
        """All of them, as the accuracy is of all."""
        return np.arange(self.shape.N)

    def check(self, found: np.ndarray, precision: str) -> dict[str, float]:
        """Errors of the probabilities (N, 10), and the accuracy.

        Raises
        ------
        CheckError
            They are too large, or something is no number.
        """
        error = np.abs(found[spread(self.shape.N)] - self.expected)
        largest = float(error.max())
        if not largest <= OF_PROBABILITY[precision]:  # NaN fails
            raise CheckError(f"largest error of a probability {largest:.2e}, for {precision}")
        return {
            "relative_error": float(np.linalg.norm(error) / np.linalg.norm(self.expected)),
            "max_error": largest,
            "accuracy": float(np.mean(found.argmax(axis=1) == self.labels)),
        }


Problem = Convolution | Classification


def spread(batch: int) -> np.ndarray:
    """Indices of images all over a batch, the first and the last among them."""
    return np.unique(np.linspace(0, batch - 1, CHECKED).astype(np.int64))


def convolutions(batch: int) -> list[Convolution]:
    """conv1, conv2, fused1 and fused2, both layers with one input each."""
    rng = np.random.default_rng(0)
    compared = spread(batch)
    alone, fused = [], []
    for layer, pool in POOLS.items():
        shape = layer_shape(layer, batch)
        x, w = rng.standard_normal(shape.x, np.float32), rng.standard_normal(shape.w, np.float32)
        y = conv2d_float64(x[compared], w)
        alone.append(Convolution(layer, shape, x, w, compared, y))
        pooled = MaxPool2d(pool, ceil_mode=True).forward(np.maximum(y, 0))
        with_pool = ConvPoolShape(**vars(shape), pool=pool)
        fused.append(Convolution(layer.replace("conv", "fused"), with_pool, x, w, compared, pooled))
    return alone + fused


def classification(network: Network, images: np.ndarray, labels: np.ndarray) -> Classification:
    """The network on (N, 1, 86, 86) float32 images."""
    exact = lenet.build(np.random.default_rng(0), np.float64)
    weights = {name: parameter.value for name, parameter in network.parameters().items()}
    for name, value in weights.items():
        exact.parameters()[name].value[:] = value
    expected = exact.forward(images[spread(len(images))].astype(np.float64))
    weights = {name: np.ascontiguousarray(value, np.float32) for name, value in weights.items()}
    return Classification(LenetBatch(len(images)), images, labels, weights, expected)
