"""LeNet, the course network: 86x86 pixels, one channel, ten classes."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from mini_dnn.nn.layers import Conv2d, Flatten, Linear, ReLU, Softmax
from mini_dnn.nn.network import Network
from mini_dnn.nn.pooling import MaxPool2d
from mini_dnn.paths import ROOT

WEIGHTS = ROOT / "data"


def build(rng: np.random.Generator, dtype: npt.DTypeLike = np.float32) -> Network:
    """Build the network, (N, 1, 86, 86) to (N, 10) probabilities, with He initialisation from ``rng``."""
    return Network(
        {
            "conv1": Conv2d(1, 4, (7, 7), rng, dtype),  # 80x80
            "relu1": ReLU(),
            "pool1": MaxPool2d(2),  # 40x40
            "conv2": Conv2d(4, 16, (7, 7), rng, dtype),  # 34x34
            "relu2": ReLU(),
            "pool2": MaxPool2d(4, ceil_mode=True),  # 9x9
            "flatten": Flatten(),
            "fc1": Linear(16 * 9 * 9, 32, rng, dtype),
            "relu3": ReLU(),
            "fc2": Linear(32, 10, rng, dtype),
            "softmax": Softmax(),
        }
    )


def default_weights(dataset: str) -> Path:
    """Return the file of the shipped weights for a data set, "fashion-mnist" or "synthetic"."""
    return WEIGHTS / f"lenet-{dataset}.h5"
