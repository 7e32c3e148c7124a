"""Matrix products that the device's own library computes: cuBLAS on a GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

LAYOUTS = ("nn", "nt", "tn", "tt")
LARGEST = 2**31 - 1  # largest size, because the library uses C's int
# The data types of operands and results that it supports, as NumPy names
TYPES = {"float32": ("float32",), "float16": ("float16", "float32"), "bfloat16": ("bfloat16", "float32")}


@dataclass(frozen=True)
class Product:
    """``c (m,n) = alpha a (m,k) @ b (k,n) + beta c`` for each entry of a batch, with sums in fp32.

    Parameters
    ----------
    m, n, k
        The rows and columns of c, and the number of terms in each sum.
    layout
        A letter for a and one for b: ``n`` is row-major, ``t`` is transposed, ``(k,m)`` or ``(n,k)``.
    batch
        The number of products. The entries of the batch are contiguous.
    alpha, beta
        Factors. If ``beta`` is 0, the previous content of c does not matter.
    lda, ldb, ldc
        Elements from one line of an array in memory to the next; 0 means that there are no gaps.
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
        """The number of lines, elements per line, and elements from one line to the next, for a, b and c."""
        a = (self.m, self.k) if self.layout[0] == "n" else (self.k, self.m)
        b = (self.k, self.n) if self.layout[1] == "n" else (self.n, self.k)
        shapes = zip((a, b, (self.m, self.n)), (self.lda, self.ldb, self.ldc), strict=True)
        return tuple((count, length, pitch or length) for (count, length), pitch in shapes)

    def limit_for(self, arrays: Mapping[str, Any]) -> str:
        """Return what is wrong with buffers ``"a"``, ``"b"`` and ``"c"``, or an empty string.

        Parameters
        ----------
        arrays
            By these names: any objects with a ``shape`` and a ``dtype``.
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
        """Return the buffer that is too small for the product, or an empty string."""
        for (name, array), (count, length, pitch) in zip(arrays.items(), self.lines, strict=True):
            if pitch < length:
                return f"lines of {name} are {pitch} elements apart, and have {length}"
            reach = (self.batch * count - 1) * pitch + length
            if prod(array.shape) < reach:
                return f"it reaches {reach:,} elements of {name}, which has {prod(array.shape):,}"
        return ""
