"""m3/stack_1: fusion and tensor cores, the first step of the stack."""

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE_M = 16  # output channels of a block: one WMMA tile
TILE_COLS = 128  # output pixels of a block, and its threads
TILE_K = 32  # rows of the unrolled input in shared memory at a time; at least TILE_M


def plan(s: ConvShape) -> list[Launch]:
    """One launch: blocks of pixels along x, of output channels along y, images along z."""
    grid = (ceil_div(s.P * s.Q, TILE_COLS), ceil_div(s.M, TILE_M), s.N)
    return [Launch("conv_fused", grid, (TILE_COLS,), ("x", "w", "y", s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines={"TILE_M": TILE_M, "TILE_COLS": TILE_COLS, "TILE_K": TILE_K},
    parent="m3/fusion",
    precision="tf32",
    min_arch=80,
    idea="one fused kernel whose product runs on the tensor cores: WMMA, TF32 in, FP32 sum",
)
