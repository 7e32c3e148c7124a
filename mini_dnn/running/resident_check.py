"""The comparison of a whole network's probabilities with float64."""

from __future__ import annotations

import numpy as np

from mini_dnn.errors import CheckError
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network

CHECK_IMAGES = 100  # from each end, compared with float64
# of a probability, by a variant's precision: fp32 sums stay below 1e-5, halves have 11 bits
TOLERANCE = {"fp32": 1e-4, "fp16": 2e-2}


def check(network: Network, images: np.ndarray, probabilities: np.ndarray, precision: str = "fp32") -> float:
    """Compare with the network in float64, for some images from both ends of the batch.

    Parameters
    ----------
    network
        The trained one.
    images
        (N, 1, 86, 86) uint8.
    probabilities
        (N, 10), as computed.
    precision
        The variant's: see `TOLERANCE`.

    Returns
    -------
    float
        The largest difference.

    Raises
    ------
    CheckError
        It is too large, or something is no number.
    """
    exact = lenet.build(np.random.default_rng(0), np.float64)
    for name, parameter in network.parameters().items():
        exact.parameters()[name].value[:] = parameter.value
    chosen = np.unique(
        np.r_[0 : min(CHECK_IMAGES, len(images)), max(0, len(images) - CHECK_IMAGES) : len(images)]
    )
    expected = exact.forward(images[chosen] / np.float64(255))
    error, tolerance = np.abs(probabilities[chosen] - expected), TOLERANCE[precision]
    if not (error <= tolerance).all():  # NaN fails
        wrong = ~(error <= tolerance).all(axis=1)
        first = int(chosen[int(wrong.argmax())])
        raise CheckError(
            f"{int(wrong.sum())} of {len(chosen)} images differ from float64 by more than {tolerance:.0e}, "
            f"first image {first}: found {probabilities[first]}, expected {expected[int(wrong.argmax())]}"
        )
    return float(error.max())
