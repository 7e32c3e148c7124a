"""m3/fusion: m2's unroll, GEMM and permutation in one kernel."""

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE = 16  # side of an output tile; TILE * TILE threads per block


def plan(s: ConvShape) -> list[Launch]:
    """One launch: blocks of pixels along x, of output channels along y, images along z."""
    grid = (ceil_div(s.P * s.Q, TILE), ceil_div(s.M, TILE), s.N)
    return [Launch("conv_fused", grid, (TILE, TILE), ("x", "w", "y", s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines={"TILE": TILE},
    parent="m2/unroll_gemm",
    idea="unroll in the GEMM's tile loader and write y in place: col is never stored in memory",
)
