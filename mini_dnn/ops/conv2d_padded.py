"""Convolution with stride and padding, and what follows it: ``y = relu(conv(x, w) + bias + residual)``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from math import sqrt

import numpy as np

from mini_dnn.ops.compare import CONFIDENCE, HALF_SUBNORMAL, HALVES, ROUND_OFF, compare_all
from mini_dnn.ops.conv2d_padded_numpy import as_given, convolve, finished, mistaken_sums, operands
from mini_dnn.ops.conv2d_padded_shape import PaddedShape, arrays_of, layers
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import TYPES, Arrays
from mini_dnn.ops.products import magnitudes, product_of_tf32, product_summed_in_half

__all__ = ["OPERATION", "PaddedShape", "layers"]

COURSE_BATCH = 64
OFFSET = 0.5  # mean of x, so that wrong padding values are visible
FEW = 4  # products in a sum, so that the rounding of operands is visible
LONG = PaddedShape(1, 80, 9, 9, 4, 3, 1, 1, dtype="fp16", layout="nhwc")  # a sum has up to 720 products


def draw(p: PaddedShape, rng: np.random.Generator) -> Arrays:
    """Normal values, x around a mean that is not 0, filters so that sums are about as large as x."""
    given = p.named("in", "weight")
    found = {name: rng.standard_normal(array.shape, np.float32) for name, array in given.items()}
    found["x"] += np.float32(OFFSET)
    found["w"] /= np.float32(sqrt(p.taps))
    return {name: array.astype(given[name].dtype, copy=False) for name, array in found.items()}


def answer(p: PaddedShape, arrays: Arrays) -> Arrays:
    """The float64 reference."""
    return finished(p, arrays, convolve(*operands(p, arrays), p.stride, p.padding))


def bound(p: PaddedShape, arrays: Arrays, precision: str) -> Arrays:
    """The error bound for the sums, two additions and the rounding of y.

    Halves are exact operands in every precision; operands of fp32 problems are rounded below fp32. ReLU does
    not increase an error.
    """
    operand, accumulate = ROUND_OFF[precision]
    x, w = (magnitudes(a) for a in operands(p, arrays))
    absolute = convolve(x, w, p.stride, p.padding)
    off = (CONFIDENCE * np.sqrt(p.taps) + 4) * accumulate * absolute
    if p.dtype == "fp32":
        off += 2 * operand * absolute
        if precision in HALVES:
            off += HALF_SUBNORMAL * p.taps * (x.max(initial=0) + w.max(initial=0))
    given = {name: magnitudes(array) for name, array in arrays.items()}
    largest = finished(replace(p, relu=False), given, absolute)["y"]  # of all added values
    off = as_given(p, off) + 4 * accumulate * largest
    if p.dtype == "fp16" or precision in HALVES:
        off += ROUND_OFF["fp16"][0] * (magnitudes(answer(p, arrays)["y"]) + off) + HALF_SUBNORMAL
    return {"y": off + np.finfo(np.float32).tiny}


def mistakes(p: PaddedShape, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Results of typical mistakes."""
    x, w = operands(p, arrays)
    sums = convolve(x, w, p.stride, p.padding)
    unbiased = {**arrays, "bias": np.zeros_like(arrays["bias"])}
    yield "the bias is left out", finished(p, unbiased, sums)
    if p.relu:
        yield "ReLU is left out", finished(replace(p, relu=False), arrays, sums)
    else:
        yield (
            "negative sums become 0, though the problem has no ReLU",
            finished(replace(p, relu=True), arrays, sums),
        )
    if p.residual:
        alone = finished(replace(p, residual=False), arrays, sums)
        yield "the residual is left out", alone
        if p.relu:
            late = {"y": alone["y"] + arrays["residual"].astype(np.float64)}
            yield "the residual is added after ReLU, and not before it", late
    for words, wrong in mistaken_sums(p, x, w):
        yield words, finished(p, arrays, wrong)


def probe(p: PaddedShape, precision: str, rng: np.random.Generator) -> tuple[PaddedShape, Arrays] | None:
    """Inputs that distinguish an answer in the next lower precision from one in ``precision``.

    Rounded operands are visible in short sums, and sums in half are visible if they are long and large. The
    answer in the lower precision is tried first: the result is None if it stays within the bound.
    """
    rounds = precision == "fp32" and p.dtype == "fp32"
    if precision == "fp16_sum" or (precision == "fp32" and not rounds):
        return None
    p = replace(p, N=1) if rounds else replace(LONG, dtype=p.dtype, layout=p.layout)
    arrays = dict(draw(p, rng))
    x, w = arrays["x"], arrays["w"]
    if rounds:
        arrays["x"] = np.where(rng.random(x.shape) < FEW / p.taps, x, np.float32(0))
    else:
        arrays |= {"x": np.abs(x) + x.dtype.type(0.5), "w": np.abs(w) + w.dtype.type(0.5)}
    multiply = product_of_tf32 if rounds else product_summed_in_half
    x, w = (a.astype(np.float32) for a in operands(p, arrays))
    lower = finished(p, arrays, _by_product(p, x, w, multiply))["y"].astype(TYPES[p.dtype])
    within = compare_all({"y": lower}, answer(p, arrays), bound(p, arrays, precision)).ok
    return None if within else (p, arrays)


def _by_product(
    p: PaddedShape, x: np.ndarray, w: np.ndarray, multiply: Callable[..., np.ndarray]
) -> np.ndarray:
    """The sums by a product of matrices that rounds in its own way."""
    taps = np.eye(p.taps, dtype=np.float32).reshape(p.taps, p.C, p.R, p.R)
    unrolled = convolve(x, taps, p.stride, p.padding).reshape(p.N, p.taps, -1)
    rows = np.broadcast_to(w.reshape(1, p.K, -1), (p.N, p.K, p.taps))
    return multiply(rows, unrolled).reshape(p.N, p.K, p.P, p.Q)


OPERATION = Operation(
    name="conv2d_padded",
    about="convolution with stride, padding, bias, residual and ReLU, fp32 or fp16",
    problem=PaddedShape,
    answer=answer,
    bound=bound,
    check=(  # no tile divides them; windows that leave pixels over, and images smaller than a filter
        PaddedShape(1, 1, 1, 1, 1, 1),
        PaddedShape(2, 3, 11, 9, 5, 7, 2, 3, True),
        PaddedShape(1, 5, 7, 10, 9, 3, 1, 1, True, True),
        PaddedShape(3, 8, 6, 5, 24, 3, 2, 1, True, False, "fp16", "nhwc"),
        PaddedShape(2, 24, 5, 7, 40, 3, 1, 1, True, True, "fp16", "nhwc"),
        PaddedShape(2, 40, 7, 8, 72, 1, 2, 0, False, False, "fp16", "nhwc"),
        PaddedShape(2, 3, 13, 14, 16, 7, 2, 3, True, False, "fp16", "nhwc"),
        PaddedShape(1, 9, 2, 3, 3, 3, 3, 2, False, True, "fp32", "nhwc"),
        PaddedShape(1, 2, 9, 5, 4, 5, 2, 1, True, True, "fp16", "nchw"),
    ),
    spare=(  # ordinary problems, for variants that do not support odd sizes
        PaddedShape(1, 64, 9, 9, 64, 3, 1, 1, True, True, "fp16", "nhwc"),
        PaddedShape(2, 64, 8, 8, 128, 3, 2, 1, True, False, "fp16", "nhwc"),
        PaddedShape(2, 64, 8, 8, 128, 1, 2, 0, False, False, "fp16", "nhwc"),
        PaddedShape(2, 64, 7, 12, 64, 3, 1, 1, True, False, "fp16", "nhwc"),
        PaddedShape(1, 64, 3, 56, 64, 3, 1, 1, False, True, "fp16", "nhwc"),
    ),
    course=layers(COURSE_BATCH),
    of=arrays_of,
    traits={
        "fp16 arrays": lambda p: p.dtype == "fp16",
        "the layout nhwc": lambda p: p.layout == "nhwc",
        "a residual": lambda p: p.residual,
        "no ReLU": lambda p: not p.relu,
        "padding": lambda p: p.padding > 0,
        "a stride above 1": lambda p: p.stride > 1,
        "R = 1": lambda p: p.R == 1,
        "H != W (the image is not square)": lambda p: p.H != p.W,
        "several images": lambda p: p.N > 1,
        "C that 8 does not divide": lambda p: p.C % 8 != 0,
        "K that 8 does not divide": lambda p: p.K % 8 != 0,
    },
    draw=draw,
    mistakes=mistakes,
    probe=probe,
    axes={
        **{"n": "image", "c": "input channel", "h": "input row", "w": "input column"},
        **{
            "k": "output channel",
            "p": "output row",
            "q": "output column",
            "r": "filter row",
            "s": "filter column",
        },
    },
    cure="compare indices with y[n,k,p,q] = sum of x[n, c, p stride + r - padding, ...] w[k,c,r,s]",
    default="conv2d_padded/v1_shared",
    preferred=("conv2d_padded/v4_rows", "conv2d_padded/v3_wgmma", "conv2d_padded/v2_wmma"),
    baseline="conv2d_padded/v0_naive",
)
