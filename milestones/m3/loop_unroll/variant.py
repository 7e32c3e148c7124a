"""m3/loop_unroll: m3/fusion with its loops unrolled and its filter size known to the compiler."""

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE = 16  # side of an output tile; TILE * TILE threads per block


def defines(s: ConvShape) -> dict[str, int]:
    """The size of the filter is a compile-time constant, like that of the tile."""
    return {"TILE": TILE, "R": s.R, "S": s.S}


def plan(s: ConvShape) -> list[Launch]:
    """One launch: blocks of pixels along x, of output channels along y, images along z."""
    grid = (ceil_div(s.P * s.Q, TILE), ceil_div(s.M, TILE), s.N)
    return [Launch("conv_fused", grid, (TILE, TILE), ("x", "w", "y", s.C, s.H, s.W, s.M))]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines=defines,
    parent="m3/fusion",
    idea="compile-time sizes: loops are unrolled, and divisions by the filter size become multiplications",
)
