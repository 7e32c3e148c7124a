"""Linear layers of transformers: ``y = act(x w^T / deviation + bias) + residual``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import pi, sqrt

import numpy as np

from mini_dnn.nn.transformer import CUBIC, EPSILON
from mini_dnn.ops.compare import CONFIDENCE, HALF_SUBNORMAL, ROUND_OFF
from mini_dnn.ops.linear_shape import GROUP, LinearShape, arrays_of, moments
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Arrays

__all__ = ["OPERATION", "LinearShape"]

STEEPEST = 1.13  # largest slope of GELU
OFFSET = 0.5  # mean of x, so that a missing subtraction of it is visible
PATCHES, BLOCK = (32, 197), (32, 197)  # images, and tokens of each, of ViT-B/16


def draw(p: LinearShape, rng: np.random.Generator) -> Arrays:
    """Normal values, x around a mean that is not 0; NaN in the gaps, which reveals computations with them."""
    given = p.named("in", "weight")
    found = {name: rng.standard_normal(array.shape, np.float32) for name, array in given.items()}
    found["x"] += np.float32(OFFSET)
    found["w"] /= np.float32(sqrt(p.k))
    found = {name: array.astype(given[name].dtype) for name, array in found.items()}
    if p.norm:
        found["x_moments"] = moments(found["x"][..., : p.k]).astype(np.float32)
    for name, array in found.items():
        given[name].in_gap(array)[...] = np.nan
    return found


def gelu(x: np.ndarray) -> np.ndarray:
    """In its tanh form, as `mini_dnn.nn.transformer.GELU`."""
    return 0.5 * x * (1 + np.tanh(sqrt(2 / pi) * (x + CUBIC * x**3)))


def _lines(p: LinearShape, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Lines of x in float64, and the standard deviation of each, or 1."""
    x = arrays["x"][..., : p.k].astype(np.float64)
    return x, np.sqrt(x.var(axis=-1, keepdims=True) + EPSILON) if p.norm else np.ones((1, 1, 1))


def _sums(p: LinearShape, arrays: Arrays) -> np.ndarray:
    """The inputs of the activation."""
    x, deviation = _lines(p, arrays)
    found: np.ndarray = x @ arrays["w"].astype(np.float64).T / deviation + arrays["bias"]
    return found


def _finished(p: LinearShape, arrays: Arrays, sums: np.ndarray) -> Arrays:
    """The outputs for these sums."""
    y = gelu(sums) if p.act == "gelu" else sums
    if p.residual != "none":
        y = y + arrays["residual"][..., : p.n].astype(np.float64)  # (T,n) is the same for all entries
    return {"y": y, **({"y_moments": moments(y)} if p.moments else {})}


def answer(p: LinearShape, arrays: Arrays) -> Arrays:
    """The float64 reference."""
    return _finished(p, arrays, _sums(p, arrays))


def bound(p: LinearShape, arrays: Arrays, precision: str) -> Arrays:
    """The error bound for the sums, a few roundings, GELU's tanh and the rounding of y.

    Operands are halves, which are exact in every precision, so only the error of the sums remains.
    """
    operand, accumulate = ROUND_OFF[precision]
    x, deviation = _lines(p, arrays)
    absolute = np.abs(x) @ np.abs(arrays["w"].astype(np.float64)).T
    sums = _sums(p, arrays)
    off = (CONFIDENCE * np.sqrt(p.k) + 4) * accumulate * absolute / deviation
    off += 8 * accumulate * (np.abs(sums) + np.abs(arrays["bias"]))
    if p.act == "gelu":
        off = STEEPEST * off + (operand + 4 * accumulate) * np.abs(sums)
    found = _finished(p, arrays, sums)
    y = found["y"]
    if p.residual != "none":
        off += (
            4
            * accumulate
            * (np.abs(y) + np.abs(y - _finished(replace(p, residual="none"), arrays, sums)["y"]))
        )
    off += ROUND_OFF["fp16"][0] * np.abs(y) + HALF_SUBNORMAL if p.out == "fp16" else np.finfo(np.float32).tiny
    if not p.moments:
        return {"y": off}
    limits = []
    for group, at in enumerate(range(0, p.n, GROUP)):
        part, e = y[..., at : at + GROUP], off[..., at : at + GROUP]
        distance = np.abs(part - found["y_moments"][..., group, :1])
        squares = (2 * distance * e + e**2).sum(axis=-1)
        squares += 4 * GROUP * accumulate * (part**2).mean(axis=-1)
        means = e.mean(axis=-1) + 8 * accumulate * np.abs(part).mean(axis=-1)
        limits.append(np.stack([means, squares + np.finfo(np.float32).tiny], axis=-1))
    return {"y": off, "y_moments": np.stack(limits, axis=-2)}


def mistakes(p: LinearShape, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Results of typical mistakes."""
    sums = _sums(p, arrays)
    yield "the bias is left out", _finished(p, arrays, sums - arrays["bias"])
    if p.norm:
        raw = _sums(replace(p, norm=False), arrays)
        yield "sums are not divided by the deviation of their line", _finished(p, arrays, raw)
        x, _ = _lines(p, arrays)
        length = np.sqrt((x**2).mean(axis=-1, keepdims=True))
        unshifted = (raw - arrays["bias"]) / length + arrays["bias"]
        yield "the deviation is not from the mean, but from 0", _finished(p, arrays, unshifted)
    if p.act != "none":
        yield "the activation is left out", _finished(replace(p, act="none"), arrays, sums)
    if p.residual != "none":
        yield "the residual is left out", _finished(replace(p, residual="none"), arrays, sums)
    for tile in (16, 64):
        end = p.k // tile * tile
        if 0 < end < p.k:
            x, deviation = _lines(p, arrays)
            w = arrays["w"][:, :end].astype(np.float64)
            part = x[..., :end] @ w.T / deviation + arrays["bias"]
            words = f"the sum ends after {end} of its {p.k} terms: the last, partial tile is left out"
            yield words, _finished(p, arrays, part)


OPERATION = Operation(
    name="linear",
    about="linear layer in halves with bias, GELU, residual and layer norm around it",
    problem=LinearShape,
    answer=answer,
    bound=bound,
    check=(  # no tile divides them
        LinearShape(1, 1, 8, 8),
        LinearShape(3, 5, 72, 40, "gelu", "none", True),
        LinearShape(2, 37, 136, 72, "none", "full", False, True),
        LinearShape(3, 23, 200, 96, "gelu", "shared", True, True),
        LinearShape(7, 1, 21, 136, "none", "none", True, False, "fp32"),
        LinearShape(5, 1, 72, 64, "none", "full", False, True, "fp16", 264, 152),
    ),
    course={
        "patches": LinearShape(*PATCHES, 768, 768, residual="shared", moments=True),
        "qkv": LinearShape(*BLOCK, 2304, 768, norm=True),
        "out": LinearShape(*BLOCK, 768, 768, residual="full", moments=True),
        "up": LinearShape(*BLOCK, 3072, 768, "gelu", norm=True),
        "down": LinearShape(*BLOCK, 768, 3072, residual="full", moments=True),
        "head": LinearShape(32, 1, 1000, 768, norm=True, out="fp32"),
    },
    of=arrays_of,
    traits={
        "a norm": lambda p: p.norm,
        "GELU": lambda p: p.act == "gelu",
        "a residual": lambda p: p.residual != "none",
        "moments": lambda p: p.moments,
        "an output in fp32": lambda p: p.out == "fp32",
        "n that 8 does not divide": lambda p: p.n % 8 != 0,
        "k > 64 (a sum has several tiles)": lambda p: p.k > 64,
        "gaps between lines (ldx or ldr)": lambda p: p.ldx + p.ldr > 0,
    },
    draw=draw,
    mistakes=mistakes,
    axes={
        "b": "entry of the batch",
        "t": "line",
        "n": "place in y",
        "k": "place in x",
        "g": "group",
        "v": "moment",
    },
    cure="compare the sums, then what is done to them, with y = act(x w^T / deviation + bias) + residual",
    default="linear/v0_naive",
    preferred=("linear/v2_ahead", "linear/v1_tiles"),
    baseline="linear/v0_naive",
)
