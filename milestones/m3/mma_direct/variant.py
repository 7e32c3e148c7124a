"""m3/mma_direct: fragments of mma.sync straight from the image, which the copy engine brings in bands."""

from dataclasses import dataclass, replace

from mini_dnn.variant import ConvShape, Launch, Sweep, Variant, ceil_div

FLOAT_BYTES = 4
TILE_N = 4  # groups of pixels of a product, in each of two strips
STEP = 16  # length of the reduction in one product
MAX_ROWS = 10  # of a strip: registers for the sums
MAX_WEIGHTS = 64  # registers that a thread keeps weights in
MAX_CHANNELS = 4  # of the input: one quad
MAX_M = 1024  # output channels, so that one block clears all counters
BUFFERS = ((3, 2), (2, 2), (2, 1))  # of bands of the input, of slabs of the output; the first that fits
MAX_GRID = 480  # more than are resident anywhere: blocks that come late find no work
THREADS = 256  # per block in conv_direct
GRID_Y = 65535  # most blocks along y
# By blocks on a multiprocessor: most warps of a block (128 registers a thread), and bytes of shared memory.
# 64 KB is what every GPU since sm_75 grants a block; with fewer blocks a block has more, on large GPUs.
MAX_WARPS = {3: 5, 2: 8, 1: 16}
SHARED_LIMIT = {3: 64 * 1024, 2: 99 * 1024, 1: 224 * 1024}


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


def steps(s: ConvShape, shifts: int) -> int:
    """Products along a filter row."""
    return ceil_div((s.S + shifts - 1) * (4 // shifts), STEP)


def cut(s: ConvShape, bands: int, inputs: int, outputs: int, blocks: int) -> Tiling:
    """The tiling with so many bands, of about equal heights, and so many buffers."""
    shifts = {1: 4, 2: 2}.get(s.C, 1)
    parts = ceil_div(ceil_div(s.P, bands), 2 * MAX_ROWS)
    rows = ceil_div(s.P, 2 * parts * bands)
    band = 2 * parts * rows
    jobs = parts * ceil_div(s.Q, TILE_N * shifts)
    warps = ceil_div(jobs, ceil_div(jobs, MAX_WARPS[blocks]))  # as many as take part in the last round too
    overrun = 4 * shifts * (steps(s, shifts) + 1)
    in_pitch = ceil_div(s.C * (band + s.R - 1) * s.W + overrun, 32) * 32
    # whole lines and a part of one, so that channels that are stored together lie in different banks
    out_pitch = ceil_div(band * s.Q, 32) * 32 + (8 if shifts == 1 else 16)
    return Tiling(shifts, rows, parts, inputs, outputs, warps, blocks, in_pitch, out_pitch)


def tiling(s: ConvShape, max_band: int, blocks: int) -> Tiling | None:
    """Bands as tall as shared memory allows; None: this shape is for conv_direct."""
    if s.C > MAX_CHANNELS or 4 * s.R * steps(s, {1: 4, 2: 2}.get(s.C, 1)) > MAX_WEIGHTS or s.M > MAX_M:
        return None
    for bands in range(ceil_div(s.P, max_band), s.P + 1):
        for inputs, outputs in BUFFERS:
            t = cut(s, bands, inputs, outputs, blocks)
            if t.shared_bytes <= SHARED_LIMIT[blocks]:
                return t
    return None


def defines(s: ConvShape, t: Tiling | None) -> dict[str, int]:
    """The layer's sizes and its tiles: compile-time constants to the kernel."""
    t = t or Tiling(1, 1, 1, 1, 1, 1, 1, 0, 0)
    tiles = {name: value for name, value in vars(t).items() if name.isupper()}
    return {"C": s.C, "M": s.M, "R": s.R, "S": s.S, **tiles, "PAIRS": int(t.SHIFTS > 1 and s.W % 2 == 0)}


def plan(s: ConvShape, t: Tiling | None) -> list[Launch]:
    """Two launches: the counters to zero, and blocks that stay until all units are done."""
    if t is None:
        grid = (ceil_div(s.P * s.Q, THREADS), min(s.M, GRID_Y), s.N)
        return [Launch("conv_direct", grid, (THREADS,), ("x", "w", "y", s.H, s.W))]
    tiles_m, units = ceil_div(s.M, t.tile_m), s.N * ceil_div(s.P, t.band)
    args = ("x", "w", "y", "next", s.N, s.H, s.W, t.in_pitch, t.out_pitch)
    return [
        Launch("reset", (1,), (tiles_m,), ("next",)),
        Launch("conv", (min(units, MAX_GRID), tiles_m), (32 * t.WARPS,), args, t.shared_bytes),
    ]


def scratch(s: ConvShape, t: Tiling | None) -> dict[str, tuple[int, ...]]:
    """A counter for each tile of output channels, an integer in the place of a float32."""
    return {"next": (ceil_div(s.M, t.tile_m),)} if t else {}


def make(max_band: int, blocks: int) -> Variant:
    """The variant with at most so many output rows in a unit of work, and blocks on a multiprocessor."""
    return Variant(
        op="conv2d",
        plan=lambda s: plan(s, tiling(s, max_band, blocks)),
        scratch=lambda s: scratch(s, tiling(s, max_band, blocks)),
        defines=lambda s: defines(s, tiling(s, max_band, blocks)),
        parent="layers/custom",
        precision="fp16",
        idea="tensor-core fragments straight from the image, copies by the copy engine, weights in registers",
    )


SWEEP = Sweep("MAX_BAND", (12, 16, 20, 40), "BLOCKS", (1, 2, 3), make, best=(16, 3))
VARIANT = replace(make(*SWEEP.best), sweep=SWEEP)
