"""The network as a whole: gradients, shape checks, memory, hooks."""

import tracemalloc

import numpy as np
import pytest
from gradients import taken_gradients

from mini_dnn.errors import ShapeError
from mini_dnn.nn.layers import Conv2d, Flatten, Linear, ReLU, Softmax
from mini_dnn.nn.loss import softmax_cross_entropy
from mini_dnn.nn.models import lenet
from mini_dnn.nn.network import LayerTime, Network
from mini_dnn.nn.numpy_conv import conv2d_forward
from mini_dnn.nn.pooling import MaxPool2d

SHAPES = {
    "conv1": (2, 4, 80, 80),
    "relu1": (2, 4, 80, 80),
    "pool1": (2, 4, 40, 40),
    "conv2": (2, 16, 34, 34),
    "relu2": (2, 16, 34, 34),
    "pool2": (2, 16, 9, 9),
    "flatten": (2, 1296),
    "fc1": (2, 32),
    "relu3": (2, 32),
    "fc2": (2, 10),
    "softmax": (2, 10),
}


def images(n: int, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(1).random((n, 1, 86, 86)).astype(dtype)


def test_gradients_of_all_of_lenet_agree_with_central_differences() -> None:
    random = np.random.default_rng(2)
    network = lenet.build(random, np.float64)
    *body, _ = network.layers.items()
    logits = Network(dict(body))
    x, labels = images(2, np.float64), np.array([3, 8])
    _, gradient = softmax_cross_entropy(logits.forward(x, training=True), labels)
    logits.backward(gradient)
    for name, parameter in network.parameters().items():
        # Along a random direction every element counts, at the price of two forward passes. The step is so
        # short because thousands of maxima and ReLUs have kinks, and crossing one changes the gradient.
        direction = random.standard_normal(parameter.value.shape)
        start, step = parameter.value.copy(), 1e-8
        losses = []
        for sign in (1, -1):
            parameter.value[...] = start + sign * step * direction
            losses.append(softmax_cross_entropy(logits.forward(x), labels)[0])
        parameter.value[...] = start
        wanted = (losses[0] - losses[1]) / (2 * step)
        np.testing.assert_allclose((parameter.grad * direction).sum(), wanted, rtol=1e-5, err_msg=name)


def test_backward_through_softmax_equals_the_fused_gradient() -> None:
    network = lenet.build(np.random.default_rng(2), np.float64)
    x, labels = images(2, np.float64), np.array([3, 8])
    p = network.forward(x, training=True)
    dp = np.zeros_like(p)
    dp[[0, 1], labels] = -1 / (2 * p[[0, 1], labels])  # of the mean of -log p
    network.backward(dp)
    wanted = taken_gradients(network)
    *body, _ = network.layers.items()
    logits = Network(dict(body))
    _, gradient = softmax_cross_entropy(logits.forward(x, training=True), labels)
    logits.backward(gradient)
    for name, parameter in network.parameters().items():
        np.testing.assert_allclose(parameter.grad, wanted[name], rtol=1e-9, atol=1e-13, err_msg=name)


def test_layers_report_names_shapes_and_times_in_order() -> None:
    times: list[LayerTime] = []
    y = lenet.build(np.random.default_rng(0)).forward(images(2), on_layer=times.append)
    assert {t.name: t.shape for t in times} == SHAPES
    assert [t.name for t in times] == list(SHAPES)
    assert all(t.ms > 0 for t in times)
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-6)


def test_parameters_have_the_names_and_sizes_of_the_course() -> None:
    network = lenet.build(np.random.default_rng(0))
    assert {name: p.value.shape for name, p in network.parameters().items()} == {
        "conv1.weight": (4, 1, 7, 7),
        "conv2.weight": (16, 4, 7, 7),
        "fc1.weight": (32, 1296),
        "fc1.bias": (32,),
        "fc2.weight": (10, 32),
        "fc2.bias": (10,),
    }
    assert network.architecture.startswith(
        "conv1 Conv2d(1 -> 4, 7x7), relu1 ReLU, pool1 MaxPool2d(2x2), conv2"
    )


def test_the_same_seed_builds_the_same_network() -> None:
    a, b, c = (lenet.build(np.random.default_rng(seed)).parameters() for seed in (1, 1, 2))
    for name in a:
        np.testing.assert_array_equal(a[name].value, b[name].value)
    assert not np.array_equal(a["conv1.weight"].value, c["conv1.weight"].value)


def test_inference_gives_what_training_gives() -> None:
    network = lenet.build(np.random.default_rng(0))
    x = images(3)
    np.testing.assert_array_equal(network.forward(x), network.forward(x, training=True))
    np.testing.assert_array_equal(network.predict(x), network.forward(x).argmax(axis=1))


@pytest.mark.parametrize(
    "network",
    [
        lenet.build(np.random.default_rng(0)),
        Network({"relu": ReLU()}),
        Network({"flatten": Flatten(), "relu": ReLU()}),  # flatten returns a view of its input
        Network({"pool": MaxPool2d(1), "relu": ReLU()}),
    ],
    ids=lambda network: network.architecture[:20],
)
def test_the_input_is_never_changed(network: Network) -> None:
    x = images(2) - 0.5
    before = x.copy()
    network.forward(x)
    np.testing.assert_array_equal(x, before)


def test_inference_holds_little_more_than_the_largest_layer() -> None:
    """Per image conv1 gives 102 kB and pool1 26 kB: 1.3 GB for 10,000 images; keeping all would need 4 GB."""
    network = lenet.build(np.random.default_rng(0))
    network.convolve_with(
        lambda x, w, name: np.ones((len(x), len(w), x.shape[2] - 6, x.shape[3] - 6), np.float32)
    )
    x = images(200)
    conv1 = 200 * 4 * 80 * 80 * 4
    tracemalloc.start()
    try:
        network.forward(x)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1.4 * conv1


def test_convolve_with_runs_each_convolution_under_its_name() -> None:
    network = lenet.build(np.random.default_rng(0))
    wanted = network.forward(images(2))
    seen = []

    def convolve(x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        seen.append((name, x.shape, w.shape))
        return conv2d_forward(x, w) * (2 if name == "conv2" else 1)

    network.convolve_with(convolve)
    y = network.forward(images(2))
    assert seen == [("conv1", (2, 1, 86, 86), (4, 1, 7, 7)), ("conv2", (2, 4, 40, 40), (16, 4, 7, 7))]
    assert not np.allclose(y, wanted)


def test_multiply_with_runs_each_linear_layer_under_its_name() -> None:
    network = lenet.build(np.random.default_rng(0))
    wanted = network.forward(images(2))
    seen = []

    def multiply(x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
        seen.append((name, x.shape, w.shape))
        return x @ w.T * (2 if name == "fc2" else 1)

    network.multiply_with(multiply)
    y = network.forward(images(2))
    assert seen == [("fc1", (2, 1296), (32, 1296)), ("fc2", (2, 32), (10, 32))]
    assert not np.allclose(y, wanted)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.zeros((2, 1, 28, 28), np.float32), r"'fc1' .*\(2, 1, 28, 28\).*\(N, 1296\), .*found \(2, 64\)"),
        (np.zeros((2, 3, 86, 86), np.float32), r"'conv1' .*\(N, 1, H, W\); found \(2, 3, 86, 86\)"),
        (np.zeros((86, 86), np.float32), r"'conv1' .*found \(86, 86\)"),
        (np.zeros((2, 1, 5, 5), np.float32), "'conv1' .*larger than the image"),
        (np.zeros((2, 1, 86, 86), np.uint8), "floating-point.*uint8.*to_float"),
        (np.zeros((0, 1, 86, 86), np.float32), "one or more"),
    ],
)
def test_an_input_that_fits_nowhere_is_refused_before_any_work(x: np.ndarray, message: str) -> None:
    network = lenet.build(np.random.default_rng(0))
    times: list[LayerTime] = []
    with pytest.raises(ShapeError, match=message):
        network.forward(x, on_layer=times.append)
    assert not times


def test_a_network_of_other_layers_trains() -> None:
    """Nothing in `Network` is specific to LeNet: two layers learn to distinguish light from dark centres."""
    random = np.random.default_rng(4)
    network = Network({"conv": Conv2d(1, 2, (2, 2), random), "flat": Flatten(), "fc": Linear(8, 2, random)})
    x = random.random((64, 1, 3, 3)).astype(np.float32)
    labels = (x[:, 0, 1, 1] > 0.5).astype(np.uint8)
    losses = []
    for _ in range(200):
        loss, gradient = softmax_cross_entropy(network.forward(x, training=True), labels)
        network.backward(gradient)
        for parameter in network.parameters().values():
            parameter.value -= 1.0 * parameter.grad
        losses.append(loss)
    assert losses[-1] < 0.5 * losses[0]
    assert Softmax().forward(network.forward(x)).shape == (64, 2)
