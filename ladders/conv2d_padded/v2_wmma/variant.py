"""conv2d_padded/v2_wmma: an implicit GEMM on the tensor cores, with channels last."""

from mini_dnn.ops.conv2d_padded import PaddedShape
from mini_dnn.variant import Launch, Variant, ceil_div

TILE_P = 128  # pixels per block
TILE_C = 64  # output channels per block
TILE_K = 32  # terms of a sum that shared memory holds at a time
THREADS = 256
WIDE = 8  # halves that are moved at once if the number of channels is a multiple of them


def refuses(p: PaddedShape) -> str:
    """The text of the limits: tensor cores multiply halves, and loads take 16 bytes of channels."""
    if (p.dtype, p.layout) != ("fp16", "nhwc"):
        return f"it takes fp16 nhwc, and this is {p.dtype} {p.layout}; conv2d_padded/v1 takes that"
    pixels = p.N * p.P * p.Q
    return "" if pixels < 2**31 - TILE_P else f"y has {pixels:,} pixels, and an int counts them"


def defines(p: PaddedShape) -> dict[str, int]:
    """The tiles, the filter's side, the width of loads and stores, and the operations that follow."""
    tiles = {"TILE_P": TILE_P, "TILE_C": TILE_C, "TILE_K": TILE_K, "THREADS": THREADS}
    wide = {"IN_WIDE": 1 if p.C % WIDE else WIDE, "OUT_WIDE": 1 if p.K % WIDE else WIDE}
    return {**tiles, **wide, "R": p.R, "RELU": p.relu, "RESIDUAL": p.residual}


def plan(p: PaddedShape) -> list[Launch]:
    """One launch with a block for each tile of y. The tiles of channels lie along the grid's y axis."""
    pixels = p.N * p.P * p.Q
    residual = "residual" if p.residual else "x"  # without a residual any buffer will do: it is not read
    args = ("x", "w", "bias", residual, "y", pixels, p.C, p.H, p.W, p.K, p.stride, p.padding, p.P, p.Q)
    return [Launch("convolve", (ceil_div(pixels, TILE_P), ceil_div(p.K, TILE_C)), (THREADS,), args)]


VARIANT = Variant(
    op="conv2d_padded",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="conv2d_padded/v1_shared",
    precision="fp16",
    idea="with channels last, a tile consists of 16-byte pieces of x, and the tensor cores multiply it",
)
