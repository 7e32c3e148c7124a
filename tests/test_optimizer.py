import numpy as np
import pytest

from mini_dnn.nn.layers import Parameter
from mini_dnn.nn.optimizer import Adam, Muon, OneCycle

VALUE = np.array([1.0, -2.0, 3.0])
GRADIENTS = np.random.default_rng(5).standard_normal((6, 3))


def parameter(dtype: type = np.float64) -> Parameter:
    return Parameter(VALUE.astype(dtype), np.zeros(3, dtype))


def test_adam_follows_the_paper() -> None:
    p = parameter()
    optimizer = Adam({"p": p}, beta1=0.7, beta2=0.95, epsilon=1e-3)
    wanted, m, v = VALUE.copy(), 0.0, 0.0
    for t, g in enumerate(GRADIENTS, start=1):
        p.grad = g
        optimizer.step(0.01 * t)
        m = 0.7 * m + 0.3 * g
        v = 0.95 * v + 0.05 * g * g
        wanted -= 0.01 * t * (m / (1 - 0.7**t)) / (np.sqrt(v / (1 - 0.95**t)) + 1e-3)
        np.testing.assert_allclose(p.value, wanted, rtol=1e-12)


def test_weights_decay_apart_from_their_gradient_and_arrays_of_one_axis_do_not() -> None:
    """As in AdamW, the weight is decayed first, and Adam's step depends on the gradient alone."""
    gradient = GRADIENTS[:2]
    pairs = {"weight": Parameter(gradient + 1, gradient), "bias": Parameter(VALUE.copy(), GRADIENTS[3])}
    plain = {name: Parameter(p.value.copy(), p.grad) for name, p in pairs.items()}
    Adam(pairs, decay=0.3).step(0.1)
    Adam(plain).step(0.1)
    moved = plain["weight"].value - (gradient + 1)
    np.testing.assert_allclose(pairs["weight"].value, (gradient + 1) * (1 - 0.1 * 0.3) + moved)
    np.testing.assert_array_equal(pairs["bias"].value, plain["bias"].value)


def muon(pairs: dict[str, Parameter]) -> Muon:
    return Muon(pairs, ["wide", "tall", "qkv.weight"])


def test_steps_of_muon_have_singular_values_near_one_and_adams_length() -> None:
    random = np.random.default_rng(1)
    shapes = {"wide": (6, 9), "tall": (12, 5), "qkv.weight": (12, 4), "bias": (3,)}
    pairs = {name: Parameter(np.zeros(s), random.standard_normal(s)) for name, s in shapes.items()}
    muon(pairs).step(0.1)
    for name, pieces in (("wide", 1), ("tall", 1), ("qkv.weight", 3)):
        for step in np.split(pairs[name].value, pieces):
            values = np.linalg.svd(step, compute_uv=False) / (0.1 * 0.2 * max(step.shape) ** 0.5)
            assert 0.6 < values.min() <= values.max() < 1.3
    left, _, right = np.linalg.svd(pairs["wide"].grad, full_matrices=False)
    wanted = -0.1 * 0.2 * 3 * left @ right  # approximately the nearest orthogonal matrix
    assert (pairs["wide"].value * wanted).sum() > 0.95 * np.sqrt(
        (pairs["wide"].value ** 2).sum() * (wanted**2).sum()
    )
    np.testing.assert_allclose(pairs["bias"].value, -0.1 * np.sign(pairs["bias"].grad), rtol=1e-6)


def test_filling_muons_state_continues_bit_for_bit() -> None:
    random = np.random.default_rng(2)
    pairs = {"wide": Parameter(np.zeros((2, 3)), np.zeros((2, 3))), "bias": Parameter(VALUE.copy(), VALUE)}
    others = {name: Parameter(p.value.copy(), p.grad) for name, p in pairs.items()}
    one, two = Muon(pairs, ["wide"], decay=0.1), Muon(others, ["wide"], decay=0.1)
    for step in range(4):
        for name, p in pairs.items():
            p.grad = others[name].grad = random.standard_normal(p.value.shape)
        one.step(0.1)
        if step >= 2:
            two.step(0.1)
        else:  # as if it were saved and restored
            for name, array in two.state().items():
                array[...] = one.state()[name]
            for name, p in others.items():
                p.value[...] = pairs[name].value
    for name, p in pairs.items():
        np.testing.assert_array_equal(p.value, others[name].value)


def test_steps_work_in_place_and_in_the_dtype_of_the_parameter() -> None:
    p = parameter(np.float32)
    array = p.value
    optimizer = Adam({"p": p})
    p.grad = np.ones(3, np.float32)
    optimizer.step(0.1)
    assert p.value is array
    assert array.dtype == np.float32
    assert (array < VALUE).all()


def test_filling_the_state_continues_bit_for_bit() -> None:
    p = parameter()
    optimizer = Adam({"p": p})
    for gradient in GRADIENTS[:3]:
        p.grad = gradient
        optimizer.step(0.1)
    q = Parameter(p.value.copy(), p.grad)
    other = Adam({"p": q})
    for name, array in other.state().items():
        array[...] = optimizer.state()[name]
    for gradient in GRADIENTS[3:]:
        p.grad = q.grad = gradient
        optimizer.step(0.1)
        other.step(0.1)
    np.testing.assert_array_equal(p.value, q.value)


def test_one_cycle_rises_to_its_peak_and_falls_to_almost_nothing() -> None:
    cycle = OneCycle(peak=2.0, steps=101)
    rates = [cycle.rate(step) for step in range(101)]
    assert rates[0] == pytest.approx(2 / 25)
    assert rates[30] == pytest.approx(2)
    assert rates[100] == pytest.approx(2e-5)
    assert (np.diff(rates[:31]) > 0).all()
    assert (np.diff(rates[30:]) < 0).all()


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_one_cycle_of_few_steps(steps: int) -> None:
    cycle = OneCycle(peak=1.0, steps=steps)
    assert all(0 < cycle.rate(step) <= 1 for step in range(steps))
