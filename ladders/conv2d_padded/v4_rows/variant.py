"""conv2d_padded/v4_rows: 64 channels in and out; pixels are loaded once for the whole filter."""

from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.plans import implicit_rows
from mini_dnn.plans.implicit import Names
from mini_dnn.variant import Launch, Variant


def plan(p: PaddedShape) -> list[Launch]:
    """One launch with a block per multiprocessor. A tile consists of several rows."""
    names = Names("x", "w", "bias", "y", "residual" if p.residual else "")
    return [implicit_rows.launch(p, names, "convolve", early=True)]


VARIANT = Variant(
    op="conv2d_padded",
    plan=plan,
    refuses=implicit_rows.fault,
    parent="conv2d_padded/v3_wgmma",
    precision="fp16",
    min_arch=90,
    idea="pixels are loaded once; the positions in the filter are shifts of one matrix, and weights stay",
)
