"""Softmax and cross-entropy in one step."""

import numpy as np

from mini_dnn.errors import ShapeError


def softmax_cross_entropy(logits: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Mean of -log softmax(logits)[label], and its gradient with respect to the logits.

    Computing both together avoids a division by a small probability: the gradient is (softmax - one-hot) / N,
    and the loss is a log-sum-exp of logits shifted by their maximum.

    Parameters
    ----------
    logits
        (N, classes)
    labels
        (N,) of any integer dtype

    Returns
    -------
    loss, dlogits
        dlogits (N, classes) in the logits' dtype.

    Raises
    ------
    ShapeError
        The shapes do not match, or a label is not a class.
    """
    if logits.ndim != 2 or labels.shape != logits.shape[:1] or not np.issubdtype(labels.dtype, np.integer):
        raise ShapeError(
            "the loss takes logits (N, classes) and integer labels (N,); "
            f"found {logits.shape} and {labels.dtype} {labels.shape}"
        )
    N, classes = logits.shape
    if N == 0 or labels.min() < 0 or labels.max() >= classes:
        found = "none" if N == 0 else f"{labels.min()} to {labels.max()}"
        raise ShapeError(f"the loss takes one or more labels from 0 to {classes - 1}; found {found}")
    shifted = logits - logits.max(axis=1, keepdims=True)
    exp = np.exp(shifted)
    total = exp.sum(axis=1, keepdims=True)
    rows = np.arange(N)
    loss = float((np.log(total[:, 0]) - shifted[rows, labels]).mean())
    dlogits = exp / total
    dlogits[rows, labels] -= 1
    dlogits /= N
    return loss, dlogits
