"""m3/fp32_split: m3/mma_direct with operands of two halves, as exact as fp32 arithmetic."""

from dataclasses import dataclass

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

FLOAT_BYTES = 4
TILE_N = 4  # groups of pixels of a product, in each of two strips
STEP = 16  # length of the reduction in one product
MAX_BAND = {4: 16, 2: 16, 1: 6}  # output rows of a unit of work, by pixels of a group: registers for the sums
MAX_WARPS = 5  # of a block
MAX_WEIGHTS = 64  # registers that a thread keeps weights in
MAX_CHANNELS = 4  # of the input: one quad
SHARED_LIMIT = 64 * 1024  # bytes a block may have on every GPU since sm_75
BUFFERS = ((3, 2), (2, 2), (2, 1))  # of bands of the input, of slabs of the output; the first that fits
BLOCKS = 2  # on a multiprocessor
MAX_GRID = 480  # more than are resident anywhere: blocks that come late find no work
THREADS = 256  # per block in conv_direct
GRID_Y = 65535  # most blocks along y


@dataclass(frozen=True)
class Tiling:
    """How the work is cut; the kernel's definitions have the same names."""

    SHIFTS: int  # pixels of a group
    ROWS: int  # output rows of a strip; a band has two strips
    INPUTS: int  # bands of the input in shared memory
    OUTPUTS: int  # slabs of the output
    WARPS: int
    in_pitch: int  # floats of a band with the padding behind it
    out_pitch: int  # floats of a slab's channel

    @property
    def tile_m(self) -> int:
        """Output channels of a block."""
        return 16 // self.SHIFTS

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        slabs = self.OUTPUTS * self.tile_m * self.out_pitch
        return FLOAT_BYTES * (slabs + self.INPUTS * self.in_pitch)


def steps(s: ConvShape, shifts: int) -> int:
    """Products along a filter row."""
    return ceil_div((s.S + shifts - 1) * (4 // shifts), STEP)


def tiling(s: ConvShape) -> Tiling | None:
    """Bands as tall as shared memory allows, of about equal heights; None: this shape is for conv_direct."""
    shifts = {1: 4, 2: 2}.get(s.C, 1)
    if s.C > MAX_CHANNELS or 4 * s.R * steps(s, shifts) > MAX_WEIGHTS or s.M > 1024:
        return None
    warps = min(ceil_div(s.Q, TILE_N * shifts), MAX_WARPS)
    for rows in range(ceil_div(s.P, 2 * ceil_div(s.P, MAX_BAND[shifts])), 0, -1):
        overrun = 4 * shifts * (steps(s, shifts) + 1)
        in_pitch = ceil_div(s.C * (2 * rows + s.R - 1) * s.W + overrun, 32) * 32
        # whole lines and a part of one, so that channels that are stored together lie in different banks
        out_pitch = ceil_div(2 * rows * s.Q, 32) * 32 + (8 if shifts == 1 else 16)
        for inputs, outputs in BUFFERS:
            t = Tiling(shifts, rows, inputs, outputs, warps, in_pitch, out_pitch)
            if t.shared_bytes <= SHARED_LIMIT:
                return t
    return None


def defines(s: ConvShape) -> dict[str, int]:
    """The layer's sizes and its tiles: compile-time constants to the kernel."""
    t = tiling(s) or Tiling(1, 1, 1, 1, 1, 0, 0)
    sizes = {"C": s.C, "M": s.M, "R": s.R, "S": s.S}
    tiles = {name: getattr(t, name) for name in ("SHIFTS", "ROWS", "INPUTS", "OUTPUTS", "WARPS")}
    return {**sizes, **tiles, "PAIRS": int(t.SHIFTS > 1 and s.W % 2 == 0), "BLOCKS": BLOCKS}


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """A counter for each tile of output channels, an integer in the place of a float32."""
    t = tiling(s)
    return {"next": (ceil_div(s.M, t.tile_m),)} if t else {}


def plan(s: ConvShape) -> list[Launch]:
    """Two launches: the counters to zero, and blocks that stay until all units are done."""
    t = tiling(s)
    if t is None:
        grid = (ceil_div(s.P * s.Q, THREADS), min(s.M, GRID_Y), s.N)
        return [Launch("conv_direct", grid, (THREADS,), ("x", "w", "y", s.H, s.W))]
    tiles_m, units = ceil_div(s.M, t.tile_m), s.N * ceil_div(s.P, 2 * t.ROWS)
    args = ("x", "w", "y", "next", s.N, s.H, s.W, t.in_pitch, t.out_pitch)
    return [
        Launch("reset", (1,), (tiles_m,), ("next",)),
        Launch("conv", (min(units, MAX_GRID), tiles_m), (32 * t.WARPS,), args, t.shared_bytes),
    ]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    scratch=scratch,
    defines=defines,
    parent="m3/mma_direct",
    precision="fp32",
    idea="each operand is a half and the half of what that left out: three products for fp32 accuracy",
)
