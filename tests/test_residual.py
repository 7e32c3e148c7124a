"""Layers of a residual network: gradients against central differences, and inputs that are refused."""

from collections.abc import Callable

import numpy as np
import pytest
from gradients import check_float32, check_forward, check_parameter_gradients, differences
from residual_layers import conv, rng

from mini_dnn.errors import MiniDnnError, ShapeError
from mini_dnn.nn.layer import Layer, Running
from mini_dnn.nn.layers import Conv2d, Flatten, ReLU
from mini_dnn.nn.pooling import AdaptiveAvgPool2d, MaxPool2d
from mini_dnn.nn.residual import BasicBlock, BatchNorm2d, Row


class Trained(Layer):
    """A layer that is always in training mode, which the central differences of a batch norm need."""

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
    "conv, one channel without padding": (conv(1, 2, 3, 3, stride=2), (2, 1, 7, 5)),
    "conv, one channel of the output": (conv(2, 1, 3, 3, padding=2), (2, 2, 4, 5)),
    "conv, bias": (conv(2, 2, 3, 2, bias=True), (2, 2, 4, 4)),
    "conv, all": (conv(2, 2, 3, 4, stride=2, padding=2, bias=True), (2, 2, 5, 4)),
    "conv 7, as in the stem": (conv(1, 2, 7, 7, stride=2, padding=3), (1, 1, 8, 7)),
    "norm": (BatchNorm2d(3, np.float64), (2, 3, 2, 3)),
    "norm of one pixel": (BatchNorm2d(2, np.float64), (4, 2, 1, 1)),
    "max pool": (MaxPool2d(3, stride=2, padding=1), (2, 2, 6, 5)),
    "max pool, apart": (MaxPool2d(2, stride=3), (1, 2, 6, 8)),
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


@cases
def test_shapes_and_what_a_forward_pass_leaves_alone(layer: Layer, shape: tuple[int, ...]) -> None:
    check_forward(layer, shape)
    x = rng().standard_normal(shape)
    y = layer.forward(np.asfortranarray(x))  # the layout does not matter
    np.testing.assert_allclose(layer.forward(x), y, rtol=1e-12)
    with pytest.raises(MiniDnnError, match="training=True"):
        layer.backward(np.ones_like(y))


@cases
def test_backward_parameters_gives_the_same_gradients(layer: Layer, shape: tuple[int, ...]) -> None:
    check_parameter_gradients(layer, shape)


@pytest.mark.parametrize(
    "layer",
    [
        Conv2d(4, 3, (3, 3), rng(), stride=2, padding=1, bias=True),
        BatchNorm2d(4),
        MaxPool2d(3, stride=2, padding=1),
        AdaptiveAvgPool2d(2),
        BasicBlock(4, 6, 2, rng()),
    ],
    ids=repr,
)
def test_float32_stays_float32(layer: Layer) -> None:
    check_float32(layer, (2, 4, 6, 5))


@pytest.mark.parametrize("layer", [MaxPool2d(3, stride=2, padding=1), AdaptiveAvgPool2d(1)])
def test_nan_is_not_hidden(layer: Layer) -> None:
    x = np.zeros((1, 1, 4, 4))
    x[..., 1, 1] = np.nan
    assert np.isnan(layer.forward(x)).any()


def test_a_row_gives_away_what_is_its_own() -> None:
    x = rng().standard_normal((2, 3))
    before = x.copy()
    row = Row({"flat": Flatten(), "relu": ReLU()})  # the first layer returns x itself
    np.testing.assert_array_equal(row.forward(x), np.maximum(before, 0))
    np.testing.assert_array_equal(x, before)
    assert row.forward(x, overwrite=True) is not None
    np.testing.assert_array_equal(x, np.maximum(before, 0))


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (conv(2, 3, 3, 3, padding=1), (1, 3, 4, 4), r"padding 1\) takes \(N, 2, H, W\)"),
        (
            conv(2, 3, 5, 5, padding=1),
            (1, 2, 2, 4),
            "5 x 5 is larger than the image 2 x 4 with its padding of 1",
        ),
        (BatchNorm2d(3), (1, 2, 4, 4), r"BatchNorm2d\(3\) takes \(N, 3, H, W\)"),
        (MaxPool2d(3, stride=2), (1, 2, 2, 4), "H and W >= 3"),
        (AdaptiveAvgPool2d(2), (1, 2, 4), r"\(N, C, H, W\); found \(1, 2, 4\)"),
        (BasicBlock(2, 3, 1, rng()), (1, 3, 4, 4), r"takes \(N, 2, H, W\)"),
    ],
    ids=lambda value: repr(value) if isinstance(value, Layer) else None,
)
def test_a_wrong_input_is_refused_with_both_shapes(
    layer: Layer, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        layer.forward(np.zeros(shape))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: conv(1, 1, 3, 3, padding=3),
            "padding less than its filter's sides; found stride 1, padding 3",
        ),
        (lambda: conv(1, 1, 3, 3, stride=0), "stride of 1 or more"),
        (lambda: MaxPool2d(2, padding=2), "at most half the size"),
        (lambda: MaxPool2d(2, ceil_mode=True, stride=1), "no ceil mode with a stride"),
        (lambda: MaxPool2d(2, stride=0), "a stride of 1 or more"),
        (lambda: AdaptiveAvgPool2d(0), "1 row or more"),
    ],
)
def test_a_layer_that_makes_no_sense_is_refused(make: Callable[[], Layer], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        make()
