"""Problems of the operation ``linear``, and the problem for given arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mini_dnn.errors import ShapeError
from mini_dnn.ops.problem import TYPES, Array, Arrays, Problem

GROUP = 64  # elements of a line that share a mean and a sum of squares in moments
ACTS, RESIDUALS, OUTS = ("none", "gelu"), ("none", "full", "shared"), ("fp16", "fp32")


@dataclass(frozen=True)
class LinearShape(Problem):
    """A linear layer in halves, with the operations before and after it in a transformer.

    Parameters
    ----------
    N, T
        Entries of the batch, and lines of each of them: tokens.
    n, k
        Length of a line of the output y and of the input x.
    act
        The activation of each sum: ``"none"``, or ``"gelu"`` in its tanh form.
    residual
        The array that is added at the end: ``"none"``; ``"full"``, a line for each line of y; ``"shared"``, T
        lines that are the same for all entries.
    norm
        Whether the sums of a line are divided by the standard deviation of its line of x, which is computed
        from ``x_moments``. This is a layer norm if ``w`` and ``bias`` contain the rest of it: its weight and
        bias are folded in, and the mean of each line of ``w`` is subtracted from that line.
    moments
        Whether there is a second output, ``y_moments``: for each 64 elements of a line of y, their mean and
        the sum of their squared distances from it.
    out
        Type of y: ``"fp16"`` or ``"fp32"``.
    ldx, ldr
        Elements from one line of x, or of the residual, to the next; 0: there is no gap.
    """

    N: int
    T: int
    n: int
    k: int
    act: str = "none"
    residual: str = "none"
    norm: bool = False
    moments: bool = False
    out: str = "fp16"
    ldx: int = 0
    ldr: int = 0

    def __post_init__(self) -> None:
        self._check_fields("a linear layer", "NTnk", act=ACTS, residual=RESIDUALS, out=OUTS)
        self._check_pitches({"ldx": self.k, "ldr": self.n})

    @property
    def m(self) -> int:
        """Lines of x and y."""
        return self.N * self.T

    @property
    def x_pitch(self) -> int:
        """Elements from one line of x to the next."""
        return self.ldx or self.k

    @property
    def r_pitch(self) -> int:
        """The same of the residual."""
        return self.ldr or self.n

    @property
    def arrays(self) -> Mapping[str, Array]:
        """What is given, y, and its moments."""
        half, lines = "float16", (self.N, self.T)
        found = {"x": Array((*lines, self.x_pitch), half, axes="btk", gap=self.x_pitch - self.k)}
        if self.norm:
            found["x_moments"] = Array((*lines, ceil_groups(self.k), 2), axes="btgv")
        if self.residual != "none":
            full, gap = self.residual == "full", self.r_pitch - self.n
            shape = (*(lines if full else lines[1:]), self.r_pitch)
            found["residual"] = Array(shape, half, axes="btn" if full else "tn", split=full, gap=gap)
        found["w"] = Array((self.n, self.k), half, "weight", "nk", split=False)
        found["bias"] = Array((self.n,), role="weight", axes="n", split=False)
        found["y"] = Array((*lines, self.n), TYPES[self.out], "out", "btn")
        if self.moments:
            found["y_moments"] = Array((*lines, ceil_groups(self.n), 2), role="out", axes="btgv")
        return found

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each product. Operations on sums are not counted."""
        return 2 * self.m * self.n * self.k

    def __str__(self) -> str:
        """The text that commands print: ``(32 x 197,768) -> 2304 fp16``, and what comes with it."""
        words = [f"({self.N} x {self.T},{self.k}) -> {self.n} {self.out}"]
        words += ["normed"] if self.norm else []
        words += [self.act] if self.act != "none" else []
        words += [f"{self.residual} residual"] if self.residual != "none" else []
        words += ["moments"] if self.moments else []
        return ", ".join(
            [*words, *(f"{name} {self.fields[name]}" for name in ("ldx", "ldr") if self.fields[name])]
        )


def ceil_groups(length: int) -> int:
    """The number of groups in a line; the last group may be shorter."""
    return -(-length // GROUP)


def moments(lines: np.ndarray) -> np.ndarray:
    """Mean, and sum of the squared distances from it, of each 64 elements: ``(..., groups, 2)``."""
    parts = [lines[..., at : at + GROUP].astype(np.float64) for at in range(0, lines.shape[-1], GROUP)]
    found = [np.stack([part.mean(axis=-1), part.var(axis=-1) * part.shape[-1]], axis=-1) for part in parts]
    return np.stack(found, axis=-2)


def arrays_of(
    x: np.ndarray,
    *others: np.ndarray,
    act: str = "none",
    residual: str = "none",
    norm: bool = False,
    moments: bool = False,
    out: str = "fp16",
) -> tuple[LinearShape, Arrays]:
    """The problem for ``x (N,T,k)`` and the other arrays of a `LinearShape`, in order.

    The lines of a single entry may also be given without the first axis.

    Parameters
    ----------
    x
        Lines, (N, T, k) float16.
    others
        In this order: the moments of x with ``norm=True``, the residual if there is one, weights (n, k)
        float16, and the bias (n,) float32. The output is (N, T, n) float16 or float32.
    act
        The activation: ``"none"`` or ``"gelu"``.
    residual
        The array that is added at the end: ``"none"``; ``"full"``, like the output; or ``"shared"``, (T, n),
        which is added to each entry of the batch.
    norm
        Whether the layer norm of x is part of the layer; see `mini_dnn.ops.linear_shape.LinearShape`.
    moments
        Whether the moments of the output are a second output.
    out
        Type of the output: ``"fp16"`` or ``"fp32"``.

    Raises
    ------
    ShapeError
        The number, the shapes or the types of the arrays are wrong.
    """
    found = [np.asarray(array) for array in (x, *others)]
    shapes = ", ".join(f"{array.shape} {array.dtype}" for array in found)
    count = 3 + bool(norm) + (residual != "none")
    if len(found) != count or found[0].ndim not in (2, 3) or found[-2].ndim != 2:
        raise ShapeError(
            f"found {shapes}; expected x (N,T,k), x_moments with norm=True, the residual where there is one, "
            "w (n,k), bias (n,)"
        )
    N, T, k = (1, *found[0].shape)[-3:]
    problem = LinearShape(N, T, len(found[-2]), k, act, residual, bool(norm), bool(moments), out)
    given = {}
    for (name, array), value in zip(problem.named("in", "weight").items(), found, strict=True):
        whole = value[None] if value.ndim == len(array.shape) - 1 and array.split else value
        if whole.shape != array.shape or whole.dtype != array.dtype:
            raise ShapeError(f"{name} is {value.shape} {value.dtype}; expected {array.shape} {array.dtype}")
        given[name] = np.ascontiguousarray(whole)
    return problem, given
