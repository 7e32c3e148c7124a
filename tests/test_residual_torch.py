"""Layers of a residual network compared with PyTorch's, forward and backward, on random inputs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mini_dnn.nn.layer import Layer, Running
from mini_dnn.nn.layers import Conv2d, Linear, ReLU
from mini_dnn.nn.models import resnet
from mini_dnn.nn.models.resnet import ResNetSizes
from mini_dnn.nn.network import Network
from mini_dnn.nn.pooling import AdaptiveAvgPool2d, MaxPool2d
from mini_dnn.nn.residual import BatchNorm2d

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn
SHAPE = (3, 6, 13, 11)


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def conv(dtype: Any, **more: Any) -> Layer:
    return Conv2d(6, 8, (3, 3), rng(), dtype, **more)


CASES: dict[str, tuple[Callable[[Any], Layer], Callable[[], Any], tuple[int, ...]]] = {
    "conv": (
        lambda dtype: conv(dtype, stride=2, padding=1, bias=True),
        lambda: nn.Conv2d(6, 8, 3, 2, 1),
        SHAPE,
    ),
    "conv, stem": (
        lambda dtype: Conv2d(6, 4, (7, 7), rng(), dtype, 2, 3),
        lambda: nn.Conv2d(6, 4, 7, 2, 3, bias=False),
        SHAPE,
    ),
    "norm": (lambda dtype: BatchNorm2d(6, dtype), lambda: nn.BatchNorm2d(6), SHAPE),
    "relu": (lambda dtype: ReLU(), nn.ReLU, SHAPE),
    "max pool": (lambda dtype: MaxPool2d(3, stride=2, padding=1), lambda: nn.MaxPool2d(3, 2, 1), SHAPE),
    "adaptive mean": (lambda dtype: AdaptiveAvgPool2d(4), lambda: nn.AdaptiveAvgPool2d(4), SHAPE),
    "linear": (lambda dtype: Linear(9, 5, rng(), dtype), lambda: nn.Linear(9, 5), (4, 9)),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("make", "their", "shape"), CASES.values(), ids=CASES.keys())
def test_a_layer_is_pytorchs(
    make: Callable[[Any], Layer], their: Callable[[], Any], shape: tuple[int, ...], dtype: Any
) -> None:
    layer, theirs = make(dtype), their()
    x, dy = rng().standard_normal(shape).astype(dtype), None
    theirs = theirs.to(torch.float64 if dtype == np.float64 else torch.float32)
    for name, parameter in layer.parameters().items():
        if not isinstance(parameter, Running):
            parameter.value[...] = rng().standard_normal(parameter.value.shape)
            with torch.no_grad():
                getattr(theirs, name).copy_(torch.from_numpy(parameter.value))
    given = torch.from_numpy(x.copy()).requires_grad_()
    y, y_theirs = layer.forward(x, training=True), theirs(given)
    close = {"rtol": 1e-10, "atol": 1e-10} if dtype == np.float64 else {"rtol": 2e-4, "atol": 2e-4}
    np.testing.assert_allclose(y, y_theirs.detach().numpy(), **close)
    dy = np.cos(np.arange(y.size)).reshape(y.shape).astype(dtype)
    dx = layer.backward(dy)
    y_theirs.backward(torch.from_numpy(dy))
    np.testing.assert_allclose(dx, given.grad.numpy(), **close)
    for name, parameter in layer.parameters().items():
        if isinstance(parameter, Running):
            parameter.follow()
            np.testing.assert_allclose(parameter.value, getattr(theirs, name).numpy(), **close)
        else:
            np.testing.assert_allclose(parameter.grad, getattr(theirs, name).grad.numpy(), **close)
    if isinstance(layer, BatchNorm2d):
        theirs.eval()
        np.testing.assert_allclose(layer.forward(x), theirs(given).detach().numpy(), **close)


class Block(nn.Module):  # type: ignore[misc]
    """A basic block, written with PyTorch's functions."""

    def __init__(self, arrays: dict[str, Any], stride: int) -> None:
        super().__init__()
        self.arrays, self.stride = arrays, stride

    def norm(self, x: Any, name: str) -> Any:
        weight, bias, mean, variance = (self.arrays[f"{name}.{array}"] for array in resnet.NORM_ARRAYS)
        return nn.functional.batch_norm(x, mean, variance, weight, bias)

    def forward(self, x: Any) -> Any:
        arrays, functions = self.arrays, nn.functional
        y = self.norm(functions.conv2d(x, arrays["conv1.weight"], None, self.stride, 1), "bn1").relu()
        y = self.norm(functions.conv2d(y, arrays["conv2.weight"], None, 1, 1), "bn2")
        if "downsample.0.weight" in arrays:
            down = functions.conv2d(x, arrays["downsample.0.weight"], None, self.stride)
            x = self.norm(down, "downsample.1")
        return (x + y).relu()


@pytest.mark.parametrize("stem", resnet.STEMS)
def test_a_whole_network_is_pytorchs(stem: str) -> None:
    sizes = ResNetSizes(40, 3, stem, (4, 6, 8, 10), (2, 1, 1, 2), 5)
    network = resnet.build(sizes, rng(), np.float64)
    for parameter in network.parameters().values():
        if parameter.value.ndim == 1:
            parameter.value[:] = rng().uniform(0.5, 1.5, parameter.value.shape)
    arrays = {name: torch.from_numpy(p.value) for name, p in network.parameters().items()}
    x = rng().standard_normal((2, 3, 40, 40))
    conv1 = sizes.conv1
    y = nn.functional.conv2d(torch.from_numpy(x), arrays["conv1.weight"], None, conv1.stride, conv1.padding)
    y = Block({name: array for name, array in arrays.items() if name.startswith("bn1.")}, 1).norm(y, "bn1")
    y = y.relu()
    if stem == "imagenet":
        y = nn.functional.max_pool2d(y, 3, 2, 1)
    for block in sizes.all_blocks:
        own = {
            n.removeprefix(f"{block.name}."): a for n, a in arrays.items() if n.startswith(f"{block.name}.")
        }
        y = Block(own, block.conv1.stride)(y)
    scores = nn.functional.linear(y.mean(dim=(2, 3)), arrays["fc.weight"], arrays["fc.bias"])
    logits = Network(dict(list(network.layers.items())[:-1]))
    np.testing.assert_allclose(logits.forward(x), scores.numpy(), rtol=1e-9, atol=1e-9)
