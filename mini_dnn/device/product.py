"""Matrix products as a device's own library computes them: cuBLAS on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

LAYOUTS = ("nn", "nt", "tn", "tt")
LARGEST = 2**31 - 1  # of a size: the library takes C's int
# What it multiplies, and into what: NumPy's names
TYPES = {
    "float32": ("float32",),
    "float16": ("float16", "float32"),
    "bfloat16": ("bfloat16", "float32"),
}


@dataclass(frozen=True)
class Product:
    """``c (m,n) = alpha a (m,k) @ b (k,n) + beta c`` for each entry of a batch, with sums in fp32.

    Parameters
    ----------
    m, n, k
        Rows and columns of c, and terms of each sum.
    layout
        A letter for a and one for b: ``n`` lies row by row; ``t`` is transposed, ``(k,m)`` or ``(n,k)``.
    batch
        Products; entries of the batch lie one behind the other.
    alpha, beta
        Factors. With a ``beta`` of 0, what c held does not matter.
    lda, ldb, ldc
        Elements from one line of an array in memory to the next; 0: there are no gaps.
    """

    m: int
    n: int
    k: int
    layout: str = "nn"
    batch: int = 1
    alpha: float = 1.0
    beta: float = 0.0
    lda: int = 0
    ldb: int = 0
    ldc: int = 0

    @property
    def lines(self) -> tuple[tuple[int, int, int], ...]:
        """Of a, b and c: lines in memory, elements of a line, and from one line to the next."""
        a = (self.m, self.k) if self.layout[0] == "n" else (self.k, self.m)
        b = (self.k, self.n) if self.layout[1] == "n" else (self.n, self.k)
        shapes = zip((a, b, (self.m, self.n)), (self.lda, self.ldb, self.ldc), strict=True)
        return tuple((count, length, pitch or length) for (count, length), pitch in shapes)

    def limit_for(self, arrays: Mapping[str, Any]) -> str:
        """What is wrong with buffers ``"a"``, ``"b"`` and ``"c"`` for this product; empty if nothing is.

        Parameters
        ----------
        arrays
            By these names: anything with a ``shape`` and a ``dtype``.
        """
        sizes = (self.m, self.n, self.k, self.batch, *(pitch for _, _, pitch in self.lines))
        if self.layout not in LAYOUTS or not all(1 <= size <= LARGEST for size in sizes):
            return (
                f"{self} is not a product that cuBLAS supports: sizes are 1 to {LARGEST:,}, layouts {LAYOUTS}"
            )
        kinds = {name: np.dtype(array.dtype).name for name, array in arrays.items()}
        if kinds["a"] != kinds["b"] or kinds["c"] not in TYPES.get(kinds["a"], ()):
            known = "; ".join(f"{given} into {' or '.join(into)}" for given, into in TYPES.items())
            return f"cuBLAS does not multiply {kinds['a']} by {kinds['b']} into {kinds['c']}, but {known}"
        return self.beyond(arrays)

    def beyond(self, arrays: Mapping[str, Any]) -> str:
        """Which buffer is too small for the product; empty if none is."""
        for (name, array), (count, length, pitch) in zip(arrays.items(), self.lines, strict=True):
            if pitch < length:
                return f"lines of {name} are {pitch} elements apart, and have {length}"
            reach = (self.batch * count - 1) * pitch + length
            if prod(array.shape) < reach:
                return f"it reaches {reach:,} elements of {name}, which has {prod(array.shape):,}"
        return ""
