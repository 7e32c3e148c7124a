"""Layers of a residual network against their definitions, and their gradients against central differences."""

import numpy as np
import pytest
from gradients import differences

from mini_dnn.nn.layer import Layer, Running
from mini_dnn.nn.layers import Conv2d, MaxPool2d
from mini_dnn.nn.pooling import AdaptiveAvgPool2d, AvgPool2d
from mini_dnn.nn.residual import BasicBlock, BatchNorm2d


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def conv(C: int, M: int, R: int, S: int, **more: int) -> Conv2d:
    layer = Conv2d(C, M, (R, S), rng(), np.float64, **more)
    if layer.bias:
        layer.bias.value[:] = np.arange(M)
    return layer


class Trained(Layer):
    """A layer whose every forward pass is one of training, as central differences need it of a batch norm."""

    def __init__(self, layer: Layer) -> None:
        self.layer = layer
        for name, parameter in layer.parameters().items():
            if name.endswith(("weight", "bias")) and parameter.value.ndim == 1:
                parameter.value[:] = rng().uniform(0.5, 1.5, parameter.value.shape)

    def forward(self, x: np.ndarray, training: bool = False, overwrite: bool = False) -> np.ndarray:
        return self.layer.forward(x, training=True)

    def backward(self, dy: np.ndarray) -> np.ndarray:
        return self.layer.backward(dy)

    def parameters(self) -> dict:
        return {n: p for n, p in self.layer.parameters().items() if not isinstance(p, Running)}


CASES = {
    "conv, padding": (conv(2, 3, 3, 3, padding=1), (2, 2, 4, 5)),
    "conv, stride": (conv(2, 3, 3, 3, stride=2, padding=1), (2, 2, 6, 5)),
    "conv, stride that leaves pixels out": (conv(1, 2, 2, 2, stride=3), (2, 1, 7, 8)),
    "conv, stride larger than the filter": (conv(2, 3, 1, 1, stride=2), (2, 2, 5, 4)),
    "conv, bias": (conv(2, 2, 3, 2, bias=True), (2, 2, 4, 4)),
    "conv, all": (conv(2, 2, 3, 4, stride=2, padding=2, bias=True), (2, 2, 5, 4)),
    "conv 7, as in the stem": (conv(1, 2, 7, 7, stride=2, padding=3), (1, 1, 8, 7)),
    "norm": (BatchNorm2d(3, np.float64), (2, 3, 2, 3)),
    "norm of one pixel": (BatchNorm2d(2, np.float64), (4, 2, 1, 1)),
    "max pool": (MaxPool2d(3, stride=2, padding=1), (2, 2, 6, 5)),
    "max pool, apart": (MaxPool2d(2, stride=3), (1, 2, 6, 8)),
    "mean": (AvgPool2d(2), (2, 2, 4, 5)),
    "mean, overlapping": (AvgPool2d(3, stride=2, padding=1), (2, 2, 6, 5)),
    "adaptive mean": (AdaptiveAvgPool2d(1), (2, 3, 4, 5)),
    "adaptive mean, 3 of 5": (AdaptiveAvgPool2d(3), (2, 2, 5, 7)),
    "adaptive mean, more than there are": (AdaptiveAvgPool2d(3), (1, 2, 2, 1)),
    "block": (BasicBlock(2, 2, 1, rng(), np.float64), (2, 2, 4, 3)),
    "block, wider": (BasicBlock(2, 3, 1, rng(), np.float64), (2, 2, 3, 3)),
    "block, stride": (BasicBlock(2, 2, 2, rng(), np.float64), (2, 2, 4, 4)),
}
cases = pytest.mark.parametrize(("layer", "shape"), CASES.values(), ids=CASES.keys())


@cases
def test_gradients_agree_with_central_differences(layer: Layer, shape: tuple[int, ...]) -> None:
    trained = Trained(layer)
    random = np.random.default_rng(8)
    x = random.standard_normal(shape)
    y = trained.forward(x)
    assert y.shape == layer.output_shape(shape)
    dy = random.standard_normal(y.shape)
    dx = trained.backward(dy)
    gradients = {name: parameter.grad.copy() for name, parameter in trained.parameters().items()}
    assert dx.shape == x.shape
    np.testing.assert_allclose(dx, differences(trained, x, dy, x), rtol=1e-6, atol=1e-7)
    for name, parameter in trained.parameters().items():
        assert gradients[name].shape == parameter.value.shape
        wanted = differences(trained, x, dy, parameter.value)
        np.testing.assert_allclose(gradients[name], wanted, rtol=1e-6, atol=1e-7, err_msg=name)
