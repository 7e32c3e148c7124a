"""Attention: ``o = softmax(scale q k^T) v`` for each head, with the softmax along the keys."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np

from mini_dnn.ops.attention_numpy import (
    answer,
    by_heads,
    in_parts,
    is_masked,
    mean_of,
    output,
    softmax,
    some_heads,
    weighted,
    weights_of,
)
from mini_dnn.ops.attention_shape import CODES, AttentionShape, arrays_of, given, lying, parts
from mini_dnn.ops.compare import CONFIDENCE, HALF_SUBNORMAL, ROUND_OFF, compare_all, wrong_elements
from mini_dnn.ops.operation import Operation, Sample
from mini_dnn.ops.problem import TYPES, Arrays
from mini_dnn.ops.products import product_of_tf32, product_summed_in_half

__all__ = ["CODES", "OPERATION", "AttentionShape"]

STEEP = 40.0  # factor of q in a head with large scores: their exponentials overflow in fp32
TURN = 9  # number of tokens after which a problem's first head is of the next kind
RISE = 30.0  # how much scores rise along the keys
AUDITED = 4  # minimum number of rows of each head
LONG = 400  # tokens of a probe, so that sums become large
TILES = (16, 32, 64, 128)
ROUNDING = {"fp32": (2.0**-24, 0.0), "fp16": (2.0**-11, HALF_SUBNORMAL)}  # the error of storing o


def draw(p: AttentionShape, rng: np.random.Generator) -> Arrays:
    """Normal values, changed for four kinds of heads in turn, which reveal different mistakes.

    The first kind is not changed. In the second, scores are so large that their exponentials overflow. In the
    third, all keys are equal, so that sums have many terms of the same size. In the fourth, scores tend to
    rise along the keys, so that a running maximum is always too small.
    """
    q, k, v = (rng.standard_normal((p.B, p.H, p.T, p.d), np.float32) for _ in range(3))
    kinds = (np.arange(p.B * p.H).reshape(p.B, p.H) + p.T // TURN) % 4
    q[kinds == 1] *= STEEP
    k[kinds == 2] = k[kinds == 2][:, :1]
    v[kinds == 2] += 1
    rising = RISE * np.arange(p.T, dtype=np.float32) / (p.T * p.d * p.factor)
    q[kinds == 3] = 1 + q[kinds == 3] / 8
    k[kinds == 3] = rising[:, None] + k[kinds == 3] / 8
    return given(p, q, k, v)


def bound(p: AttentionShape, arrays: Arrays, precision: str) -> Arrays:
    """See `_row_bound`."""
    o = np.empty((p.B * p.H, p.T, p.d))
    for at, rows, q, k, v in in_parts(p, arrays):
        o[at] = _row_bound(p, precision, q, k, v, rows)
    return output(p, o)


def _row_bound(
    p: AttentionShape, precision: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """The error bound of some rows of heads' outputs: the sum of three errors.

    - A score s may be off by e: by the error of a sum of d products (`dot_product_bound`), and a few
      roundings of the score and the maximum. Weights w still add up to one, so that the output moves by
      sum w (exp(e) - 1) (v - o) at most. By Cauchy and Schwarz that is the root of sum w (exp(e) - 1)^2 times
      the spread of the values, sum w v^2 - o^2, and never more than their range.
    - Weights are rounded as operands of the second product, and its sum of T terms is rounded.
    - The output is rounded to its type.

    A wrong scale, padding keys that count, and sums in half change weights by much more than e, in the heads
    of `draw` in which scores are neither all equal nor far apart; sums of T terms in half are off by more
    than their root where the terms are equal.
    """
    operand, accumulate = ROUND_OFF[precision]
    exact = p.dtype == "fp16"  # 16-bit operands are exact: only the error of the sums remains
    with np.errstate(invalid="ignore", over="ignore"):
        masked = is_masked(p, rows)
        scores = np.where(masked, -np.inf, p.factor * (q @ k.swapaxes(1, 2)))
        top = scores.max(axis=2, keepdims=True)
        weights = softmax(scores, masked)
        off = (2 * operand * (not exact) + (CONFIDENCE * np.sqrt(p.d) + 4) * accumulate) * (
            abs(p.factor) * (np.abs(q) @ np.abs(k).swapaxes(1, 2))
        )
        off += 4 * accumulate * (1 + np.where(masked, 0, np.abs(scores)) + np.abs(top))
        moved = np.expm1(np.where(masked, 0, np.minimum(off, 100.0)))  # exp(100) exceeds any range
        v = np.where(np.isfinite(v), v, 0)  # an infinity or NaN bounds nothing
        o, magnitude = weights @ v, weights @ np.abs(v)
        spread = np.maximum(weights @ v**2 - o**2, 0)
        shifted = np.sqrt((weights * moved**2).sum(axis=2, keepdims=True) * spread)
        shifted = np.minimum(shifted, np.ptp(v, axis=1, keepdims=True))
        summed = (2 * operand + (2 * CONFIDENCE * np.sqrt(p.T) + 8) * accumulate) * magnitude
        if operand:
            summed += HALF_SUBNORMAL * np.abs(v).sum(axis=1, keepdims=True)
        relative, least = ROUNDING[p.dtype]
        found: np.ndarray = shifted + summed + relative * np.abs(o) + least + np.finfo(np.float32).tiny
    return found


def audit(
    p: AttentionShape, arrays: Arrays, outputs: Arrays, precision: str, rng: np.random.Generator
) -> str:
    """Compare a few rows of each head, and check that outputs are within the range of their head's values."""
    q, k, v, o = by_heads(p, *parts(p, arrays), lying(p, outputs["o"]))
    wrong, outside, relative = 0, 0, 4 * ROUND_OFF["fp16"][0]
    for some in some_heads(p):
        rows = np.unique([0, p.T - 1, *rng.integers(0, p.T, AUDITED - 2)])
        queries, keys, values = (x.astype(np.float64) for x in (q[some, rows], k[some], v[some]))
        expected = mean_of(weights_of(p, queries, keys, rows), values, is_masked(p, rows))
        allowed = _row_bound(p, precision, queries, keys, values, rows)
        wrong += int(wrong_elements(o[some, rows], expected, allowed).sum())
        more = relative * np.abs(values).max(axis=1, keepdims=True) + HALF_SUBNORMAL * p.T
        low, high = values.min(axis=1, keepdims=True) - more, values.max(axis=1, keepdims=True) + more
        outside += int((~((o[some] >= low) & (o[some] <= high))).sum())
    found = [f"{outside} elements lie outside the range of their head's values"] if outside else []
    found += [f"{wrong} elements of a few rows of each head differ from float64"] if wrong else []
    return ", and ".join(found)


def sample(
    p: AttentionShape, arrays: Arrays, outputs: Arrays, part: float, rng: np.random.Generator
) -> Sample:
    """Some random heads of each entry."""
    count = min(p.H, max(1, round(part * p.H)))
    heads = np.sort(rng.permutation(p.H)[:count])
    some = replace(p, H=count)
    q, k, v = (x[:, heads] for x in parts(p, arrays))
    o = lying(p, lying(p, outputs["o"])[:, heads])
    words = f"{count} of {p.H} heads of each entry"
    return Sample(some, given(some, q, k, v), {"o": o}, heads, words, axis=p.arrays["o"].axes.index("h"))


def mistakes(p: AttentionShape, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """Results of typical mistakes."""
    unscaled = replace(p, scale=1.0)
    yield "the scale is left out", answer(unscaled, arrays)
    yield "scores are divided by d and not by its root", answer(replace(p, scale=1 / p.d), arrays)
    yield "the maximum is not subtracted: powers overflow", weighted(p, arrays, _unshifted)
    yield "the powers are not divided by their sum", weighted(p, arrays, _powers)
    words = (
        "the mask is forgotten"
        if p.causal
        else "keys after the query are masked, though the problem is not causal"
    )
    yield words, answer(replace(p, causal=not p.causal), arrays)
    yield "the softmax is along the queries and not along the keys", weighted(p, arrays, _along_queries)
    q, k, v = parts(p, arrays)
    yield "q and k change places", answer(p, given(p, k, q, v))
    if p.H > 1:
        k0, v0 = (np.broadcast_to(x[:, :1], x.shape) for x in (k, v))
        yield "keys and values of head 0 are used for all heads", answer(p, given(p, q, k0, v0))
        yield "keys of head 0 are used for all heads", answer(p, given(p, q, k0, v))
        yield "values of head 0 are used for all heads", answer(p, given(p, q, k, v0))
    yield "keys take the place of values", answer(p, given(p, q, k, k))
    if p.causal:
        yield "the mask hides the query's own token, too", weighted(p, arrays, _before)
    for tile in TILES:
        end = p.T // tile * tile
        if 0 < end < p.T:
            words = f"keys end at {end} of {p.T}: the last, partial tile of keys is left out"
            yield words, weighted(p, arrays, partial(_ending, end))
    for tile in TILES:
        if p.T % tile:
            words = f"keys that fill the last tile of {tile} count: they are zeros, and exp(0) is not 0"
            yield words, weighted(p, arrays, partial(_padded, -p.T % tile))
    for tile in TILES:
        if tile < p.T:
            words = f"a new maximum comes with a tile of {tile} keys, and the output so far is not rescaled"
            yield words, weighted(p, arrays, partial(_stale, tile, False))
            words = f"a new maximum comes with a tile of {tile} keys, and output and sum are not rescaled"
            yield words, weighted(p, arrays, partial(_stale, tile, True))


def _powers(scores: np.ndarray, masked: np.ndarray) -> np.ndarray:
    scores = np.where(masked, -np.inf, scores)
    return np.exp(scores - scores.max(axis=1, keepdims=True))


def _unshifted(scores: np.ndarray, masked: np.ndarray) -> np.ndarray:
    powers = np.exp(np.where(masked, -np.inf, scores).astype(np.float32))
    return powers / powers.sum(axis=1, keepdims=True)


def _along_queries(scores: np.ndarray, masked: np.ndarray) -> np.ndarray:
    return softmax(scores.T, masked.T).T


def _before(scores: np.ndarray, masked: np.ndarray) -> np.ndarray:
    own = np.eye(len(scores), dtype=bool)
    own[0, 0] = False  # the first token has no other one
    return softmax(scores, masked | own)


def _ending(end: int, scores: np.ndarray, masked: np.ndarray) -> np.ndarray:
    return softmax(scores, masked | (np.arange(scores.shape[1]) >= end))


def _padded(more: int, scores: np.ndarray, masked: np.ndarray) -> np.ndarray:
    wide = ((0, 0), (0, more))
    return softmax(np.pad(scores, wide), np.pad(masked, wide))[:, : scores.shape[1]]


def _stale(tile: int, both: bool, scores: np.ndarray, masked: np.ndarray) -> np.ndarray:
    scores = np.where(masked, -np.inf, scores)
    ends = np.minimum(np.arange(scores.shape[1]) // tile * tile + tile, scores.shape[1]) - 1
    powers = np.exp(scores - np.maximum.accumulate(scores, axis=1)[:, ends])
    sums = powers if both else np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / sums.sum(axis=1, keepdims=True)


def probe(
    p: AttentionShape, precision: str, rng: np.random.Generator
) -> tuple[AttentionShape, Arrays] | None:
    """Inputs that distinguish an answer in the next lower precision from one in ``precision``.

    Rounded operands are visible in any weights, and sums in half if many values of one sign are added. The
    answer in the lower precision is tried first: the result is None if it stays within the bound.
    """
    if precision == "fp16_sum" or (precision == "fp32" and p.dtype == "fp16"):
        return None
    rounds = precision == "fp32"
    p = replace(p, B=1, H=1, T=min(p.T, LONG) if rounds else LONG)
    q, k, v = rng.standard_normal((3, 1, 1, p.T, p.d), np.float32)
    arrays = given(p, q, k, v if rounds else np.abs(v) + 0.5)
    multiply = product_of_tf32 if rounds else product_summed_in_half
    q, k, v = (x[0].astype(np.float32) for x in parts(p, arrays))
    scores = p.factor * multiply(q, k.swapaxes(1, 2))[0]
    o = multiply(softmax(scores, is_masked(p, np.arange(p.T)))[None].astype(np.float32), v)
    outputs = {"o": lying(p, o[None].astype(TYPES[p.dtype]))}
    within = compare_all(outputs, answer(p, arrays), bound(p, arrays, precision)).ok
    return None if within else (p, arrays)


def in_pytorch(p: AttentionShape) -> str:
    """Attention as an expression of PyTorch."""
    packed = p.layout == "packed"
    heads = "*(qkv[:, :, i].transpose(1, 2) for i in range(3))" if packed else "q, k, v"
    call = f"F.scaled_dot_product_attention({heads}, is_causal={p.causal}, scale={p.factor!r})"
    return f"{call}.transpose(1, 2)" if packed else call


OPERATION = Operation(
    name="attention",
    about="attention, softmax(scale q k^T) v for each head, fp16 or fp32 with sums in fp32",
    problem=AttentionShape,
    answer=answer,
    bound=bound,
    draw=draw,
    large=(AttentionShape(66_000, 8, 65, 64), AttentionShape(66_000, 8, 65, 64, "fp32")),
    check=(  # one token, one more than tiles of 16, 32, 64 and 128, and sizes that no tile divides
        AttentionShape(1, 1, 1, 64),
        AttentionShape(2, 1, 17, 32, "fp32"),
        AttentionShape(1, 2, 65, 64),
        AttentionShape(1, 1, 33, 128, "fp16", "packed"),
        AttentionShape(1, 1, 129, 32, "fp16", "contiguous", True),
        AttentionShape(1, 3, 23, 64, "fp16", "packed", True, 0.25),
        AttentionShape(2, 2, 37, 64, "fp32", "packed"),
        AttentionShape(1, 1, 50, 128, "fp32", "contiguous", True, -0.0625),
    ),
    spare=(  # for variants that only support halves
        AttentionShape(2, 1, 17, 32),
        AttentionShape(2, 2, 37, 64, "fp16", "packed"),
        AttentionShape(1, 1, 50, 128, "fp16", "contiguous", True, -0.0625),
    ),
    particular=(  # numbers of tokens for which some have kernels of their own
        *(AttentionShape(1, 2, T, 64, "fp16", "packed") for T in (137, 197, 385)),
        *(AttentionShape(1, 1, T, 64, "fp16", "contiguous", False, 0.25) for T in (200, 385, 577)),
    ),
    course={f"tokens-{T}": AttentionShape(32, 12, T, 64) for T in (197, 577, 1025)},
    pytorch=in_pytorch,
    of=arrays_of,
    traits={
        "fp16 arrays": lambda p: p.dtype == "fp16",
        "the packed layout": lambda p: p.layout == "packed",
        "a causal mask": lambda p: p.causal,
        "several heads or entries": lambda p: p.B * p.H > 1,
        "more than one token": lambda p: p.T > 1,
        "T > 64 (keys have several tiles)": lambda p: p.T > 64,
        "d other than 64": lambda p: p.d != 64,
        "a scale of its own": lambda p: p.scale != 0,
    },
    mistakes=mistakes,
    probe=probe,
    audit=audit,
    sample=sample,
    axes={"b": "entry of the batch", "h": "head", "t": "token", "d": "place in the head"},
    cure="compare scores, maximum, sum and output of that row with o = softmax(scale q k^T) v",
    default="attention/v2_coalesced",
    preferred=("attention/v11_odd_token", "attention/v7_online", "attention/v6_k_coalesced"),
    baseline="attention/v0_naive",
)
