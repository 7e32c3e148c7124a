"""m1/tiled_direct: m1/direct, reading x from a tile in shared memory."""

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

THREADS = 512  # at most, per block; one per output of the tile
TILE_P, TILE_Q = 128, 64  # at most, rows and columns of a tile
CHUNK = 33  # at most, rows and columns of the filter at a time: tile and halo take up to 23 KB
GRID_Y = 65535  # most blocks along y


def equal_parts(size: int, most: int) -> int:
    """The size of the equal parts if ``size`` is divided into as few as possible of at most ``most``."""
    return ceil_div(size, ceil_div(size, most))


def defines(s: ConvShape) -> dict[str, int]:
    """The tile of outputs, and the part of the filter that shared memory holds at a time."""
    tile_q = equal_parts(s.Q, TILE_Q)
    tile_p = equal_parts(s.P, min(THREADS // tile_q, TILE_P))
    return {"TILE_P": tile_p, "TILE_Q": tile_q, "CHUNK_R": min(s.R, CHUNK), "CHUNK_S": min(s.S, CHUNK)}


def plan(s: ConvShape) -> list[Launch]:
    """One launch: blocks of tiles along x, output channels along y, images along z."""
    d = defines(s)
    grid = (ceil_div(s.P, d["TILE_P"]) * ceil_div(s.Q, d["TILE_Q"]), min(s.M, GRID_Y), s.N)
    args = ("x", "w", "y", s.C, s.H, s.W, s.M, s.R, s.S)
    return [Launch("conv_direct", grid, (d["TILE_Q"], d["TILE_P"]), args)]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines=defines,
    parent="m1/direct",
    idea="copy the inputs of a tile of outputs, including the halo, to shared memory, and read them there",
)
