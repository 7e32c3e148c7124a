"""Layers of a residual network compared with their definitions."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from residual_layers import conv, rng

from mini_dnn.nn import numpy_padded
from mini_dnn.nn.blas import _openblas
from mini_dnn.nn.layers import Conv2d, Flatten, Linear
from mini_dnn.nn.network import Network
from mini_dnn.nn.pooling import AdaptiveAvgPool2d, MaxPool2d
from mini_dnn.nn.residual import EPSILON, BasicBlock, BatchNorm2d, Row
from mini_dnn.nn.workers import both_ways


def windows(x: np.ndarray, R: int, S: int, stride: int, padding: int, fill: float) -> np.ndarray:
    """All windows of x, (P, Q, N, C, R, S), one by one."""
    around = np.pad(x, ((0, 0), (0, 0), (padding,) * 2, (padding,) * 2), constant_values=fill)
    rows = range(0, around.shape[2] - R + 1, stride)
    columns = range(0, around.shape[3] - S + 1, stride)
    return np.array([[around[:, :, h : h + R, w : w + S] for w in columns] for h in rows])


@pytest.mark.parametrize(
    ("R", "S", "stride", "padding"),
    [(3, 3, 1, 1), (3, 3, 2, 1), (1, 1, 2, 0), (7, 7, 2, 3), (2, 4, 3, 1), (3, 2, 1, 0), (5, 5, 4, 4)],
)
def test_a_convolution_is_its_definition(R: int, S: int, stride: int, padding: int) -> None:
    layer = conv(3, 4, R, S, stride=stride, padding=padding, bias=True)
    x = rng().standard_normal((2, 3, 9, 8))
    wanted = np.einsum("pqncrs,mcrs->nmpq", windows(x, R, S, stride, padding, 0), layer.weight.value)
    np.testing.assert_allclose(layer.forward(x), wanted + np.arange(4)[:, None, None], rtol=1e-12)


def test_a_batch_of_many_slices_equals_its_images() -> None:
    """Only the windows of some images are unrolled at a time."""
    layer = Conv2d(16, 4, (3, 3), rng(), padding=1)
    x = rng().standard_normal((30, 16, 20, 20)).astype(np.float32)
    y = layer.forward(x, training=True)
    dx = layer.backward(y)
    dw = np.zeros_like(layer.weight.value)
    for n in range(30):
        one = layer.forward(x[n : n + 1], training=True)
        np.testing.assert_allclose(one, y[n : n + 1], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(layer.backward(y[n : n + 1]), dx[n : n + 1], rtol=1e-4, atol=1e-4)
        dw += layer.weight.grad
    layer.forward(x, training=True)
    layer.backward(y)
    np.testing.assert_allclose(layer.weight.grad, dw, rtol=1e-3, atol=1e-2)


def test_threads_share_the_images(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are as many threads as BLAS may use."""
    layer = Conv2d(8, 8, (3, 3), rng(), stride=2, padding=1)
    x = rng().standard_normal((7, 8, 12, 12)).astype(np.float32)
    shares: list[int] = []
    unrolled = numpy_padded._unrolled

    def note(x: np.ndarray, *more: Any) -> Iterator[Any]:
        shares.append(len(x))
        return unrolled(x, *more)

    monkeypatch.setattr(numpy_padded, "_unrolled", note)
    monkeypatch.setattr(numpy_padded, "cores", lambda: 3)
    monkeypatch.setattr(numpy_padded, "MOST_ALONE", 1)
    found = []
    for told, wanted in (("1", [7]), ("", [2, 2, 3])):
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", told)
        shares.clear()
        y = layer.forward(x, training=True)
        if wanted == [7] or _openblas():
            assert sorted(shares) == wanted
        found.append((y, layer.backward(y), layer.weight.grad))
    for alone, shared in zip(*found, strict=True):
        np.testing.assert_allclose(shared, alone, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("size", "stride", "padding"), [(3, 2, 1), (2, 1, 1), (3, 1, 0), (2, 3, 0), (3, 3, 1)]
)
def test_pooling_is_its_definition(size: int, stride: int, padding: int) -> None:
    x = rng().standard_normal((2, 3, 8, 7))
    highest = windows(x, size, size, stride, padding, -np.inf).max(axis=(4, 5))
    found = MaxPool2d(size, stride=stride, padding=padding).forward(x)
    np.testing.assert_array_equal(found, highest.transpose(2, 3, 0, 1))


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_adaptive_pooling_is_its_definition(size: int) -> None:
    x = rng().standard_normal((2, 3, 7, 5))
    y = AdaptiveAvgPool2d(size).forward(x)
    for p, q in np.ndindex(size, size):
        rows, columns = (
            slice(i * length // size, -(-(i + 1) * length // size)) for i, length in ((p, 7), (q, 5))
        )
        np.testing.assert_allclose(y[:, :, p, q], x[:, :, rows, columns].mean(axis=(2, 3)), rtol=1e-12)


def test_overlapping_maxima_that_are_equal_get_a_gradient_each() -> None:
    """A pixel that is the maximum of several windows gets all their gradients.

    Of equal pixels the first gets them.
    """
    layer = MaxPool2d(3, stride=1)
    x = np.zeros((1, 1, 4, 3))
    x[0, 0, 2, 1] = 1
    dy = layer.forward(x, training=True) * np.array([[2.0], [3.0]])
    assert layer.backward(dy)[0, 0, 2, 1] == 5
    layer.forward(np.zeros((1, 1, 4, 3)), training=True)
    np.testing.assert_array_equal(layer.backward(dy)[0, 0, :, 0], [2, 3, 0, 0])


def test_batch_norm_is_its_definition_and_keeps_running_means() -> None:
    norm = BatchNorm2d(2, np.float64)
    norm.weight.value[:], norm.bias.value[:] = (1.5, -2), (0.3, 1)
    x = 10 + 3 * rng().standard_normal((4, 2, 3, 5))
    y = norm.forward(x, training=True)
    for c in range(2):
        wanted = (x[:, c] - x[:, c].mean()) / np.sqrt(x[:, c].var() + EPSILON)
        np.testing.assert_allclose(y[:, c], wanted * norm.weight.value[c] + norm.bias.value[c], rtol=1e-10)
    np.testing.assert_array_equal(norm.mean.value, 0)  # a pass alone changes nothing
    for running in (norm.mean, norm.variance):
        running.follow()
    np.testing.assert_allclose(norm.mean.value, 0.1 * x.mean(axis=(0, 2, 3)))
    unbiased = x.transpose(1, 0, 2, 3).reshape(2, -1).var(axis=1, ddof=1)
    np.testing.assert_allclose(norm.variance.value, 0.9 + 0.1 * unbiased)
    y = norm.forward(x)  # with the statistics that it keeps
    scale = norm.weight.value / np.sqrt(norm.variance.value + EPSILON)
    wanted = (x - norm.mean.value[:, None, None]) * scale[:, None, None] + norm.bias.value[:, None, None]
    np.testing.assert_allclose(y, wanted, rtol=1e-10)


def test_running_means_of_parts_are_those_of_the_batch() -> None:
    """Each part contributes in proportion to its size, so that the means are those of the whole batch."""
    x = rng().standard_normal((6, 2, 3, 3)) + 1
    labels = np.array([0, 1, 2, 0, 1, 2])
    fc = Linear(18, 3, rng(), np.float64)
    network = Network({"norm": BatchNorm2d(2, np.float64), "flat": Flatten(), "fc": fc})
    mean = network.parameters()["norm.running_mean"]
    both_ways(network, x, labels, 6)
    whole = mean.grad.copy()
    np.testing.assert_allclose(whole, -x.mean(axis=(0, 2, 3)))
    total = np.zeros(2)
    for part in (slice(0, 4), slice(4, 6)):
        both_ways(network, x[part], labels[part], 6)
        total += mean.grad
    np.testing.assert_allclose(total, whole)


def test_a_block_is_its_definition() -> None:
    block = BasicBlock(2, 3, 2, rng(), np.float64)
    assert list(block.parameters()) == [
        f"{layer}.{array}"
        for conv, norm in (("conv1", "bn1"), ("conv2", "bn2"), ("downsample.0", "downsample.1"))
        for layer, arrays in ((conv, ["weight"]), (norm, ["weight", "bias", "running_mean", "running_var"]))
        for array in arrays
    ]
    layers = block.inner()
    x = rng().standard_normal((2, 2, 5, 5))
    y = x
    for name in ("conv1", "bn1", "relu", "conv2", "bn2"):
        y = layers[name].forward(y)
    np.testing.assert_allclose(block.forward(x), np.maximum(y + layers["downsample"].forward(x), 0))
    assert repr(block) == "BasicBlock(2 -> 3, stride 2)"
    plain = BasicBlock(2, 2, 1, rng(), np.float64)
    assert "downsample" not in plain.inner()


def test_convolutions_with_padding_can_run_elsewhere() -> None:
    plain, padded = Conv2d(1, 2, (3, 3), rng()), Conv2d(2, 2, (3, 3), rng(), stride=2, padding=1, bias=True)
    network = Network({"plain": plain, "row": Row({"padded": padded})})
    assert padded.bias is not None
    padded.bias.value[:] = 7
    seen = []

    def convolve(x: np.ndarray, w: np.ndarray, stride: int, padding: int, name: str) -> np.ndarray:
        seen.append((x.shape, w.shape, stride, padding, name))
        return np.ones((1, 2, 2, 2), np.float32)

    network.convolve_padded_with(convolve)
    assert (network.forward(np.zeros((1, 1, 5, 5), np.float32)) == 8).all()  # the bias is that of the layer
    assert seen == [((1, 2, 3, 3), (2, 2, 3, 3), 2, 1, "row.padded")]
