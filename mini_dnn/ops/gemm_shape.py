"""Problems of the operation ``gemm``, and the problem for given arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops.problem import TYPES, Array, Arrays, Problem, Share, exactly, spans

CODES = {name: code for code, name in enumerate(TYPES)}  # the numbers of the types in kernels
LAYOUTS = ("nn", "nt", "tn", "tt")
SIZES = ("m", "n", "k", "batch")
PITCHES = ("lda", "ldb", "ldc")
CONSTANT = ("", "b")
COLUMNS = 64  # columns of c that stay together: 128 bytes of halves


@dataclass(frozen=True)
class GemmShape(Problem):
    """A matrix product for each entry of a batch, with sums in fp32.

    Parameters
    ----------
    m, n, k
        Rows and columns of c, and terms of each sum.
    dtype, out
        Types of the operands a and b, and of c and c0: ``"fp32"``, ``"fp16"`` or ``"bf16"``.
    layout
        How a and b lie in memory, a letter each, as in BLAS: ``n`` is row by row, ``(m,k)`` and ``(k,n)``;
        ``t`` is transposed, ``(k,m)`` and ``(n,k)``.
    batch
        The number of products.
    alpha, beta
        Factors, rounded to fp32. With a ``beta`` of 0 there is no c0.
    lda, ldb, ldc
        Leading dimensions, as in BLAS: elements from the start of a line of a, b, and c and c0 in memory to
        the start of the next one. A line may be followed by a gap, which is neither read as an operand nor
        written. 0: there is no gap.
    constant
        ``"b"`` promises that no work that may still run when the product starts writes b, which may be the
        weights of a layer. A kernel that starts early may then load b at once. Otherwise empty.
    """

    batch_field = "batch"

    m: int
    n: int
    k: int
    dtype: str = "fp32"
    out: str = "fp32"
    layout: str = "nn"
    batch: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    lda: int = 0
    ldb: int = 0
    ldc: int = 0
    constant: str = ""

    def __post_init__(self) -> None:
        self._check_fields(
            "a matrix product", SIZES, dtype=TYPES, out=TYPES, layout=LAYOUTS, constant=CONSTANT
        )
        for name in ("alpha", "beta"):
            if not abs(value := getattr(self, name)) <= float(np.finfo(np.float32).max):
                raise ShapeError(f"{name} is {value}; expected a number that fits fp32")
        self._check_pitches(dict(zip(PITCHES, self.lengths, strict=True)))

    @property
    def lengths(self) -> tuple[int, int, int]:
        """Elements of a line of a, b and c in memory: of a row, or of a column where it is transposed."""
        a, b = self.layout[0], self.layout[1]
        return self.m if a == "t" else self.k, self.k if b == "t" else self.n, self.n

    @property
    def pitches(self) -> tuple[int, int, int]:
        """Elements from one line of a, b and c in memory to the next, gaps included."""
        lda, ldb, ldc = (getattr(self, p) or n for p, n in zip(PITCHES, self.lengths, strict=True))
        return lda, ldb, ldc

    @property
    def arrays(self) -> Mapping[str, Array]:
        """The operands as they lie in memory, c0 if it counts, and c."""
        axes = {"a": "mk", "b": "kn", "c": "mn"}
        sizes = {"m": self.m, "n": self.n, "k": self.k}
        found = {}
        for name, letter, length, pitch in zip(
            "abc", f"{self.layout}n", self.lengths, self.pitches, strict=True
        ):
            lying = axes[name] if letter == "n" else axes[name][::-1]
            dtype = TYPES[self.out if name == "c" else self.dtype]
            shape = (self.batch, sizes[lying[0]], pitch)
            found[name] = Array(shape, dtype, axes=f"i{lying}", gap=pitch - length)
        c = found.pop("c")
        return {**found, **({"c0": c} if self.beta else {}), "c": replace(c, role="out")}

    @property
    def constants(self) -> tuple[str, ...]:
        """The arrays that a kernel may load before the previous one has ended."""
        return (self.constant,) if self.constant else ()

    @property
    def text(self) -> str:
        """The values of its fields in the form of ``--shapes``. An empty ``constant`` is omitted."""
        return super().text.removesuffix(",")

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product; alpha and beta are not counted."""
        return 2 * self.batch * self.m * self.n * self.k

    def shares(self, count: int) -> list[Share]:
        """Parts of the batch, or columns of c of a single product, in multiples of a cache line."""
        if self.batch > 1:
            return super().shares(count)
        found = []
        for first, last in spans(self.n, count, COLUMNS):
            columns, all_ = slice(first, last), slice(None)
            ldb = self.ldb if self.layout[1] == "t" else 0  # its lines are whole columns
            part = replace(self, n=last - first, ldb=ldb, ldc=0)
            index: dict[str, tuple[slice, ...]] = {
                name: (all_, all_, columns) for name in part.arrays if name != "a"
            }
            if self.layout[1] == "t":
                index["b"] = (all_, columns)
            found.append(Share(part, index))
        return found

    def __str__(self) -> str:
        """The text that commands print: ``(m,k) @ (k,n) fp16 -> fp32``, and what is unusual."""
        words = [f"({self.m},{self.k}) @ ({self.k},{self.n}) {self.dtype} -> {self.out}"]
        words += [f"{name} transposed" for name, how in zip("ab", self.layout, strict=True) if how == "t"]
        words += [f"batch of {self.batch}"] if self.batch > 1 else []
        words += [f"alpha {self.alpha:g}"] if self.alpha != 1 else []
        words += [f"beta {self.beta:g}"] if self.beta else []
        known = self.fields
        words += [f"{name} {known[name]}" for name in PITCHES if known[name]]
        return ", ".join([*words, *(f"{name} constant" for name in self.constants)])


def arrays_of(
    a: np.ndarray,
    b: np.ndarray,
    *,
    c0: np.ndarray | None = None,
    out: str = "fp32",
    layout: str = "nn",
    alpha: float = 1.0,
    beta: float | None = None,
    constant: str = "",
) -> tuple[GemmShape, Arrays]:
    """The problem for ``a (batch,m,k)`` and ``b (batch,k,n)``, if nothing is transposed.

    All arrays of a single product may also be given without the batch's axis.

    Parameters
    ----------
    a, b
        Operands, (batch, m, k) and (batch, k, n). They are multiplied as fp16 if both are float16, as bf16 if
        both are bfloat16, and otherwise as fp32.
    c0
        An array like the result, (batch, m, n), which is multiplied by ``beta`` and added.
    out
        Type of the result: ``"fp32"``, ``"fp16"`` or ``"bf16"``; or an array for the result.
    layout
        A letter for a and one for b: ``"n"`` is row by row, and ``"t"`` is transposed, (batch, k, m) for a
        and (batch, n, k) for b.
    alpha, beta
        Factors of the product and of c0. ``beta`` is 1 by default if c0 is given.
    constant
        ``"b"`` promises that no work that may still run when the product starts writes b.

    Raises
    ------
    ShapeError
        Wrong ranks or types, or sizes that do not match.
    """
    beta = float(c0 is not None) if beta is None else float(beta)
    if (c0 is None) != (beta == 0):
        wrong = f"beta is {beta:g}, and c0 is missing" if c0 is None else "c0 is given, and beta is 0"
        raise ShapeError(f"{wrong}; pass both, with a beta other than 0, or neither")
    given = {"a": np.asarray(a), "b": np.asarray(b)} | ({} if c0 is None else {"c0": np.asarray(c0)})
    given = _batches(given)
    kinds = {given["a"].dtype, given["b"].dtype}
    dtype = next((name for name, kind in TYPES.items() if kinds == {np.dtype(kind)}), "fp32")
    batch, m, k = given["a"].shape if layout[:1] == "n" else given["a"].swapaxes(1, 2).shape
    rows, n = given["b"].shape[1:] if layout[1:] != "t" else given["b"].shape[:0:-1]
    problem = GemmShape(m, n, k, dtype, out, layout, batch, float(alpha), beta, constant=constant)
    if rows != k:
        raise ShapeError(
            f"a is {np.shape(a)} and b is {np.shape(b)}: with layout '{layout}', k is {k} in a and {rows} "
            "in b; expected the same"
        )
    return problem, {name: _as_given(name, array, problem) for name, array in given.items()}


def _batches(given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The arrays, each with the axis of the batch."""
    ranks = {array.ndim for array in given.values()}
    if len(ranks) != 1 or not ranks <= {2, 3}:
        found = ", ".join(f"{name} is {array.shape}" for name, array in given.items())
        low = [f": {name}[None]" for name, array in given.items() if ranks == {2, 3} and array.ndim == 2]
        raise ShapeError(f"{found}; expected a matrix each, or a batch of matrices each{(*low, '')[0]}")
    return {name: array if array.ndim == 3 else array[None] for name, array in given.items()}


def _as_given(name: str, array: np.ndarray, problem: GemmShape) -> np.ndarray:
    """The array in the problem's type and C order, if its shape is right and nothing is lost."""
    expected = problem.arrays[name]
    if array.shape != expected.shape:
        raise ShapeError(f"{name} has the shape {array.shape}; {problem} needs {expected.shape}")
    return exactly(name, array, expected.dtype)
