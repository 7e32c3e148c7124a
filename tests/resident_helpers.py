"""A small trained network, images for it, and a comparison of its answers with float64."""

import numpy as np

from mini_dnn import ops
from mini_dnn.datasets import draw
from mini_dnn.device import Device
from mini_dnn.nn.layers import Linear
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import Network
from mini_dnn.ops.compare import Comparison
from mini_dnn.ops.lenet import LenetBatch
from mini_dnn.running.resident import Resident
from mini_dnn.running.verify import verify
from mini_dnn.variant import Variant


def small_network() -> Network:
    network = lenet.build(np.random.default_rng(5))
    for name in ("fc1", "fc2"):
        layer = network.layers[name]
        assert isinstance(layer, Linear)
        layer.bias.value[:] = np.random.default_rng(6).standard_normal(layer.bias.value.shape)
    return network


def pictures(count: int, seed: int = 1) -> np.ndarray:
    """Drawn garments, followed by noise, which has sharper edges than any garment."""
    rng = np.random.default_rng(seed)
    garments = draw(count - count // 3, seed)[0]
    return np.concatenate([garments, rng.integers(0, 256, (count // 3, 1, 86, 86), dtype=np.uint8)])


def weights(network: Network) -> dict[str, np.ndarray]:
    return {name: parameter.value for name, parameter in network.parameters().items()}


def opened(
    network: Network, variant: Variant, device: Device, batch: LenetBatch, use_graph: bool = True
) -> Resident:
    return Resident(variant, batch, weights(network), device, use_graph)


def compared(
    network: Network, images: np.ndarray, probabilities: np.ndarray, precision: str = "fp32"
) -> Comparison:
    """Compare answers with those of the network in float64."""
    arrays, outputs = {"images": images, **weights(network)}, {"probabilities": probabilities}
    return verify(ops.find("lenet"), LenetBatch.of(images), arrays, outputs, precision)


def assert_right(
    network: Network, images: np.ndarray, probabilities: np.ndarray, precision: str = "fp32"
) -> float:
    """Fail if the errors exceed what the precision allows. Return the largest error."""
    result = compared(network, images, probabilities, precision)
    assert result.ok, str(result)
    return result.max_error
