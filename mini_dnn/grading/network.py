"""The network's accuracy with a submission's convolutions. Everything else runs in the grader."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mini_dnn import datasets
from mini_dnn.errors import UsageError
from mini_dnn.grading.asked import Accuracy
from mini_dnn.nn import weights
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import NamedConvolve
from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.ops import Arrays
from mini_dnn.ops.conv2d import conv_arrays

Solve = Callable[[Any, Arrays], Arrays]  # (problem, its inputs) -> its outputs


class Examination:
    """Test images, and the accuracy of NumPy on them.

    Parameters
    ----------
    asked
        Batch size and tolerance.
    data, data_dir
        As for `mini_dnn.datasets.load`.
    note
        Why a substitute is used, if it was chosen earlier.

    Raises
    ------
    UsageError, DataError, WeightsError
        There are no images, or too few.
    """

    def __init__(self, asked: Accuracy, data: str, data_dir: Path | None = None, note: str = "") -> None:
        images = datasets.load(data, "test", data_dir)
        if asked.batch > len(images.labels):
            raise UsageError(
                f"the rubric's accuracy.batch is {asked.batch}; {images.name} has only "
                f"{len(images.labels)} test images"
            )
        self.data, self.note = images.name, note or images.note
        self.batch, self.tolerance = asked.batch, asked.tolerance
        self._images = datasets.to_float(images.images[: asked.batch])
        self._labels = images.labels[: asked.batch]
        self._weights = lenet.default_weights(images.name)
        self.expected = self._accuracy(lambda x, w, name: conv2d_forward(x, w))

    def accuracy(self, solve: Solve) -> float:
        """Return the fraction of images classified correctly if ``solve`` computes the convolutions."""
        return self._accuracy(lambda x, w, name: solve(*conv_arrays(x, w))["y"])

    def _accuracy(self, convolve: NamedConvolve) -> float:
        # A new one for each call, because jobs run concurrently
        network = lenet.build(np.random.default_rng(0))
        weights.load(self._weights, network)
        network.convolve_with(convolve)
        with np.errstate(invalid="ignore", over="ignore"):  # wrong convolutions can produce these
            return float(np.mean(network.predict(self._images) == self._labels))
