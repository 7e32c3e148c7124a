"""Layers of a transformer: their definitions, and gradients against central differences."""

from math import erf, pi, sqrt, tanh

import numpy as np
import pytest
from gradients import check_float32, check_forward, check_gradients, check_parameter_gradients

from mini_dnn.errors import MiniDnnError, ShapeError
from mini_dnn.nn.layer import Layer, walk
from mini_dnn.nn.layers import Flatten, Linear
from mini_dnn.nn.numpy_attention import attention_forward
from mini_dnn.nn.tokens import ClassToken, PatchEmbedding, Positions
from mini_dnn.nn.transformer import EPSILON, GELU, LayerNorm, MultiHeadAttention, Residual


def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def branch() -> Residual:
    """A residual branch as in a block, with a norm that is not the identity."""
    norm = LayerNorm(4, np.float64)
    norm.weight.value[:], norm.bias.value[:] = (1.5, 0.5, -1, 2), (0.1, 0, -0.3, 1)
    up, down = (Linear(*sizes, rng(), np.float64, gain=1) for sizes in ((4, 6), (6, 4)))
    return Residual({"norm": norm, "up": up, "gelu": GELU(), "down": down})


CASES = {
    "norm": (LayerNorm(5, np.float64), (3, 5)),
    "norm of tokens": (LayerNorm(4, np.float64), (2, 3, 4)),
    "gelu": (GELU(), (4, 9)),
    "patches": (PatchEmbedding(2, 2, 3, rng(), np.float64), (2, 2, 4, 6)),
    "positions": (Positions(4, 4, rng(), np.float64), (2, 3, 4)),
    "positions of a square": (Positions(5, 4, rng(), np.float64), (2, 4, 4)),
    "class token": (ClassToken(), (2, 3, 4)),
    "linear of tokens": (Linear(3, 2, rng(), np.float64), (2, 4, 3)),
    "attention": (MultiHeadAttention(6, 2, rng(), np.float64), (2, 5, 6)),
    "attention of one token": (MultiHeadAttention(4, 1, rng(), np.float64), (2, 1, 4)),
    "residual": (branch(), (2, 3, 4)),
}
cases = pytest.mark.parametrize(("layer", "shape"), CASES.values(), ids=CASES.keys())


@cases
def test_gradients_agree_with_central_differences(layer: Layer, shape: tuple[int, ...]) -> None:
    check_gradients(layer, shape, rtol=1e-6)


@cases
def test_shapes_and_what_a_forward_pass_leaves_alone(layer: Layer, shape: tuple[int, ...]) -> None:
    check_forward(layer, shape)
    x = rng().standard_normal(shape)
    np.testing.assert_allclose(layer.forward(x, training=True), layer.forward(x), rtol=1e-12)


@cases
def test_backward_parameters_gives_the_same_gradients(layer: Layer, shape: tuple[int, ...]) -> None:
    check_parameter_gradients(layer, shape)


@pytest.mark.parametrize("layer", [LayerNorm(8), GELU(), MultiHeadAttention(8, 2, rng())])
def test_float32_stays_float32(layer: Layer) -> None:
    check_float32(layer, (2, 3, 8))


@pytest.mark.parametrize("layer", [LayerNorm(8), GELU(), MultiHeadAttention(8, 2, rng())])
def test_backward_needs_a_forward_pass_of_its_own(layer: Layer) -> None:
    dy = layer.forward(rng().standard_normal((2, 3, 8)).astype(np.float32))
    with pytest.raises(MiniDnnError, match="training=True"):
        layer.backward(dy)


def test_layer_norm_is_its_definition() -> None:
    x = 100 + 3 * rng().standard_normal((4, 6))
    norm = LayerNorm(6, np.float64)
    norm.weight.value[:], norm.bias.value[:] = np.arange(6), 0.5
    for line, found in zip(x, norm.forward(x), strict=True):
        wanted = (line - line.mean()) / sqrt(line.var() + EPSILON) * np.arange(6) + 0.5
        np.testing.assert_allclose(found, wanted, rtol=1e-10)


def test_gelu_is_its_tanh_form_and_close_to_the_other() -> None:
    x = np.linspace(-6, 6, 241)
    y = GELU().forward(x)
    np.testing.assert_allclose(
        y, [0.5 * v * (1 + tanh(sqrt(2 / pi) * (v + 0.044715 * v**3))) for v in x], rtol=1e-12, atol=1e-15
    )
    assert 1e-4 < max(abs(y - [0.5 * v * (1 + erf(v / sqrt(2))) for v in x])) < 5e-4


def test_a_patch_embedding_is_a_convolution_with_a_stride() -> None:
    layer = PatchEmbedding(2, 3, 4, rng(), np.float64)
    layer.linear.bias.value[:] = (1, 2, 3, 4)
    x = rng().standard_normal((2, 2, 6, 9))
    y = layer.forward(x)
    assert y.shape == (2, 6, 4)
    weight = layer.linear.weight.value.reshape(4, 2, 3, 3)
    for row, column in np.ndindex(2, 3):
        patch = x[:, :, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
        wanted = np.einsum("ncrs,mcrs->nm", patch, weight) + np.arange(1, 5)
        np.testing.assert_allclose(y[:, 3 * row + column], wanted)


def test_attention_is_its_definition_head_by_head() -> None:
    qkv = rng().standard_normal((2, 7, 3, 3, 4))
    qkv[1] *= 30  # steep: exp of such products overflows in fp32
    o, p = attention_forward(qkv.astype(np.float32), 0.5)
    for n, h in np.ndindex(2, 3):
        q, k, v = (qkv[n, :, part, h].astype(np.float32).astype(np.float64) for part in range(3))
        scores = 0.5 * q @ k.T
        powers = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares = powers / powers.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(p[n, h], shares, atol=2e-4)
        np.testing.assert_allclose(o[n, :, h], shares @ v, atol=2e-2 if n else 1e-5)


def test_the_attention_of_a_layer_can_run_elsewhere() -> None:
    layer = MultiHeadAttention(6, 2, rng())
    x = rng().standard_normal((2, 5, 6)).astype(np.float32)
    right = layer.forward(x)
    seen = []

    def attend(qkv: np.ndarray, scale: float) -> np.ndarray:
        seen.append((qkv.shape, scale))
        return attention_forward(qkv, scale)[0]

    layer.attend = attend
    np.testing.assert_array_equal(layer.forward(x), right)
    assert seen == [((2, 5, 3, 2, 3), 1 / sqrt(3))]
    layer.forward(x, training=True)
    assert len(seen) == 1  # the backward pass needs more than the output


def test_positions_and_the_class_token() -> None:
    layer = Positions(10, 8, rng(), np.float64)
    y = layer.forward(np.zeros((1, 9, 8)))
    assert len(np.unique(y[0, 1:].round(6), axis=0)) == 9  # each patch has a different position
    row, column = y[0, 1:].reshape(3, 3, 2, 4).swapaxes(0, 2)
    assert (np.ptp(row, axis=0) == 0).all()
    assert (np.ptp(column, axis=1) == 0).all()
    np.testing.assert_allclose(y[0, 0], layer.class_token.value + layer.position.value[0])
    np.testing.assert_array_equal(y[0, 1:], layer.position.value[1:])
    assert list(layer.parameters()) == ["class", "position"]
    np.testing.assert_array_equal(ClassToken().forward(y), y[:, 0])


def test_a_layer_made_of_layers_has_their_parameters() -> None:
    layer = Residual({"norm": LayerNorm(4), "heads": MultiHeadAttention(4, 2, rng())})
    names = ["norm.weight", "norm.bias", "heads.qkv.weight", "heads.qkv.bias", "heads.out.weight"]
    assert list(layer.parameters()) == [*names, "heads.out.bias"]
    found = [name for name, _ in walk({"attention1": layer})]
    heads = "attention1.heads"
    assert found == ["attention1", "attention1.norm", heads, f"{heads}.qkv", f"{heads}.out"]


def test_a_residual_branch_of_a_view_leaves_its_input_alone() -> None:
    """Flatten returns x itself here, so the next layer must not write to it."""
    x = rng().standard_normal((2, 4))
    before = x.copy()
    layer = Residual({"flat": Flatten(), "gelu": GELU()})
    np.testing.assert_allclose(layer.forward(x), before + GELU().forward(before))
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (PatchEmbedding(1, 4, 8, rng()), (2, 1, 28, 30), "multiples of 4; found"),
        (PatchEmbedding(1, 4, 8, rng()), (2, 3, 28, 28), r"takes \(N, 1, H, W\)"),
        (Positions(5, 8, rng()), (2, 5, 8), r"takes \(N, 4, 8\); found \(2, 5, 8\)"),
        (ClassToken(), (2, 8), r"takes \(N, T, D\); found \(2, 8\)"),
        (LayerNorm(8), (2, 9), r"LayerNorm\(8\) takes \(N, 8\)"),
        (MultiHeadAttention(8, 2, rng()), (2, 3, 9), r"takes \(N, T, 8\)"),
        (Residual({"fc": Linear(8, 9, rng())}), (2, 8), r"but makes \(2, 9\) of \(2, 8\)"),
    ],
)
def test_a_wrong_input_is_refused_with_both_shapes(
    layer: Layer, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(ShapeError, match=message):
        layer.forward(np.zeros(shape)) if not isinstance(layer, Residual) else layer.output_shape(shape)


def test_heads_share_the_width() -> None:
    with pytest.raises(ShapeError, match="3 heads cannot share a width of 8"):
        MultiHeadAttention(8, 3, rng())
