"""Compare a layer's gradients with central differences in float64."""

import numpy as np

from mini_dnn.nn.layer import Layer

STEP = 1e-6


def differences(layer: Layer, x: np.ndarray, dy: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """Central differences of sum(forward(x) * dy) for each element of ``changed``, which forward reads."""
    result = np.empty_like(changed)
    for i in np.ndindex(changed.shape):
        value = changed[i]
        changed[i] = value + STEP
        above = (layer.forward(x) * dy).sum()
        changed[i] = value - STEP
        below = (layer.forward(x) * dy).sum()
        changed[i] = value
        result[i] = (above - below) / (2 * STEP)
    return result


def check_gradients(layer: Layer, shape: tuple[int, ...], rtol: float = 1e-7) -> None:
    """Check the gradients of the input and of each parameter, for random values."""
    random = np.random.default_rng(7)
    x = random.standard_normal(shape)
    y = layer.forward(x, training=True)
    dy = random.standard_normal(y.shape)
    dx = layer.backward(dy)
    np.testing.assert_allclose(dx, differences(layer, x, dy, x), rtol=rtol, atol=1e-8)
    for name, parameter in layer.parameters().items():
        assert parameter.grad.shape == parameter.value.shape
        wanted = differences(layer, x, dy, parameter.value)
        np.testing.assert_allclose(parameter.grad, wanted, rtol=rtol, atol=1e-8, err_msg=name)


def check_float32(layer: Layer, shape: tuple[int, ...]) -> None:
    """Check that results and gradients of float32 are float32."""
    x = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    assert layer.forward(x).dtype == np.float32
    y = layer.forward(x, training=True)
    assert y.dtype == np.float32
    assert layer.backward(y).dtype == np.float32
    assert all(parameter.grad.dtype == np.float32 for parameter in layer.parameters().values())


def check_forward(layer: Layer, shape: tuple[int, ...]) -> None:
    """Check the shape of the output, that ``overwrite`` gives the same, and that the input stays as it is."""
    x = np.random.default_rng(7).standard_normal(shape)
    before = x.copy()
    y = layer.forward(x)
    assert y.shape == layer.output_shape(shape)
    np.testing.assert_allclose(layer.forward(x.copy(), overwrite=True), y, rtol=1e-12)
    layer.forward(x, training=True)
    layer.backward(np.ones_like(y))
    np.testing.assert_array_equal(x, before)


def taken_gradients(layer: Layer) -> dict[str, np.ndarray]:
    """The gradients of the parameters, which are NaN from then on until they are computed again."""
    found = {name: parameter.grad.copy() for name, parameter in layer.parameters().items()}
    for parameter in layer.parameters().values():
        parameter.grad = np.full_like(parameter.grad, np.nan)
    return found


def check_parameter_gradients(layer: Layer, shape: tuple[int, ...]) -> None:
    """Check that ``backward_parameters`` stores the same gradients as ``backward``, bit for bit."""
    x = np.random.default_rng(7).standard_normal(shape)
    dy = np.cos(layer.forward(x, training=True))
    layer.backward(dy)
    wanted = taken_gradients(layer)
    layer.forward(x, training=True)
    layer.backward_parameters(dy)
    for name, parameter in layer.parameters().items():
        np.testing.assert_array_equal(parameter.grad, wanted[name])
