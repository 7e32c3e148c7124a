"""layers/custom: unroll, multiply and permute in one kernel, on the tensor cores."""

from dataclasses import dataclass, replace

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

HALF_BYTES, FLOAT_BYTES = 2, 4
STEP = 16  # length of the reduction in one tensor-core product
SHARED_LIMIT = 64 * 1024  # bytes a block may have on every GPU since sm_75
MAX_COLUMNS = 96  # output columns of a block
MAX_SHIFTS = 32  # shifted copies of a row at a time
MAX_TILES = 48  # products of a block
TILES_PER_WARP = 4  # accumulators of 8 registers that a warp keeps


@dataclass(frozen=True)
class Tiling:
    """How one block's work is cut; the kernel's definitions have the same names."""

    TILE_M: int  # output channels and pixels of one tensor-core product
    TILE_Q: int
    TILES_Q: int  # products side by side in an output row
    ROWS: int  # output rows of a block
    CHUNK_C: int  # channels, filter rows and filter columns that shared memory holds at a time
    CHUNK_R: int
    CHUNK_S: int

    @property
    def chunk_k(self) -> int:
        """Length of the reduction within a chunk, padded to whole steps."""
        return ceil_div(self.CHUNK_C * self.CHUNK_R * self.CHUNK_S, STEP) * STEP

    @property
    def pitch(self) -> int:
        """Halves between rows of x_tile: an odd multiple of 16, which spreads rows over the banks."""
        return (self.TILES_Q * self.TILE_Q // 16 | 1) * 16

    @property
    def x_tile_rows(self) -> int:
        """Rows of x_tile, whole lines of CHUNK_S: the last output row's window ends in the padding."""
        rows = (self.ROWS - 1) * self.CHUNK_C * self.CHUNK_S + self.chunk_k
        return ceil_div(rows, self.CHUNK_S) * self.CHUNK_S

    @property
    def warps(self) -> int:
        """Warps in a block."""
        return ceil_div(self.ROWS * self.TILES_Q, TILES_PER_WARP)

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: x_tile and w_tile, whose place the results take at the end."""
        tiles = HALF_BYTES * (self.x_tile_rows * self.pitch + self.TILE_M * self.chunk_k)
        return max(tiles, FLOAT_BYTES * self.warps * self.TILE_M * self.TILE_Q)


def tiling(s: ConvShape) -> Tiling:
    """As much of the filter at a time as fits beside one output row; then as many rows as fit, evenly cut."""
    tile_m, tile_q = (8, 32) if s.M <= 8 else (16, 16)
    tiles_q = min(ceil_div(s.Q, tile_q), MAX_COLUMNS // tile_q)
    t = Tiling(tile_m, tile_q, tiles_q, 1, s.C, s.R, min(s.S, MAX_SHIFTS))
    for name in ("CHUNK_C", "CHUNK_R"):
        while t.shared_bytes > SHARED_LIMIT and getattr(t, name) > 1:
            t = replace(t, **{name: ceil_div(getattr(t, name), 2)})
    rows = min(s.P, MAX_TILES // tiles_q)
    while replace(t, ROWS=rows).shared_bytes > SHARED_LIMIT:
        rows -= 1
    return replace(t, ROWS=ceil_div(s.P, ceil_div(s.P, rows)))


def defines(s: ConvShape) -> dict[str, int]:
    """The layer's sizes and its tiles: compile-time constants to the kernel."""
    t = tiling(s)
    return {"C": s.C, "M": s.M, "R": s.R, "S": s.S, "WARPS": t.warps, "PITCH": t.pitch, **vars(t)}


def plan(s: ConvShape) -> list[Launch]:
    """One launch: blocks of rows and columns along x, of channels along y, images along z."""
    t = tiling(s)
    strips = ceil_div(s.P, t.ROWS) * ceil_div(s.Q, t.TILES_Q * t.TILE_Q)
    grid = (strips, ceil_div(s.M, t.TILE_M), s.N)
    return [Launch("conv_fused", grid, (32 * t.warps,), ("x", "w", "y", s.H, s.W), t.shared_bytes)]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    defines=defines,
    parent="m2/unroll_gemm",
    precision="fp16",
    idea="one fused kernel: unroll along filter columns only, in shared memory; WMMA, FP16 in, FP32 sum",
)
