"""m3/stack_2: stack_1 with compile-time filters, unrolled loops, __restrict__ and FP16 inputs."""

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE_COLS = 256  # output pixels of a block, two per thread
MAX_K = 64  # at most, rows of the unrolled input in shared memory at a time


def even_part(size: int, most: int) -> int:
    """The largest part if ``size`` is divided evenly into parts of at most ``most``."""
    return ceil_div(size, ceil_div(size, most))


def defines(s: ConvShape) -> dict[str, int]:
    """The sizes of the filters and the tiles are compile-time constants of the kernel."""
    chunk_s = even_part(s.S, MAX_K)
    chunk_r = even_part(s.R, MAX_K // chunk_s)
    chunk_c = even_part(s.C, MAX_K // (chunk_r * chunk_s))
    chunk = {"CHUNK_C": chunk_c, "CHUNK_R": chunk_r, "CHUNK_S": chunk_s}
    return {"C": s.C, "M": s.M, "R": s.R, "S": s.S, "TILE_M": tile_m(s), "TILE_COLS": TILE_COLS, **chunk}


def tile_m(s: ConvShape) -> int:
    """The output channels of a block are those of one WMMA tile. A flat tile is used for few channels."""
    return 8 if s.M <= 8 else 16


def plan(s: ConvShape) -> list[Launch]:
    """One launch: blocks of pixels along x, of output channels along y, images along z."""
    columns = s.P * 2 * ceil_div(s.Q, 2)  # output rows, padded to whole pairs of pixels
    grid = (ceil_div(columns, TILE_COLS), ceil_div(s.M, tile_m(s)), s.N)
    return [Launch("conv_fused", grid, (TILE_COLS // 2,), ("x", "w", "y", s.H, s.W))]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines=defines,
    parent="m3/stack_1",
    precision="fp16",
    idea="filter sizes known to the compiler and loops unrolled, __restrict__, FP16 inputs",
)
