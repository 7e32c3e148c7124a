"""linear/v0_naive: one thread per element of y."""

import numpy as np

from mini_dnn.ops.linear import LinearShape
from mini_dnn.ops.linear_shape import GROUP
from mini_dnn.variant import Launch, Variant, ceil_div

THREADS = 256


def plan(p: LinearShape) -> list[Launch]:
    """A thread for each element of y, then a thread for each group of elements, for the moments."""
    x_moments = "x_moments" if p.norm else "bias"  # without a norm any buffer will do: it is not read
    residual = "x" if p.residual == "none" else "residual"
    lines = {"none": 0, "full": p.m, "shared": p.T}[p.residual]
    pitches = (np.int64(p.x_pitch), np.int64(p.r_pitch))
    args = ("x", "w", "bias", x_moments, residual, "y", p.m, p.n, p.k, *pitches, lines)
    steps = [Launch("linear", (ceil_div(p.m * p.n, THREADS),), (THREADS,), args)]
    if p.moments:
        blocks = ceil_div(p.m * ceil_div(p.n, GROUP), THREADS)
        steps.append(Launch("find_moments", (blocks,), (THREADS,), ("y", "y_moments", p.m, p.n)))
    return steps


VARIANT = Variant(
    op="linear",
    plan=plan,
    defines=lambda p: {"NORM": p.norm, "GELU": p.act == "gelu", "OUT_HALF": p.out == "fp16"},
    precision="fp16",
    idea="one thread per element of y: norm, bias, GELU and residual while the sum is in a register",
)
