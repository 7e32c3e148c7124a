"""m3/constant_memory: m1/direct, reading the filters from constant memory."""

from mini_dnn.variant import ConvShape, CopyToSymbol, Launch, Step, Variant, ceil_div

THREADS = 256  # per block
GRID_Y = 65535  # most blocks along y
W_CONST = 16384  # weights that constant memory holds: 64 KB


def fits(s: ConvShape) -> bool:
    """Whether the filters fit in constant memory."""
    return s.M * s.K <= W_CONST


def plan(s: ConvShape) -> list[Step]:
    """The copy if the filters fit, and one launch: blocks of pixels, output channels, images."""
    grid = (ceil_div(s.P * s.Q, THREADS), min(s.M, GRID_Y), s.N)
    launch = Launch("conv_direct", grid, (THREADS,), ("x", "w", "y", s.C, s.H, s.W, s.M, s.R, s.S))
    return [CopyToSymbol("w_const", "w"), launch] if fits(s) else [launch]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines=lambda s: {"W_IN_CONSTANT": int(fits(s))},
    parent="m1/direct",
    idea="keep the filters in constant memory, because all threads read them in the same order",
)
