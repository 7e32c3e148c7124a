"""layers/fused: convolution, ReLU and max-pool in one kernel, on the tensor cores."""

from dataclasses import dataclass

from mini_dnn.fused import ConvPoolShape
from mini_dnn.variant import Launch, Variant, ceil_div

FLOAT_BYTES = 4
TILE_N = 4  # groups of pixels of a product, in each of two strips
STEP = 16  # length of the reduction in one product
MAX_ROWS = 10  # of a strip: registers for the sums
MAX_WEIGHTS = 64  # registers that a thread keeps weights in
MAX_CHANNELS = 4  # of the input: one quad
MAX_M = 1024  # output channels, so that one block clears all counters
BUFFERS = (
    (4, 2),
    (3, 2),
    (2, 2),
    (2, 1),
)  # of bands of the input, of slabs of the output; the first that fits
MAX_GRID = 480  # more than are resident anywhere: blocks that come late find no work
THREADS = 256  # per block in conv_pool_direct
POOLS = (1, 2, 4)  # windows that lie within four pixels
GRID_Y = 65535  # most blocks along y
MAX_BAND = 24  # output rows of a unit of work
MAX_WARPS = 5  # of a block
BLOCKS = 3  # on a multiprocessor: 128 registers a thread
SHARED_LIMIT = 64 * 1024  # bytes a block may have on every GPU since sm_75


@dataclass(frozen=True)
class Tiling:
    """How the work is cut; the kernel's definitions have the same names."""

    SHIFTS: int  # pixels of a group
    ROWS: int  # output rows of a strip
    PARTS: int  # of a band, two strips each
    INPUTS: int  # bands of the input in shared memory
    OUTPUTS: int  # slabs of the output
    WARPS: int
    BLOCKS: int  # on a multiprocessor
    in_pitch: int  # floats of a band with the padding behind it
    out_pitch: int  # floats of a slab's channel

    @property
    def tile_m(self) -> int:
        """Output channels of a block."""
        return 16 // self.SHIFTS

    @property
    def band(self) -> int:
        """Output rows of a unit of work."""
        return 2 * self.ROWS * self.PARTS

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        slabs = self.OUTPUTS * self.tile_m * self.out_pitch
        return FLOAT_BYTES * (slabs + self.INPUTS * self.in_pitch)


def steps(s: ConvPoolShape, shifts: int) -> int:
    """Products along a filter row."""
    return ceil_div((s.S + shifts - 1) * (4 // shifts), STEP)


def strip_rows(s: ConvPoolShape) -> int:
    """Rows of a strip, a multiple of the pool's, so that few rows of the last strips are empty."""
    candidates = range(s.pool, MAX_ROWS + 1, s.pool)
    return min(candidates, key=lambda rows: (ceil_div(s.P, 2 * rows) * rows, -rows))


def cut(s: ConvPoolShape, bands: int, inputs: int, outputs: int) -> Tiling:
    """The tiling with so many bands, and so many buffers."""
    shifts = {1: 4, 2: 2}.get(s.C, 1)
    rows = strip_rows(s)
    parts = ceil_div(ceil_div(s.P, bands), 2 * rows)
    band = 2 * parts * rows
    jobs = parts * ceil_div(s.Q, TILE_N * shifts)
    warps = ceil_div(jobs, ceil_div(jobs, MAX_WARPS))  # as many as take part in the last round too
    overrun = 4 * shifts * (steps(s, shifts) + 1)
    in_pitch = ceil_div(s.C * (band + s.R - 1) * s.W + overrun, 32) * 32
    # whole lines and a part of one, so that channels that are stored together lie in different banks
    out_pitch = ceil_div(band // s.pool * s.y[3], 32) * 32 + (8 if shifts == 1 else 16)
    return Tiling(shifts, rows, parts, inputs, outputs, warps, BLOCKS, in_pitch, out_pitch)


def tiling(s: ConvPoolShape) -> Tiling | None:
    """Bands as tall as shared memory allows; None: this shape is for conv_pool_direct."""
    if s.C > MAX_CHANNELS or 4 * s.R * steps(s, {1: 4, 2: 2}.get(s.C, 1)) > MAX_WEIGHTS or s.M > MAX_M:
        return None
    for bands in range(ceil_div(s.P, MAX_BAND), s.P + 1):
        for inputs, outputs in BUFFERS:
            t = cut(s, bands, inputs, outputs)
            if t.shared_bytes <= SHARED_LIMIT:
                return t
    return None


def defines(s: ConvPoolShape, t: Tiling | None) -> dict[str, int]:
    """The layer's sizes and its tiles: compile-time constants to the kernel."""
    t = t or Tiling(1, s.pool, 1, 1, 1, 1, 1, 0, 0)
    tiles = {name: value for name, value in vars(t).items() if name.isupper()}
    return {
        "C": s.C,
        "M": s.M,
        "R": s.R,
        "S": s.S,
        **tiles,
        "PAIRS": int(t.SHIFTS > 1 and s.W % 2 == 0),
        "POOL": s.pool,
    }


def plan(s: ConvPoolShape, t: Tiling | None) -> list[Launch]:
    """Two launches: the counters to zero, and blocks that stay until all units are done."""
    if t is None:
        grid = (ceil_div(s.y[2] * s.y[3], THREADS), min(s.M, GRID_Y), s.N)
        return [Launch("conv_pool_direct", grid, (THREADS,), ("x", "w", "y", s.H, s.W))]
    tiles_m, units = ceil_div(s.M, t.tile_m), s.N * ceil_div(s.P, t.band)
    args = ("x", "w", "y", "next", s.N, s.H, s.W, t.in_pitch, t.out_pitch)
    return [
        Launch("reset", (1,), (tiles_m,), ("next",)),
        Launch("conv_pool", (min(units, MAX_GRID), tiles_m), (32 * t.WARPS,), args, t.shared_bytes),
    ]


def scratch(s: ConvPoolShape, t: Tiling | None) -> dict[str, tuple[int, ...]]:
    """A counter for each tile of output channels, an integer in the place of a float32."""
    return {"next": (ceil_div(s.M, t.tile_m),)} if t else {}


VARIANT = Variant(
    op="conv2d_relu_pool",
    plan=lambda s: plan(s, tiling(s)),
    scratch=lambda s: scratch(s, tiling(s)),
    defines=lambda s: defines(s, tiling(s)),
    refuses=lambda s: (
        "" if s.pool in POOLS else f"it pools by {POOLS}, not by {s.pool}: windows lie within four pixels"
    ),
    parent="m3/mma_direct",
    precision="fp16",
    idea="a window of the pool lies in a few lanes: the convolution's output never leaves registers",
)
