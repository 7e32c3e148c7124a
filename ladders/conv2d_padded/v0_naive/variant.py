"""conv2d_padded/v0_naive: one thread per element of y."""

import numpy as np

from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.variant import Launch, Variant, ceil_div

THREADS = 256  # per block


def defines(p: PaddedShape) -> dict[str, int]:
    """The data type, the layout, and the operations that follow the convolution."""
    half, last = p.dtype == "fp16", p.layout == "nhwc"
    return {"HALF": half, "CHANNELS_LAST": last, "RELU": p.relu, "RESIDUAL": p.residual}


def plan(p: PaddedShape) -> list[Launch]:
    """One launch with a thread for each element of y."""
    count = p.N * p.K * p.P * p.Q
    residual = "residual" if p.residual else "x"  # without a residual any buffer will do: it is not read
    sizes = (p.C, p.H, p.W, p.K, p.R, p.stride, p.padding, p.P, p.Q)
    args = ("x", "w", "bias", residual, "y", np.int64(count), *sizes)
    return [Launch("convolve", (ceil_div(count, THREADS),), (THREADS,), args)]


VARIANT = Variant(
    op="conv2d_padded",
    plan=plan,
    defines=defines,
    idea="one thread per element of y, directly from the formula, with bias, residual and ReLU",
)
