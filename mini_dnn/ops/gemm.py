"""Matrix product: ``c[i,m,n] = alpha * (sum over k of a[i,m,k] b[i,k,n]) + beta * c0[i,m,n]``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops.compare import CONFIDENCE, HALF_SUBNORMAL, ROUND_OFF, compare_all, dot_product_bound
from mini_dnn.ops.operation import Operation
from mini_dnn.ops.problem import Array, Arrays, Problem
from mini_dnn.ops.products import product, product_of_tf32, product_summed_in_half, read, wrong_sums

TYPES = {"fp16": "float16", "fp32": "float32"}
LAYOUTS = ("nn", "nt", "tn", "tt")
FEW = 4  # products in a sum whose operands' rounding is to be seen
SIDE = 200  # of a probe: rows and columns of c at most
LONG = 800  # products in sums that grow and grow


@dataclass(frozen=True)
class GemmShape(Problem):
    """A matrix product for each entry of a batch, with sums in fp32.

    Parameters
    ----------
    m, n, k
        Rows and columns of c, and terms of each sum.
    dtype, out
        Types of the operands a and b, and of c and c0: ``"fp16"`` or ``"fp32"``.
    layout
        How a and b lie in memory, a letter each, as in BLAS: ``n`` is row by row, ``(m,k)`` and ``(k,n)``;
        ``t`` is transposed, ``(k,m)`` and ``(n,k)``. There are no gaps, so odd rows are not aligned.
    batch
        Products.
    alpha, beta
        Factors, rounded to fp32. With a ``beta`` of 0 there is no c0.
    """

    m: int
    n: int
    k: int
    dtype: str = "fp32"
    out: str = "fp32"
    layout: str = "nn"
    batch: int = 1
    alpha: float = 1.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        given = self.fields
        small = [f"{name} = {given[name]}" for name in ("m", "n", "k", "batch") if given[name] < 1]
        if small:
            raise ShapeError(f"a matrix product needs every size to be at least 1, but {', '.join(small)}")
        for name, allowed in (("dtype", tuple(TYPES)), ("out", tuple(TYPES)), ("layout", LAYOUTS)):
            if given[name] not in allowed:
                raise ShapeError(f"{name} is {given[name]!r}; expected one of {', '.join(allowed)}")
        for name in ("alpha", "beta"):
            if not abs(given[name]) <= float(np.finfo(np.float32).max):
                raise ShapeError(f"{name} is {given[name]}; expected a number that fits fp32")

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The operands as they lie in memory, c0 if it counts, and c."""
        given, c = TYPES[self.dtype], Array((self.batch, self.m, self.n), TYPES[self.out], axes="imn")

        def operand(letter: str, rows: int, columns: int, axes: str) -> Array:
            if letter == "t":
                rows, columns, axes = columns, rows, axes[::-1]
            return Array((self.batch, rows, columns), given, axes=f"i{axes}")

        a = operand(self.layout[0], self.m, self.k, "mk")
        b = operand(self.layout[1], self.k, self.n, "kn")
        return {"a": a, "b": b, **({"c0": c} if self.beta else {}), "c": replace(c, role="out")}

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product; alpha and beta are not counted."""
        return 2 * self.batch * self.m * self.n * self.k

    def with_batch(self, n: int) -> Self:
        """The same with ``n`` products."""
        return replace(self, batch=n)

    def __str__(self) -> str:
        """As people write it: ``(m,k) @ (k,n) fp16 -> fp32``, and what is unusual."""
        words = [f"({self.m},{self.k}) @ ({self.k},{self.n}) {self.dtype} -> {self.out}"]
        words += [f"{name} transposed" for name, how in zip("ab", self.layout, strict=True) if how == "t"]
        words += [f"batch of {self.batch}"] if self.batch > 1 else []
        words += [f"alpha {self.alpha:g}"] if self.alpha != 1 else []
        return ", ".join([*words, f"beta {self.beta:g}"] if self.beta else words)


def arrays_of(
    a: np.ndarray,
    b: np.ndarray,
    *,
    c0: np.ndarray | None = None,
    out: str = "fp32",
    layout: str = "nn",
    alpha: float = 1.0,
    beta: float | None = None,
) -> tuple[GemmShape, Arrays]:
    """The problem that arrays are: ``a (batch,m,k)`` and ``b (batch,k,n)`` where nothing is transposed.

    Operands are fp16 if both are, else fp32. ``beta`` is 1 if ``c0 (batch,m,n)`` is given, else 0.

    Raises
    ------
    ShapeError
        Wrong ranks or types, or sizes that do not match.
    """
    beta = float(c0 is not None) if beta is None else float(beta)
    if (c0 is None) != (beta == 0):
        raise ShapeError(f"beta is {beta:g} and c0 is {c0 if c0 is None else 'given'}; give both or neither")
    given = {"a": np.asarray(a), "b": np.asarray(b)} | ({} if c0 is None else {"c0": np.asarray(c0)})
    for name, array in given.items():
        if array.ndim != 3:
            raise ShapeError(f"{name} is {array.shape}; expected a batch of matrices: {name}[None] for one")
    dtype = "fp16" if {given["a"].dtype, given["b"].dtype} == {np.dtype(np.float16)} else "fp32"
    batch, m, k = given["a"].shape if layout[:1] == "n" else given["a"].swapaxes(1, 2).shape
    n = given["b"].shape[1 if layout[1:] == "t" else 2]
    problem = GemmShape(m, n, k, dtype, out, layout, batch, float(alpha), beta)
    return problem, {name: _as_given(name, array, problem) for name, array in given.items()}


def _as_given(name: str, array: np.ndarray, problem: GemmShape) -> np.ndarray:
    """The array in the problem's type and C order, if its shape is right and nothing is lost."""
    expected = problem.arrays[name]
    if array.shape != expected.shape:
        raise ShapeError(f"{name} has the shape {array.shape}; {problem} needs {expected.shape}")
    if not np.can_cast(array.dtype, expected.dtype, "safe"):
        raise ShapeError(
            f"{name} is {array.dtype}, which {expected.dtype} cannot hold exactly; "
            f"pass {name}.astype(np.{expected.dtype}) if the loss is meant"
        )
    return np.ascontiguousarray(array, dtype=expected.dtype)


def operands(p: GemmShape, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """``a (batch,m,k)`` and ``b (batch,k,n)``."""
    return read(arrays["a"], p.layout[0], p.m, p.k), read(arrays["b"], p.layout[1], p.k, p.n)


def scaled(p: GemmShape, arrays: Arrays, c: np.ndarray) -> np.ndarray:
    """``alpha c + beta c0`` in float64."""
    c = c * np.float64(np.float32(p.alpha))
    return c + np.float64(np.float32(p.beta)) * arrays["c0"] if p.beta else c


def answer(p: GemmShape, arrays: Arrays) -> Arrays:
    """In float64."""
    return {"c": scaled(p, arrays, product(*operands(p, arrays)))}


def bound(p: GemmShape, arrays: Arrays, precision: str) -> Arrays:
    """See `dot_product_bound` for the sums; a few roundings of alpha, beta and the output come on top.

    Operands in half are exact in every precision: what is left is the error of the sums.
    """
    a, b = (np.abs(operand) for operand in operands(p, arrays))
    absolute = product(a, b)
    accumulate = ROUND_OFF[precision][1]
    if p.dtype == "fp16":
        allowed = dot_product_bound(absolute, p.k, 0.0, "fp32") * (accumulate / ROUND_OFF["fp32"][1])
    else:
        allowed = dot_product_bound(absolute, p.k, float(a.max()) + float(b.max()), precision)
    allowed += 4 * accumulate * absolute
    c = answer(p, arrays)["c"] if p.out == "fp16" else np.zeros(())
    return {"c": abs(p.alpha) * allowed + _more(p, arrays, precision, c)}


def _more(p: GemmShape, arrays: Arrays, precision: str, c: np.ndarray) -> np.ndarray:
    """What beta c0 and an output ``c`` in half may be off."""
    more = np.full((), np.finfo(np.float32).tiny, np.float64)
    if p.beta:
        more = more + 4 * ROUND_OFF[precision][1] * np.abs(np.float64(p.beta) * arrays["c0"])
    return more + ROUND_OFF["fp16"][0] * np.abs(c) + HALF_SUBNORMAL if p.out == "fp16" else more


def audit(p: GemmShape, arrays: Arrays, outputs: Arrays, precision: str, rng: np.random.Generator) -> str:
    """Compare sums over a few columns of c: see `wrong_sums`."""
    operand, accumulate = ROUND_OFF[precision] if p.dtype == "fp32" else (0.0, ROUND_OFF[precision][1])
    relative = 2 * operand + (CONFIDENCE * np.sqrt(p.k) + 4) * accumulate
    one, wrong = replace(p, batch=1), 0
    for i in range(p.batch):
        given = {name: array[i : i + 1] for name, array in arrays.items()}
        a, b = (x[0].astype(np.float64) for x in operands(one, given))
        b *= np.float32(p.alpha)
        c = outputs["c"][i : i + 1].astype(np.float64)
        subnormal = HALF_SUBNORMAL * p.k * (np.abs(a).max() + np.abs(b).max()) if operand else 0.0
        more = _more(one, given, precision, c) + subnormal
        sums = c - scaled(one, given, np.zeros_like(c))
        wrong += wrong_sums(a, b, sums[0], relative, np.broadcast_to(more, c.shape)[0], rng)
    return f"{wrong} sums over a few columns of c differ from float64" if wrong else ""


def mistakes(p: GemmShape, arrays: Arrays) -> Iterator[tuple[str, Arrays]]:
    """What a wrong kernel may have computed."""
    a, b = (operand.astype(np.float64) for operand in operands(p, arrays))
    turned = replace(p, layout=p.layout.translate(str.maketrans("nt", "tn")))
    other_a, other_b = (operand.astype(np.float64) for operand in operands(turned, arrays))
    read_as = {"t": "row by row, and it lies transposed", "n": "as if it lay transposed"}
    yield f"a is read {read_as[p.layout[0]]}", {"c": scaled(p, arrays, other_a @ b)}
    yield f"b is read {read_as[p.layout[1]]}", {"c": scaled(p, arrays, a @ other_b)}
    for tile in (8, 16, 32, 64, 128):
        end = p.k // tile * tile
        if 0 < end < p.k:
            words = f"the sum ends after {end} of its {p.k} terms: the last, ragged tile is left out"
            yield words, {"c": scaled(p, arrays, a[..., :end] @ b[:, :end])}
    c = a @ b
    if p.batch > 1:
        yield (
            "entry 0 of the batch is used for all",
            {"c": scaled(p, arrays, np.broadcast_to(c[:1], c.shape))},
        )
        words = "the sums start with those of the entry before: the accumulator is not cleared"
        yield words, {"c": scaled(p, arrays, np.cumsum(c, axis=0))}
    if p.alpha != 1:
        yield "alpha is left out", {"c": scaled(replace(p, alpha=1.0), arrays, c)}
    if p.beta:
        yield "beta c0 is left out", {"c": scaled(replace(p, beta=0.0), arrays, c)}
        yield "c0 is added without beta", {"c": scaled(replace(p, beta=1.0), arrays, c)}
    if p.m == p.n:
        yield "c is transposed: c[n][m] for c[m][n]", {"c": scaled(p, arrays, c.swapaxes(1, 2))}


def probe(p: GemmShape, precision: str, rng: np.random.Generator) -> tuple[GemmShape, Arrays] | None:
    """Inputs that tell an answer of the next lower precision from one of ``precision``.

    Rounded operands show in sums of few products, and sums in half where they grow and grow. The answer of
    the lower precision is tried first: None where it stays within the bound.
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
    outputs = {"c": scaled(p, arrays, lower).astype(TYPES[p.out])}
    within = compare_all(outputs, answer(p, arrays), bound(p, arrays, precision)).ok
    return None if within else (p, arrays)


OPERATION = Operation(
    name="gemm",
    about="matrix product of fp16 or fp32 operands, with sums in fp32",
    problem=GemmShape,
    answer=answer,
    bound=bound,
    check=(  # no tile divides them, and rows of odd lengths are not aligned
        GemmShape(1, 1, 1),
        GemmShape(17, 33, 5),
        GemmShape(36, 129, 70, "fp32", "fp32", "nt", 2, 0.5, -1.5),
        GemmShape(1, 1, 1, "fp16", "fp16"),
        GemmShape(33, 17, 31, "fp16", "fp32", "tn", 2),
        GemmShape(130, 67, 129, "fp16", "fp16"),
        GemmShape(36, 134, 210, "fp16", "fp32", "tt", 1, -2.0, 1.0),
        GemmShape(136, 72, 264, "fp16", "fp16", "nt"),
    ),
    course={
        **{f"fp16-{s}": GemmShape(s, s, s, "fp16", "fp16") for s in (512, 1024, 2048, 4096, 8192)},
        **{f"fp32-{s}": GemmShape(s, s, s) for s in (512, 1024, 2048, 4096, 8192)},
        **{f"odd-{s}": GemmShape(s, s, s, "fp16", "fp16") for s in (4095, 8191)},
        "odd": GemmShape(2047, 1023, 777, "fp16", "fp16"),
        "row": GemmShape(1, 4096, 4096, "fp16", "fp16"),
        "skinny": GemmShape(64, 4096, 4096, "fp16", "fp16"),
        "deep": GemmShape(512, 512, 8192, "fp16", "fp16"),
        "heads": GemmShape(512, 512, 64, "fp16", "fp16", "nt", 96),
        "fc1": GemmShape(10_000, 32, 1296, "fp32", "fp32", "nt"),
        "conv2": GemmShape(16, 115_600, 196),
    },
    of=arrays_of,
    traits={
        "fp16 operands": lambda p: p.dtype == "fp16",
        "an fp16 output": lambda p: p.out == "fp16",
        "a transposed": lambda p: p.layout[0] == "t",
        "b transposed": lambda p: p.layout[1] == "t",
        "batch > 1": lambda p: p.batch > 1,
        "beta other than 0": lambda p: p.beta != 0,
        "k > 16 (a sum has several tiles)": lambda p: p.k > 16,
        "rows of a length that 8 does not divide": lambda p: any(a.shape[-1] % 8 for a in p.arrays.values()),
    },
    mistakes=mistakes,
    probe=probe,
    audit=audit,
    axes={"i": "entry of the batch", "m": "row of c", "n": "column of c", "k": "term of the sum"},
    cure="compare the indices of each load and of the store with c[m,n] = sum over k of a[m,k] b[k,n]",
    default="gemm/v3_registers",
    baseline="gemm/v0_naive",
)
