"""m3/sliding_window: unroll, multiply and permute in one kernel, on the tensor cores."""

from dataclasses import dataclass, replace

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

HALF_BYTES, FLOAT_BYTES = 2, 4
STEP = 16  # length of the reduction in one tensor-core product
SHARED_LIMIT = 64 * 1024  # bytes that a block may use on every GPU since sm_75
MAX_COLUMNS = 96  # output columns of a block
MAX_SHIFTS = 32  # shifted copies of a row at a time
MAX_STEPS = 14  # fragments of w that a warp keeps in registers
MAX_IMAGES = 8  # images that a block processes one after the other, if there are enough
MANY_BLOCKS = 2048  # blocks that keep every multiprocessor busy
MAX_ROWS = {8: 8, 16: 9}  # output rows of a block, by TILE_M: a warp keeps their accumulators


@dataclass(frozen=True)
class Tiling:
    """The tiling of a block's work. The kernel's definitions have the same names."""

    TILE_M: int  # output channels and pixels of one tensor-core product
    TILE_Q: int
    TILES_Q: int  # adjacent products in an output row
    ROWS: int  # output rows of a block; a warp processes all rows of its columns
    CHUNK_C: int  # channels, filter rows and filter columns in shared memory at a time
    CHUNK_R: int
    CHUNK_S: int

    @property
    def shifts(self) -> int:
        """The shifted copies of a row: the columns of a chunk, padded so that windows start at half steps."""
        return ceil_div(self.CHUNK_S, 8) * 8

    @property
    def stride(self) -> int:
        """The rows of x_tile from one image row to the next."""
        return self.CHUNK_C * self.shifts

    @property
    def phases(self) -> int:
        """The number of places within a step at which the window of an output row may start."""
        return 2 if self.stride % STEP else 1

    @property
    def steps(self) -> int:
        """The steps of the window of an output row."""
        return ceil_div(self.CHUNK_R * self.stride + (self.phases - 1) * STEP // 2, STEP)

    @property
    def pitch(self) -> int:
        """Halves between rows of x_tile: an odd multiple of 16, which distributes rows over the banks."""
        return (self.TILES_Q * self.TILE_Q // 16 | 1) * 16

    @property
    def x_tile_rows(self) -> int:
        """The rows of x_tile, in whole lines of ``shifts``: the last window ends in the padding."""
        steps = (self.ROWS - 1) * self.stride // STEP + self.steps
        return ceil_div(steps * STEP, self.shifts) * self.shifts

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: x_tile and w_tile, whose memory the results reuse at the end."""
        w_tile = self.phases * self.TILE_M * self.steps * STEP
        tiles = HALF_BYTES * (self.x_tile_rows * self.pitch + w_tile)
        return max(tiles, FLOAT_BYTES * self.TILES_Q * self.TILE_M * self.TILE_Q)


def tiling(s: ConvShape) -> Tiling:
    """Choose as much of the filter at a time, and as many rows, as fit in registers and shared memory."""
    tile_m, tile_q = (8, 32) if s.M <= 8 else (16, 16)
    tiles_q = min(ceil_div(s.Q, tile_q), MAX_COLUMNS // tile_q)
    t = Tiling(tile_m, tile_q, tiles_q, 1, s.C, s.R, min(s.S, MAX_SHIFTS))
    for name in ("CHUNK_C", "CHUNK_R"):
        while (t.steps > MAX_STEPS or t.shared_bytes > SHARED_LIMIT) and getattr(t, name) > 1:
            t = replace(t, **{name: ceil_div(getattr(t, name), 2)})
    rows = min(MAX_ROWS[tile_m], s.P)
    while replace(t, ROWS=rows).shared_bytes > SHARED_LIMIT:
        rows -= 1
    return replace(t, ROWS=rows)


def defines(s: ConvShape) -> dict[str, int]:
    """The sizes of the layer and its tiles are compile-time constants of the kernel."""
    t = tiling(s)
    return {"C": s.C, "M": s.M, "R": s.R, "S": s.S, "PITCH": t.pitch, **vars(t)}


def plan(s: ConvShape) -> list[Launch]:
    """One launch: blocks of rows and columns along x, of channels along y, images along z."""
    t = tiling(s)
    strips = ceil_div(s.P, t.ROWS) * ceil_div(s.Q, t.TILES_Q * t.TILE_Q)
    images = min(MAX_IMAGES, ceil_div(strips * s.N, MANY_BLOCKS))
    grid = (strips, ceil_div(s.M, t.TILE_M), ceil_div(s.N, images))
    return [Launch("conv_fused", grid, (32 * t.TILES_Q,), ("x", "w", "y", s.N, s.H, s.W), t.shared_bytes)]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines=defines,
    parent="m3/stack_2",
    precision="fp16",
    idea="unroll along filter columns only: one operand in shared memory is used for R output rows",
)
