"""conv2d_padded/v1_shared: tiles in shared memory, 64 pixels by 64 channels per block."""

from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.variant import Launch, Variant, ceil_div

TILE = 64  # pixels per block, and channels per block
TILE_K = 16  # terms of a sum that shared memory holds at a time
THREADS = 256


def defines(p: PaddedShape) -> dict[str, int]:
    """The tiles, the data type, the layout, the filter's side, and the operations that follow."""
    half, last = p.dtype == "fp16", p.layout == "nhwc"
    tiles = {"TILE": TILE, "TILE_K": TILE_K, "THREADS": THREADS}
    return {**tiles, "HALF": half, "CHANNELS_LAST": last, "R": p.R, "RELU": p.relu, "RESIDUAL": p.residual}


def plan(p: PaddedShape) -> list[Launch]:
    """One launch with a block for each tile of y. The tiles of channels lie along the grid's y axis."""
    pixels = p.N * p.P * p.Q
    residual = "residual" if p.residual else "x"  # without a residual any buffer will do: it is not read
    args = ("x", "w", "bias", residual, "y", pixels, p.C, p.H, p.W, p.K, p.stride, p.padding, p.P, p.Q)
    return [Launch("convolve", (ceil_div(pixels, TILE), ceil_div(p.K, TILE)), (THREADS,), args)]


def refuses(p: PaddedShape) -> str:
    """The text of the limit: pixels are counted in ints."""
    pixels = p.N * p.P * p.Q
    return "" if pixels < 2**31 - TILE else f"y has {pixels:,} pixels, and an int counts them"


VARIANT = Variant(
    op="conv2d_padded",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="conv2d_padded/v0_naive",
    idea="the convolution is a product of two matrices, one of which is never stored, in shared-memory tiles",
)
