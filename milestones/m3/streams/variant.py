"""m3/streams: m3/stack_2's kernel on parts of the batch, whose copies and launches overlap."""

from mini_dnn.variant import ConvShape, CopyIn, CopyOut, Images, Launch, Step, Variant, ceil_div

STREAMS = 3  # parts in flight: one is copied in, one is computed, one is copied out
PARTS = 48  # of the batch; with more parts, the first copy in, which nothing hides, is shorter
MIN_IMAGES = 100  # of a part; with fewer, the host takes longer to issue a step than the GPU to run it
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


def plan(s: ConvShape) -> list[Step]:
    """Copy in, launch and copy out for each part, with the streams in turn."""
    columns = s.P * 2 * ceil_div(s.Q, 2)  # output rows, padded to whole pairs of pixels
    parts = min(PARTS, ceil_div(s.N, MIN_IMAGES))
    steps: list[Step] = []
    for part in range(parts):
        first, last, stream = part * s.N // parts, (part + 1) * s.N // parts, part % STREAMS
        x, y = Images("x", first, last), Images("y", first, last)
        grid = (ceil_div(columns, TILE_COLS), ceil_div(s.M, tile_m(s)), last - first)
        launch = Launch("conv_fused", grid, (TILE_COLS // 2,), (x, "w", y, s.H, s.W), stream=stream)
        steps += [CopyIn(x, stream), launch, CopyOut(y, stream)]
    return steps


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines=defines,
    parent="m3/stack_2",
    precision="fp16",
    idea="copy the next part in and the last part out while the current part is computed, on several streams",
)
