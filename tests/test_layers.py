"""Each layer compared with its definition, and its gradients with central differences in float64."""

import numpy as np
import pytest
from gradients import check_float32, check_forward, check_gradients, check_parameter_gradients

from mini_dnn.errors import MiniDnnError, ShapeError
from mini_dnn.nn.layers import Conv2d, Flatten, Layer, Linear, Parameter, ReLU, Softmax
from mini_dnn.nn.pooling import MaxPool2d


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


CASES = {
    "conv": (Conv2d(2, 3, (3, 2), rng(), np.float64), (2, 2, 5, 4)),
    "conv to one pixel": (Conv2d(1, 2, (4, 3), rng(), np.float64), (3, 1, 4, 3)),
    "relu": (ReLU(), (3, 4, 5)),
    "pool 2": (MaxPool2d(2), (2, 3, 4, 6)),
    "pool 2, floor": (MaxPool2d(2), (2, 1, 5, 7)),
    "pool 4, ceil": (MaxPool2d(4, ceil_mode=True), (1, 2, 6, 9)),
    "pool 3, ceil, smaller than a window": (MaxPool2d(3, ceil_mode=True), (2, 2, 2, 1)),
    "flatten": (Flatten(), (2, 3, 2, 2)),
    "linear": (Linear(5, 3, rng(), np.float64), (4, 5)),
    "softmax": (Softmax(), (3, 6)),
}
cases = pytest.mark.parametrize(("layer", "shape"), CASES.values(), ids=CASES.keys())


@cases
def test_gradients_agree_with_central_differences(layer: Layer, shape: tuple[int, ...]) -> None:
    check_gradients(layer, shape)


@cases
def test_backward_parameters_gives_the_same_parameter_gradients(layer: Layer, shape: tuple[int, ...]) -> None:
    check_parameter_gradients(layer, shape)


@cases
def test_shapes_types_and_what_a_forward_pass_leaves_alone(layer: Layer, shape: tuple[int, ...]) -> None:
    check_forward(layer, shape)
    if not layer.parameters():
        check_float32(layer, shape)


def test_a_method_that_a_layer_lacks_is_named() -> None:
    class Half(Layer):
        def output_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
            return shape

    with pytest.raises(NotImplementedError, match=r"Half has no method forward\(x, training=False"):
        Half().forward(np.zeros(3))


def test_a_layer_of_ones_own_is_trained_as_the_first_of_a_network() -> None:
    class Scale(Layer):
        def __init__(self) -> None:
            self.factor = Parameter.of(np.ones(1))

        def backward(self, dy: np.ndarray) -> np.ndarray:
            self.factor.grad[:] = dy.sum()
            return dy

    layer = Scale()
    layer.backward_parameters(np.full(3, 2.0))
    assert layer.factor.grad == 6


@cases
def test_backward_needs_a_forward_pass_of_its_own(layer: Layer, shape: tuple[int, ...]) -> None:
    dy = layer.forward(rng().standard_normal(shape), training=True)
    layer.backward(dy)
    with pytest.raises(MiniDnnError, match=r"training=True"):
        layer.backward(dy)


def test_relu_overwrites_only_when_told() -> None:
    x = np.array([[-1.0, 0.0, 2.0]])
    assert ReLU().forward(x, overwrite=True) is x
    np.testing.assert_array_equal(x, [[0, 0, 2]])


def pooled(x: np.ndarray, k: int, P: int, Q: int) -> np.ndarray:
    """Max-pooling by its definition, window by window."""
    windows = [[x[:, :, p * k : p * k + k, q * k : q * k + k] for q in range(Q)] for p in range(P)]
    return np.array([[w.max(axis=(2, 3)) for w in row] for row in windows]).transpose(2, 3, 0, 1)


@pytest.mark.parametrize(("H", "W"), [(4, 4), (34, 34), (7, 5), (1, 9), (3, 2)])
@pytest.mark.parametrize("k", [1, 2, 4])
@pytest.mark.parametrize("ceil_mode", [False, True])
def test_pooling_is_the_maximum_of_each_window(H: int, W: int, k: int, ceil_mode: bool) -> None:
    layer = MaxPool2d(k, ceil_mode)
    x = rng().standard_normal((3, 2, H, W)).astype(np.float32)
    if not ceil_mode and min(H, W) < k:
        with pytest.raises(ShapeError, match=f"{k}x{k}"):
            layer.forward(x)
        return
    P, Q = (-(-H // k), -(-W // k)) if ceil_mode else (H // k, W // k)
    y = layer.forward(x)
    assert y.shape == (3, 2, P, Q)
    np.testing.assert_array_equal(y, pooled(x, k, P, Q))


def test_pooling_a_batch_of_many_slices_equals_pooling_each_image() -> None:
    layer = MaxPool2d(2)
    x = rng().standard_normal((200, 4, 80, 80)).astype(np.float32)  # about 20 MB, 20 slices
    y = layer.forward(x, training=True)
    dx = layer.backward(y)
    for n in (0, 9, 10, 11, 199):
        np.testing.assert_array_equal(y[n : n + 1], layer.forward(x[n : n + 1], training=True))
        np.testing.assert_array_equal(dx[n : n + 1], layer.backward(y[n : n + 1]))


def test_pooling_gives_the_gradient_to_one_of_equal_maxima() -> None:
    layer = MaxPool2d(2, ceil_mode=True)
    x = np.ones((1, 1, 3, 3))
    dy = layer.forward(x, training=True) * np.array([[1.0, 2.0], [3.0, 4.0]])
    dx = layer.backward(dy)
    assert np.count_nonzero(dx) == 4
    for p, q in np.ndindex(2, 2):
        assert dx[0, 0, 2 * p : 2 * p + 2, 2 * q : 2 * q + 2].sum() == dy[0, 0, p, q]


@pytest.mark.parametrize("layer", [ReLU(), MaxPool2d(2), Softmax()], ids=repr)
def test_nan_is_not_hidden(layer: Layer) -> None:
    x = np.zeros((1, 1, 2, 2)) if isinstance(layer, MaxPool2d) else np.zeros((1, 4))
    x[..., -1] = np.nan
    assert np.isnan(layer.forward(x)).any()


def test_softmax_takes_logits_of_any_size() -> None:
    y = Softmax().forward(np.array([[1000.0, 0.0, -1000.0], [-1000.0, -1000.0, -1001.0]]))
    np.testing.assert_allclose(y.sum(axis=1), 1)
    np.testing.assert_allclose(y[0], [1, 0, 0])
    np.testing.assert_allclose(y[1, 0] / y[1, 2], np.e)


def test_conv_calls_its_hook_in_the_forward_pass() -> None:
    layer = Conv2d(1, 2, (3, 3), rng())
    layer.convolve = lambda x, w: np.full((len(x), len(w), 2, 2), 5, np.float32)
    assert (layer.forward(np.zeros((1, 1, 4, 4), np.float32)) == 5).all()


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Conv2d(2, 3, (3, 2), rng()), (2, 5, 4), r"\(N, 2, H, W\); found \(2, 5, 4\)"),
        (Conv2d(2, 3, (3, 2), rng()), (1, 3, 5, 4), r"Conv2d\(2 -> 3, 3x2\) takes"),
        (Conv2d(2, 3, (3, 2), rng()), (1, 2, 2, 4), "filter 3 x 2 is larger than the image 2 x 4"),
        (Linear(5, 3, rng()), (4, 6), r"\(N, 5\), or more axes before the last; found \(4, 6\)"),
        (Softmax(), (2, 3, 4), r"\(N, classes\); found"),
        (Flatten(), (3,), "two or more axes"),
        (MaxPool2d(2), (3, 4), r"\(N, C, H, W\)"),
    ],
)
def test_a_wrong_input_is_refused_with_both_shapes(
    layer: Layer, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        layer.forward(np.zeros(shape))


def test_initial_weights_follow_he() -> None:
    conv, linear = Conv2d(16, 32, (7, 7), rng()), Linear(1296, 100, rng())
    assert conv.weight.value.dtype == np.float32
    np.testing.assert_allclose(conv.weight.value.var(), 2 / (16 * 49), rtol=0.05)
    np.testing.assert_allclose(linear.weight.value.var(), 2 / 1296, rtol=0.05)
    assert not linear.bias.value.any()
