"""m1/direct: one thread computes one output element, straight from the definition."""

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

THREADS = 256  # per block
GRID_Y = 65535  # most blocks along y


def plan(s: ConvShape) -> list[Launch]:
    """One launch: blocks of pixels along x, output channels along y, images along z."""
    grid = (ceil_div(s.P * s.Q, THREADS), min(s.M, GRID_Y), s.N)
    return [Launch("conv_direct", grid, (THREADS,), ("x", "w", "y", s.C, s.H, s.W, s.M, s.R, s.S))]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    parent="m1/cpu",
    idea="one thread per output element, all of them at once",
)
