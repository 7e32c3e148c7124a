"""Matrix products in float64: the answer of the operation ``gemm``, and the results of typical mistakes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

import numpy as np

from mini_dnn.ops.gemm_shape import GemmShape
from mini_dnn.ops.problem import Arrays
from mini_dnn.ops.products import product


def operands(p: GemmShape, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """``a (batch,m,k)`` and ``b (batch,k,n)``: views."""
    lying = [p.arrays[name].without_gap(arrays[name]) for name in "ab"]
    a, b = (x.swapaxes(1, 2) if t == "t" else x for x, t in zip(lying, p.layout, strict=True))
    return a, b


def scaled(p: GemmShape, arrays: Arrays, c: np.ndarray) -> np.ndarray:
    """``alpha c + beta c0`` in float64, where ``c (batch,m,n)`` has no gaps."""
    with np.errstate(invalid="ignore"):  # infinities of both signs
        c = c * np.float64(np.float32(p.alpha))
        return c + np.float64(np.float32(p.beta)) * p.arrays["c0"].without_gap(arrays["c0"]) if p.beta else c


def lying(p: GemmShape, c: np.ndarray, gap: float = np.nan) -> Arrays:
    """The outputs for ``c (batch,m,n)``, with the content of new memory in the gaps."""
    array = p.arrays["c"]
    if not array.gap:
        return {"c": c}
    found = np.full(array.shape, gap)
    array.without_gap(found)[...] = c
    return {"c": found}


def answer(p: GemmShape, arrays: Arrays) -> Arrays:
    """The float64 reference."""
    return lying(p, scaled(p, arrays, product(*operands(p, arrays))))


def mistakes(p: GemmShape, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Results of typical mistakes."""
    a, b = (operand.astype(np.float64) for operand in operands(p, arrays))
    with np.errstate(invalid="ignore", over="ignore"):
        for sentence, c in chain(_misread(p, arrays, a, b), _missummed(p, arrays, a, b)):
            yield sentence, lying(p, c)


def _misread(p: GemmShape, arrays: Arrays, a: np.ndarray, b: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    """Operands that are read with a wrong layout."""
    tight = replace(p, lda=0, ldb=0)
    turned = replace(tight, layout=p.layout.translate(str.maketrans("nt", "tn")))
    read_as = {"t": "row by row, but it is transposed", "n": "as if it were transposed"}
    for at, (name, letter) in enumerate(zip("ab", p.layout, strict=True)):
        has_gap = p.arrays[name].gap > 0
        other, words = (
            (tight, f"as if it had no gaps: ld{name} is left out") if has_gap else (turned, read_as[letter])
        )
        shape = other.arrays[name].shape
        memory = arrays[name].reshape(p.batch, -1)[:, : shape[1] * shape[2]].reshape(shape)
        misread = operands(other, {**arrays, name: memory})[at].astype(np.float64)
        yield f"{name} is read {words}", scaled(p, arrays, misread @ b if name == "a" else a @ misread)
    for tile in (32, 16, 8):
        size = f"{tile}x{tile}"
        words = f"each {size} tile of a is transposed: a_tile[l][row] for a_tile[row][l]"
        yield words, scaled(p, arrays, _turned(a, tile) @ b)
        words = f"each {size} tile of b is transposed: b_tile[column][l] for b_tile[l][column]"
        yield words, scaled(p, arrays, a @ _turned(b, tile))


def _turned(x: np.ndarray, tile: int) -> np.ndarray:
    """An operand with each tile transposed, and with zeros beyond its edges."""
    rows, columns = x.shape[1:]
    padded = np.pad(x, ((0, 0), (0, -rows % tile), (0, -columns % tile)))
    tiles = padded.reshape(len(x), -1, tile, padded.shape[2] // tile, tile)
    return tiles.swapaxes(2, 4).reshape(padded.shape)[:, :rows, :columns]


def _missummed(
    p: GemmShape, arrays: Arrays, a: np.ndarray, b: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Sums with too few or too many terms, and omitted factors."""
    for tile in (8, 16, 32, 64, 128):
        end = p.k // tile * tile
        if 0 < end < p.k:
            words = f"the sum ends after {end} of its {p.k} terms: the last, partial tile is left out"
            yield words, scaled(p, arrays, a[..., :end] @ b[:, :end])
    c = a @ b
    yield "no term is added: the loop over k ends before its first tile", scaled(p, arrays, np.zeros_like(c))
    if p.k > 1:
        yield "the last term of the sum is left out", scaled(p, arrays, a[..., :-1] @ b[:, :-1])
    if p.batch > 1:
        yield "entry 0 of the batch is used for all", scaled(p, arrays, np.broadcast_to(c[:1], c.shape))
        yield "entry 0 of a is used for the whole batch", scaled(p, arrays, a[:1] @ b)
        yield "entry 0 of b is used for the whole batch", scaled(p, arrays, a @ b[:1])
        words = "the sums start with those of the entry before: the accumulator is not cleared"
        yield words, scaled(p, arrays, np.cumsum(c, axis=0))
    if p.alpha != 1:
        yield "alpha is left out", scaled(replace(p, alpha=1.0), arrays, c)
    if p.beta:
        yield "beta c0 is left out", scaled(replace(p, beta=0.0), arrays, c)
        yield "c0 is added without beta", scaled(replace(p, beta=1.0), arrays, c)
        if p.alpha != 1:
            words = "alpha is a factor of the whole: alpha (a b + beta c0)"
            yield words, np.float64(np.float32(p.alpha)) * scaled(replace(p, alpha=1.0), arrays, c)
    if p.m == p.n:
        yield "c is transposed: c[n][m] for c[m][n]", scaled(p, arrays, c.swapaxes(1, 2))
