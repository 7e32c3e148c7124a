"""Problems of the operation ``attention``, the layout of their arrays, and the problem for given arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops.problem import TYPES, Array, Arrays, Problem, exactly

CODES = {"fp32": 0, "fp16": 1}  # the numbers of the types in kernels
LAYOUTS = ("contiguous", "packed")
WIDTHS = (32, 64, 128)  # supported sizes of a head
PARTS = ("q", "k", "v")


@dataclass(frozen=True)
class AttentionShape(Problem):
    """Attention of tokens to each other, for each head of each entry of a batch.

    Parameters
    ----------
    B, H, T, d
        Entries of the batch, heads, tokens (queries, and as many keys and values), and numbers in each of
        them: 32, 64 or 128.
    dtype
        Type of all arrays: ``"fp16"`` or ``"fp32"``.
    layout
        ``"contiguous"``: q, k and v are three arrays (B,H,T,d), and the output is one more. ``"packed"``:
        they are parts of one array ``qkv (B,T,3,H,d)``, which one linear layer computes for all three, and
        the output is (B,T,H,d), the input of the next linear layer.
    causal
        Whether a token attends only to itself and the tokens before it.
    scale
        Factor of the scores, rounded to fp32; 0 stands for 1 / sqrt(d).
    """

    batch_field = "B"

    B: int
    H: int
    T: int
    d: int
    dtype: str = "fp16"
    layout: str = "contiguous"
    causal: bool = False
    scale: float = 0.0

    def __post_init__(self) -> None:
        self._check_fields("attention", "BHT", dtype=CODES, layout=LAYOUTS)
        if self.d not in WIDTHS:
            known = f"expected {', '.join(map(str, WIDTHS))}"
            if self.d > max(WIDTHS):
                raise ShapeError(f"d is {self.d}; {known}: no kernel has wider heads")
            raise ShapeError(
                f"d is {self.d}; {known}: pad each q, k and v with zeros to the next of them, and pass "
                "scale, because its default depends on d"
            )
        if not abs(self.scale) <= float(np.finfo(np.float32).max):
            raise ShapeError(f"scale is {self.scale}; expected a number that fits fp32, or 0 for 1 / sqrt(d)")
        if not self.factor:  # kernels multiply hidden scores of -inf by it
            raise ShapeError(
                f"scale is {self.scale}, which is 0 in fp32; expected a larger number, or 0 for 1 / sqrt(d)"
            )

    @property
    def factor(self) -> float:
        """The factor of the scores: a number of fp32."""
        return float(np.float32(self.scale or 1 / sqrt(self.d)))

    @property
    def arrays(self) -> Mapping[str, Array]:
        """What is given, and ``o``."""
        dtype = TYPES[self.dtype]
        if self.layout == "packed":
            given = {"qkv": Array((self.B, self.T, 3, self.H, self.d), dtype, axes="btphd")}
            return {**given, "o": Array((self.B, self.T, self.H, self.d), dtype, "out", "bthd")}
        shape = (self.B, self.H, self.T, self.d)
        given = {name: Array(shape, dtype, axes="bhtd") for name in PARTS}
        return {**given, "o": Array(shape, dtype, "out", "bhtd")}

    @property
    def buffers(self) -> tuple[str, str, str, str]:
        """Names of the arrays that contain q, k, v and o."""
        return ("qkv", "qkv", "qkv", "o") if self.layout == "packed" else ("q", "k", "v", "o")

    @property
    def part(self) -> int:
        """The distance from q to k, and from k to v, in elements, if they are in one array; otherwise 0."""
        return self.H * self.d if self.layout == "packed" else 0

    @property
    def strides(self) -> tuple[int, int, int]:
        """Elements from one entry, head and token of q, k and v to the next."""
        if self.layout == "packed":
            return 3 * self.T * self.H * self.d, self.d, 3 * self.H * self.d
        return self.H * self.T * self.d, self.T * self.d, self.d

    @property
    def out_strides(self) -> tuple[int, int, int]:
        """The same for o."""
        entry = self.H * self.T * self.d
        if self.layout == "packed":
            return entry, self.d, self.H * self.d
        return entry, self.T * self.d, self.d

    @property
    def pairs(self) -> int:
        """Pairs of a query and a key in a head, without those that are masked."""
        return self.T * (self.T + 1) // 2 if self.causal else self.T * self.T

    @property
    def flops(self) -> int:
        """Two products for each pair, d multiplications and additions each; exponentials are not counted."""
        return 4 * self.B * self.H * self.pairs * self.d

    def __str__(self) -> str:
        """The text that commands print: ``32 x 12 heads of 197 tokens of 64, fp16``, and what is unusual."""
        words = [f"{self.B} x {self.H} heads of {self.T:,} tokens of {self.d}", self.dtype]
        words += ["packed"] if self.layout == "packed" else []
        words += ["causal"] if self.causal else []
        return ", ".join([*words, *([f"scale {self.scale:g}"] if self.scale else [])])


def parts(p: AttentionShape, arrays: Arrays) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """q, k and v ``(B,H,T,d)``: views."""
    if p.layout == "packed":
        q, k, v = (arrays["qkv"][:, :, i].swapaxes(1, 2) for i in range(3))
    else:
        q, k, v = (arrays[name] for name in PARTS)
    return q, k, v


def given(p: AttentionShape, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Arrays:
    """``q, k, v (B,H,T,d)`` as arrays of the problem, in its type."""
    found = [np.asarray(x, TYPES[p.dtype]) for x in (q, k, v)]
    if p.layout == "packed":
        return {"qkv": np.ascontiguousarray(np.stack([x.swapaxes(1, 2) for x in found], axis=2))}
    return {name: np.ascontiguousarray(x) for name, x in zip(PARTS, found, strict=True)}


def lying(p: AttentionShape, o: np.ndarray) -> np.ndarray:
    """A view of ``o (B,H,T,d)`` in the layout of the output, and back."""
    return o.swapaxes(1, 2) if p.layout == "packed" else o


def arrays_of(
    q: np.ndarray, *kv: np.ndarray, causal: bool = False, scale: float = 0.0
) -> tuple[AttentionShape, Arrays]:
    """The problem for ``q, k, v (B,H,T,d)``, or for one array ``(B,T,3,H,d)`` with all of them.

    The arrays of a single entry may also be given without the batch's axis.

    Parameters
    ----------
    q, kv
        Queries, keys and values, (B, H, T, d) each, with d = 32, 64 or 128; or one array (B, T, 3, H, d) with
        all three. They are computed as fp16 if all are float16, and otherwise as fp32. The output is
        (B, H, T, d), or (B, T, H, d) for one array.
    causal
        Whether a token attends only to itself and the tokens before it.
    scale
        Factor of the scores; 0 stands for 1 / sqrt(d).

    Raises
    ------
    ShapeError
        Another number of arrays, wrong ranks or types, or sizes that do not match.
    """
    found = [np.asarray(array) for array in (q, *kv)]
    shapes = ", ".join(str(array.shape) for array in found)
    if len(found) not in (1, 3):
        raise ShapeError(
            f"found {len(found)} arrays, {shapes}; expected three, q, k and v (B,H,T,d), or one (B,T,3,H,d)"
        )
    rank, axes = (5, "(B,T,3,H,d)") if len(found) == 1 else (4, "(B,H,T,d)")
    ranks = {array.ndim for array in found}
    if len(ranks) > 1 or not ranks <= {rank - 1, rank}:
        raise ShapeError(f"found {shapes}; expected {axes}, or a single entry without its first axis")
    found = [array if array.ndim == rank else array[None] for array in found]
    if len({array.shape for array in found}) > 1:
        raise ShapeError(f"q, k and v have the shapes {shapes}; expected the same {axes} for all")
    dtype = "fp16" if {array.dtype for array in found} == {np.dtype(np.float16)} else "fp32"
    if rank == 5:
        B, T, three, H, d = found[0].shape
        if three != 3:
            raise ShapeError(f"found {shapes}; expected {axes}: q, k and v along the third axis")
    else:
        B, H, T, d = found[0].shape
    layout = "packed" if rank == 5 else "contiguous"
    problem = AttentionShape(B, H, T, d, dtype, layout, bool(causal), float(scale))
    names = problem.named("in")
    return problem, {name: exactly(name, a, TYPES[dtype]) for name, a in zip(names, found, strict=True)}
