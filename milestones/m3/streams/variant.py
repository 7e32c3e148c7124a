"""m3/streams: m3/stack_2's kernel on parts of the batch, whose copies and launches overlap."""

from mini_dnn.variant import ConvShape, CopyIn, CopyOut, Images, Launch, Step, Variant, ceil_div

STREAMS = 3  # parts under way at once: one copied in, one computed, one copied out
PARTS = 48  # of the batch; more make the unhidden first copy in shorter
MIN_IMAGES = 100  # of a part; with fewer, the host takes longer to give a step than the GPU to do it
TILE_COLS = 256  # output pixels of a block, two to a thread
MAX_K = 64  # rows of the unrolled input in shared memory at a time, at most


def even_part(size: int, most: int) -> int:
    """Largest part when ``size`` is cut evenly into parts of at most ``most``."""
    return ceil_div(size, ceil_div(size, most))


def defines(s: ConvShape) -> dict[str, int]:
    """The filters' sizes and the tiles: compile-time constants to the kernel."""
    chunk_s = even_part(s.S, MAX_K)
    chunk_r = even_part(s.R, MAX_K // chunk_s)
    chunk_c = even_part(s.C, MAX_K // (chunk_r * chunk_s))
    chunk = {"CHUNK_C": chunk_c, "CHUNK_R": chunk_r, "CHUNK_S": chunk_s}
    return {"C": s.C, "M": s.M, "R": s.R, "S": s.S, "TILE_M": tile_m(s), "TILE_COLS": TILE_COLS, **chunk}


def tile_m(s: ConvShape) -> int:
    """Output channels of a block, those of one WMMA tile: few channels take the flat one."""
    return 8 if s.M <= 8 else 16


def plan(s: ConvShape) -> list[Step]:
    """Copy in, launch and copy out for each part, the streams in turn."""
    columns = s.P * 2 * ceil_div(s.Q, 2)  # output rows padded to whole pairs of pixels
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
