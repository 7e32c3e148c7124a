"""m3/restrict: m3/fusion with const __restrict__ pointers."""

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
    parent="m3/fusion",
    idea="promise that the buffers do not overlap, so that the compiler may cache loads and move them up",
)
