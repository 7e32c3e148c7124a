"""Matrix product: ``c[i,m,n] = alpha * (sum over k of a[i,m,k] b[i,k,n]) + beta * c0[i,m,n]``."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mini_dnn.ops.compare import CONFIDENCE, HALF_SUBNORMAL, HALVES, ROUND_OFF, compare_all, dot_product_bound
from mini_dnn.ops.gemm_numpy import answer, lying, mistakes, operands, scaled
from mini_dnn.ops.gemm_shape import CODES, GemmShape, arrays_of
from mini_dnn.ops.operation import Operation, Sample, Trial, normal
from mini_dnn.ops.problem import TYPES, Arrays
from mini_dnn.ops.products import (
    ColumnSums,
    magnitudes,
    parts,
    product,
    product_of_tf32,
    product_summed_in_half,
)

__all__ = ["CODES", "OPERATION", "GemmShape", "answer", "operands", "scaled"]

FEW = 4  # products in a sum, so that the rounding of operands is visible
SIDE = 200  # of a probe: the largest number of rows and columns of c
LONG = 800  # products in sums that grow
# The largest error of tensor cores for a product with a subnormal half, which they align as if it were 2^-14
HALF_ALIGNED = 2.0**-38
# The largest error of rounding an output, relative to its value, and for subnormal values
ROUNDING = {"fp32": (0.0, 0.0), "fp16": (2.0**-11, HALF_SUBNORMAL), "bf16": (2.0**-8, 0.0)}


def draw(p: GemmShape, rng: np.random.Generator) -> Arrays:
    """Normal values; NaN in the gaps, which reveals computations with them."""
    found = dict(normal(p, rng))
    for name, array in found.items():
        p.arrays[name].in_gap(array)[...] = np.nan
    return found


def bound(p: GemmShape, arrays: Arrays, precision: str) -> Arrays:
    """See `dot_product_bound` for the sums; a few roundings of alpha, beta and the output come on top.

    Operands of 16 bits are exact in every precision, so only the error of the sums remains. If an operand is
    infinite or NaN, so is the answer, and there is no bound.
    """
    a, b = (magnitudes(operand) for operand in operands(p, arrays))
    absolute = product(a, b)
    accumulate = ROUND_OFF[precision][1]
    if p.dtype == "fp32":
        allowed = dot_product_bound(absolute, p.k, float(a.max()) + float(b.max()), precision)
    else:
        allowed = dot_product_bound(absolute, p.k, 0.0, "fp32") * (accumulate / ROUND_OFF["fp32"][1])
        if precision in HALVES and p.dtype == "fp16":
            allowed += HALF_ALIGNED * p.k * (float(a.max()) + float(b.max()))
    allowed += 4 * accumulate * absolute
    c = np.zeros(()) if p.out == "fp32" else p.arrays["c"].without_gap(answer(p, arrays)["c"])
    return lying(p, abs(p.alpha) * allowed + _more(p, arrays, precision, c), 0.0)


def _more(p: GemmShape, arrays: Arrays, precision: str, c: np.ndarray) -> np.ndarray:
    """The error bound of beta c0 and of an output ``c`` in 16 bits."""
    more = np.full((), np.finfo(np.float32).tiny, np.float64)
    if p.beta:
        c0 = magnitudes(p.arrays["c0"].without_gap(arrays["c0"]))
        more = more + 4 * ROUND_OFF[precision][1] * abs(p.beta) * c0.astype(np.float64)
    relative, least = ROUNDING[p.out]
    return more + relative * magnitudes(c) + least


def audit(p: GemmShape, arrays: Arrays, outputs: Arrays, precision: str, rng: np.random.Generator) -> str:
    """Compare sums over a few columns of c, see `ColumnSums`, and check that its gaps are unchanged."""
    operand, accumulate = ROUND_OFF[precision] if p.dtype == "fp32" else (0.0, ROUND_OFF[precision][1])
    relative = 2 * operand + (CONFIDENCE * np.sqrt(p.k) + 4) * accumulate
    wrong, array = 0, p.arrays["c"]
    if not np.isnan(array.in_gap(outputs["c"])).all():
        return "the gaps between the rows of c are written"
    a, b = operands(p, arrays)
    halves = p.dtype == "fp32" and precision in HALVES
    subnormal = HALF_SUBNORMAL * p.k * (_largest(a) + _largest(b)) if halves else 0.0
    for i in range(p.batch):
        sums = ColumnSums(b[i], rng)
        for rows in parts(outputs["c"][i]):
            c = array.without_gap(outputs["c"][i, rows]).astype(np.float64)
            c0 = {name: found[i, rows] for name, found in arrays.items() if name == "c0"}
            more = subnormal + _more(p, c0, precision, c)
            left = np.float32(p.alpha) * a[i, rows].astype(np.float64)
            wrong += sums.wrong(left, c - scaled(p, c0, np.zeros_like(c)), relative, more)
    return f"{wrong} sums over a few columns of c differ from float64" if wrong else ""


def _largest(operand: np.ndarray) -> float:
    return max(float(operand.max()), -float(operand.min()))


def sample(p: GemmShape, arrays: Arrays, outputs: Arrays, part: float, rng: np.random.Generator) -> Sample:
    """Some rows of c: the first, the last, and random ones."""
    count = min(p.m, max(2, round(part * p.m)))
    others = rng.permutation(np.arange(1, p.m - 1))[: count - 2]
    rows = np.unique([0, *others, p.m - 1])
    a, _ = operands(p, arrays)
    given = {**arrays, "a": np.ascontiguousarray(a[:, rows])}
    given |= {name: array[:, rows] for name, array in arrays.items() if name == "c0"}
    some = replace(p, m=len(rows), layout=f"n{p.layout[1]}", lda=0)
    return Sample(some, given, {"c": outputs["c"][:, rows]}, rows, f"{len(rows):,} of {p.m:,} rows of c")


def probe(p: GemmShape, precision: str, rng: np.random.Generator) -> tuple[GemmShape, Arrays] | None:
    """Inputs that distinguish an answer in the next lower precision from one in ``precision``.

    Rounded operands are visible in sums of few products, and sums in half if they become large. The answer in
    the lower precision is tried first: the result is None if it stays within the bound.
    """
    if precision == "fp16_sum":
        return None
    rounds = precision == "fp32" and p.dtype == "fp32"
    p = replace(p, m=min(p.m, SIDE), n=min(p.n, SIDE), k=p.k if rounds else LONG, batch=1)
    arrays = dict(OPERATION.draw(p, rng))
    if rounds:
        arrays["a"] = arrays["a"] * (rng.random(arrays["a"].shape) < FEW / p.k)
    else:
        arrays |= {name: np.abs(arrays[name]) + arrays[name].dtype.type(0.5) for name in "ab"}
    lower = (product_of_tf32 if rounds else product_summed_in_half)(*operands(p, arrays))
    outputs = {name: c.astype(TYPES[p.out]) for name, c in lying(p, scaled(p, arrays, lower)).items()}
    within = compare_all(outputs, answer(p, arrays), bound(p, arrays, precision)).ok
    return None if within else (p, arrays)


def large_sums(p: GemmShape, precision: str, rng: np.random.Generator) -> Arrays:
    """Non-negative values with sums beyond the largest half, if the precision supports such sums."""
    arrays = dict(OPERATION.draw(p, rng))
    if precision != "fp16_sum":
        arrays |= {
            name: (10 + np.minimum(np.abs(arrays[name]), 4)).astype(arrays[name].dtype) for name in "ab"
        }
    return arrays


def in_pytorch(p: GemmShape) -> str:
    """The product as an expression of PyTorch; empty if lines have gaps."""
    if any((p.lda, p.ldb, p.ldc)):
        return ""
    a, b = (name if letter == "n" else f"{name}.mT" for name, letter in zip("ab", p.layout, strict=True))
    alpha, beta = float(np.float32(p.alpha)), float(np.float32(p.beta))
    product = f"{a} @ {b}" if alpha == 1 else f"{alpha!r} * ({a} @ {b})"
    return f"{product} + {beta!r} * c0" if beta else product


OPERATION = Operation(
    name="gemm",
    about="matrix product of fp16, bf16 or fp32 operands, with sums in fp32",
    problem=GemmShape,
    answer=answer,
    bound=bound,
    draw=draw,
    check=(  # no tile divides them, and rows of odd lengths are not aligned
        GemmShape(1, 1, 1),
        GemmShape(17, 33, 5),
        GemmShape(36, 129, 70, "fp32", "fp32", "nt", 2, 0.5, -1.5),
        GemmShape(1, 1, 1, "fp16", "fp16"),
        GemmShape(33, 17, 31, "fp16", "fp32", "tn", 2),
        GemmShape(130, 67, 129, "fp16", "fp16"),
        GemmShape(36, 134, 210, "fp16", "fp32", "tt", 1, -2.0, 1.0),
        GemmShape(136, 72, 264, "fp16", "fp16", "nt"),
        GemmShape(33, 18, 47, "bf16", "fp32", "nt", 2),
        GemmShape(70, 136, 72, "bf16", "bf16", "tn", 1, 1.5, 0.5),
        GemmShape(37, 45, 50, "fp16", "fp16", "nn", 2, 1.0, 2.0, 53, 48, 47),
        GemmShape(40, 64, 73, "fp32", "fp32", "tt", 1, 1.0, 0.0, 44, 75, 68),
        GemmShape(24, 21, 36, "fp16", "fp32", "tn", 3, 1.0, -1.0, 32, 24, 24),
    ),
    spare=(  # for variants that need vectors or aligned lines
        GemmShape(1, 70, 300),
        GemmShape(2, 1, 1040, "fp32", "fp16", "tn", 3, 0.5, -1.0, ldb=1044),
        GemmShape(13, 1, 270, "fp32", "fp32", "nn", 2, -0.5, 1.5),
        GemmShape(1, 9, 132, "fp32", "fp32", "nt"),
        GemmShape(72, 136, 40, "fp16", "fp16"),
        GemmShape(40, 264, 136, "bf16", "fp32", "tt", 2, -0.5, 1.5),
        GemmShape(136, 72, 72, "bf16", "bf16", "tn"),
    ),
    particular=(  # for those that have kernels of their own for aligned lines
        GemmShape(130, 136, 64, "bf16", "bf16", "nt", 2, 0.5),
        GemmShape(264, 200, 1096, "bf16", "fp16", "nt", constant="b"),
    ),
    trials=(
        Trial(GemmShape(17, 40, 784, "fp16", "fp32"), large_sums),
        Trial(GemmShape(17, 40, 784), large_sums),
    ),
    large=(
        GemmShape(46_500, 46_500, 17),
        GemmShape(46_500, 46_504, 16, "fp16", "fp16"),
        GemmShape(260, 270, 40, batch=31_000),
    ),
    course={
        **{f"fp16-{s}": GemmShape(s, s, s, "fp16", "fp16") for s in (512, 1024, 2048, 4096, 8192)},
        **{f"fp32-{s}": GemmShape(s, s, s) for s in (512, 1024, 2048, 4096, 8192)},
        "bf16-4096": GemmShape(4096, 4096, 4096, "bf16", "bf16"),
        **{f"odd-{s}": GemmShape(s, s, s, "fp16", "fp16") for s in (4095, 8191)},
        "odd": GemmShape(2047, 1023, 777, "fp16", "fp16"),
        "tokens": GemmShape(32 * 197, 768, 768, "fp16", "fp16"),  # of 32 images in a transformer
        "row": GemmShape(1, 4096, 4096, "fp16", "fp16"),
        "fp32-row": GemmShape(1, 4096, 4096),
        "skinny": GemmShape(64, 4096, 4096, "fp16", "fp16"),
        "deep": GemmShape(512, 512, 8192, "fp16", "fp16"),
        "heads": GemmShape(512, 512, 64, "fp16", "fp16", "nt", 96),
        "fc1": GemmShape(10_000, 32, 1296, "fp32", "fp32", "nt"),
        "conv2": GemmShape(16, 115_600, 196),
    },
    pytorch=in_pytorch,
    of=arrays_of,
    traits={
        "fp16 operands": lambda p: p.dtype == "fp16",
        "bf16 operands": lambda p: p.dtype == "bf16",
        "an fp16 output": lambda p: p.out == "fp16",
        "a bf16 output": lambda p: p.out == "bf16",
        "a transposed": lambda p: p.layout[0] == "t",
        "b transposed": lambda p: p.layout[1] == "t",
        "batch > 1": lambda p: p.batch > 1,
        "beta other than 0": lambda p: p.beta != 0,
        "k > 16 (a sum has several tiles)": lambda p: p.k > 16,
        "lines of a length that 8 does not divide": lambda p: any(length % 8 for length in p.lengths),
        "gaps between lines (lda, ldb or ldc)": lambda p: p.pitches != p.lengths,
    },
    mistakes=mistakes,
    probe=probe,
    audit=audit,
    sample=sample,
    axes={"i": "entry of the batch", "m": "row of c", "n": "column of c", "k": "term of the sum"},
    cure="compare the indices of each load and of the store with c[m,n] = sum over k of a[m,k] b[k,n]",
    default="gemm/v3_registers",
    preferred=(
        *("gemm/v14_mixed", "gemm/v17_vectors", "gemm/v19_fma", "gemm/v18_thirds", "gemm/v13_split"),
        "gemm/v5_mma_async",
    ),
    baseline="gemm/v0_naive",
    sums=True,
)
