import numpy as np
import pytest

from mini_dnn.errors import ShapeError
from mini_dnn.nn.loss import softmax_cross_entropy

LOGITS = np.random.default_rng(3).standard_normal((4, 5))
LABELS = np.array([0, 4, 2, 2], np.uint8)


def test_loss_is_the_mean_log_probability() -> None:
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    loss, _ = softmax_cross_entropy(LOGITS, LABELS)
    np.testing.assert_allclose(loss, -np.log(probabilities[np.arange(4), LABELS]).mean(), rtol=1e-14)


def test_gradient_agrees_with_central_differences() -> None:
    _, gradient = softmax_cross_entropy(LOGITS, LABELS)
    for i in np.ndindex(LOGITS.shape):
        step = np.zeros_like(LOGITS)
        step[i] = 1e-6
        above, _ = softmax_cross_entropy(LOGITS + step, LABELS)
        below, _ = softmax_cross_entropy(LOGITS - step, LABELS)
        np.testing.assert_allclose(gradient[i], (above - below) / 2e-6, rtol=1e-6, atol=1e-9)


def test_huge_logits_stay_finite() -> None:
    loss, gradient = softmax_cross_entropy(np.array([[1e4, -1e4]], np.float32), np.array([1]))
    assert loss == 2e4
    np.testing.assert_array_equal(gradient, [[1, -1]])
    assert gradient.dtype == np.float32


@pytest.mark.parametrize(
    ("logits", "labels", "message"),
    [
        (LOGITS, LABELS[:3], "found"),
        (LOGITS[0], LABELS, "found"),
        (LOGITS, LABELS.astype(float), "float64"),
        (LOGITS, LABELS + 1, "0 to 4; found 1 to 5"),
        (LOGITS, LABELS.astype(int) - 1, "found -1 to 3"),
        (LOGITS[:0], LABELS[:0], "found none"),
    ],
)
def test_what_does_not_fit_is_refused(logits: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        softmax_cross_entropy(logits, labels)
