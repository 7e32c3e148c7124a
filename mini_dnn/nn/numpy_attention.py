"""Attention in NumPy, forward and backward: ``o = softmax(scale q kᵀ) v`` for each head of each entry.

Queries, keys and values are the parts of one array (B, T, 3, H, d), which one linear layer computes from the
tokens. Heads are views of it: BLAS accepts lines that are not contiguous, so nothing is permuted in memory.

Source: A. Vaswani et al., "Attention Is All You Need", arXiv:1706.03762, section 3.2.
"""

from __future__ import annotations

import numpy as np


def attention_forward(qkv: np.ndarray, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Compute means of values, weighted by how well their keys match a query.

    Parameters
    ----------
    qkv
        (B, T, 3, H, d): queries, keys and values.
    scale
        The factor for the products of queries and keys.

    Returns
    -------
    o, p
        The means of values (B, T, H, d), and the weights (B, H, T, T) that `attention_backward` needs.
    """
    q, k, v = _heads(qkv)
    p = q @ k.swapaxes(2, 3)
    p *= qkv.dtype.type(scale)
    p -= p.max(axis=3, keepdims=True)  # so that no exponential overflows
    np.exp(p, out=p)
    p /= p.sum(axis=3, keepdims=True)
    B, T, _, H, d = qkv.shape
    o = np.empty((B, T, H, d), qkv.dtype)
    np.matmul(p, v, out=o.swapaxes(1, 2))
    return o, p


def attention_backward(
    qkv: np.ndarray, o: np.ndarray, p: np.ndarray, do: np.ndarray, scale: float
) -> np.ndarray:
    """Return the gradient of the loss with respect to ``qkv`` (B, T, 3, H, d), given that for ``o``.

    Parameters
    ----------
    qkv, scale
        The arguments of `attention_forward`.
    o, p
        The results of `attention_forward`.
    do
        (B, T, H, d)
    """
    q, k, v = _heads(qkv)
    dqkv = np.empty_like(qkv)
    dq, dk, dv = _heads(dqkv)
    heads = do.swapaxes(1, 2)
    np.matmul(p.swapaxes(2, 3), heads, out=dv)
    ds = heads @ v.swapaxes(2, 3)
    # The softmax's Jacobian subtracts a row's sum of dp p. As o = p v, it equals that of do o, which is
    # shorter.
    ds -= np.einsum("bthd,bthd->bht", do, o)[..., None]
    ds *= p
    ds *= qkv.dtype.type(scale)
    np.matmul(ds, k, out=dq)
    np.matmul(ds.swapaxes(2, 3), q, out=dk)
    return dqkv


def _heads(qkv: np.ndarray) -> list[np.ndarray]:
    """Views (B, H, T, d) of the three parts."""
    return [qkv[:, :, part].swapaxes(1, 2) for part in range(3)]
