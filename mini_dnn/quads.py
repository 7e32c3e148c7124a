"""How the kernels on quads (``layers/custom``, ``mini_dnn/quads.cuh``) cut a convolution into work."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from mini_dnn.plan import Launch
from mini_dnn.shapes import ConvShape

FLOAT_BYTES, QUAD_BYTES = 4, 8
TILE_N, STEP = 8, 4  # columns of a product; quads of a product
MAX_ROWS = 10  # of quads in a strip: code for each of them
MAX_WEIGHTS = 64  # registers that a thread keeps weights in
MAX_CHANNELS = 4  # of the input: one quad
MAX_M = 1024  # output channels, so that one block clears all counters
REGISTERS = 65536  # of a multiprocessor
SHARED_BYTES = 113 * 1024  # of a block, two of which share a multiprocessor with 227 KB
COMPACT_BYTES = 64 * 1024  # that a block may have on every GPU since sm_75
BUFFER_BYTES = 32  # fixed arrays of the kernel for a buffer of the input: units, full
MAX_GRID = 480  # more blocks than are resident anywhere: those that come late find no work
GRID_Y = 65535  # most blocks along y
THREADS = 256  # per block in conv_direct


def ceil_div(a: int, b: int) -> int:
    """Smallest integer not below a / b."""
    return -(-a // b)


@dataclass(frozen=True)
class Quads:
    """A convolution in quads; the kernel's `Filter` computes the same."""

    X: int  # pixels of a quad, along a row
    Y: int  # and along a column
    tile_m: int  # output channels of a product
    filter_rows: int
    steps: int  # products of a filter row
    rows: int  # of the output
    columns: int

    @classmethod
    def of(cls, s: ConvShape) -> Quads:
        """The quads of a shape with up to four channels."""
        X, Y = 2 if s.C <= 2 else 1, 2 if s.C == 1 else 1
        filter_columns = ceil_div(s.S + X - 1, X)
        return cls(
            X,
            Y,
            16 // (X * Y),
            ceil_div(s.R + Y - 1, Y),
            ceil_div(filter_columns, STEP),
            ceil_div(s.P, Y),
            ceil_div(s.Q, X),
        )

    @property
    def weights(self) -> int:
        """Registers of a thread that hold the filter."""
        return 4 * self.filter_rows * self.steps

    @property
    def pitch(self) -> int:
        """Quads of a row in shared memory: the last column's filter must lie in it."""
        return self.columns - 1 + STEP * self.steps


def jobs(columns: int, strips: int) -> int:
    """Jobs of a band, as `quads::Jobs` counts them."""
    rest = columns % TILE_N
    width = 8 if rest in (0, 5, 6, 7) else 4 if rest > 2 else 2
    return columns // TILE_N * strips + (ceil_div(strips, TILE_N // width) if rest else 0)


@dataclass(frozen=True)
class Tiling:
    """How the work is cut; the kernel's definitions have the same names."""

    ROWS: int  # of quads, in a strip
    STRIPS: int  # of a band
    INPUTS: int  # bands of the input in shared memory
    OUTPUTS: int  # slabs of the output
    WARPS: int  # of a block
    BLOCKS: int  # on a multiprocessor
    SPLIT: int  # 1: operands are two halves each
    POOL: int  # 0: the convolution alone; else ReLU and a maximum over POOL x POOL pixels follow
    VECTOR: int  # floats that may be stored at once
    PAIRS: int  # 1: two values of a row of quads are one aligned load
    SHORT: int  # 1: some band has fewer rows than the others
    ODD: int  # 1: the last quad of a row has no right half
    WHOLE: int  # 1: a slab is all of an image's output, as it lies in memory
    band: int  # output rows of a unit of work
    in_pitch: int  # floats of a buffer for bands
    out_pitch: int  # floats of a slab's channel
    quad_count: int  # in shared memory
    tile_m: int

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block."""
        floats = self.OUTPUTS * self.tile_m * self.out_pitch + self.INPUTS * self.in_pitch
        return FLOAT_BYTES * floats + QUAD_BYTES * self.quad_count

    def within(self, block_bytes: int) -> bool:
        """Whether a block needs no more shared memory than that, fixed arrays included."""
        return self.shared_bytes + BUFFER_BYTES * self.INPUTS <= block_bytes


def cut(
    s: ConvShape,
    bands: int,
    warps: int,
    blocks: int,
    inputs: int = 2,
    outputs: int = 2,
    split: bool = False,
    pool: int = 0,
    max_rows: int = MAX_ROWS,
) -> Tiling:
    """The tiling with so many bands, of about equal heights, and so many buffers.

    Parameters
    ----------
    s
        A shape that `fits`.
    bands
        Units of work of an image.
    warps, blocks
        Of a block; on a multiprocessor.
    inputs, outputs
        Buffers for bands of the input, for slabs of the output.
    split, pool
        As `Tiling` has them.
    max_rows
        Most rows of quads in a strip.
    """
    quads = Quads.of(s)
    window = ceil_div(max(pool, 1), quads.Y)  # rows of quads that a window of the pool takes
    windows = ceil_div(quads.rows, window)
    strips = ceil_div(ceil_div(windows, bands) * window, max(max_rows // window, 1) * window)
    rows = ceil_div(windows, strips * bands) * window
    band = strips * rows * quads.Y
    quad_rows = strips * rows + quads.filter_rows - 1
    out_rows, out_columns = (ceil_div(band, max(pool, 1)), ceil_div(s.Q, max(pool, 1)))
    whole = bands == 1 and quads.tile_m >= s.M and s.M * out_columns * ceil_div(s.P, max(pool, 1)) % 4 == 0
    # whole lines and a part of one, so that channels that are stored together lie in different banks
    out_pitch = ceil_div(out_rows * out_columns, 32) * 32 + (8 if quads.X == 1 else 16)
    if whole:
        out_pitch = ceil_div(s.P, max(pool, 1)) * out_columns
    return Tiling(
        ROWS=rows,
        STRIPS=strips,
        INPUTS=inputs,
        OUTPUTS=outputs,
        WARPS=warps,
        BLOCKS=blocks,
        SPLIT=int(split),
        POOL=pool,
        VECTOR=gcd(out_columns, 4),
        PAIRS=int(quads.X == 2 and s.W % 2 == 0 and s.C == 1),
        SHORT=int(s.P % band > 0),
        ODD=s.Q % 2,
        WHOLE=int(whole),
        band=band,
        in_pitch=ceil_div(s.C * (band + s.R - 1) * s.W, 32) * 32,
        out_pitch=out_pitch,
        quad_count=(1 + split) * quad_rows * quads.pitch,
        tile_m=quads.tile_m,
    )


def fits(s: ConvShape) -> bool:
    """Whether the tensor cores take the shape; others are for conv_direct."""
    return s.C <= MAX_CHANNELS and s.M <= MAX_M and Quads.of(s).weights <= MAX_WEIGHTS


def defines(s: ConvShape, t: Tiling | None, pool: int = 0) -> dict[str, int]:
    """The layer's sizes and its tiles: compile-time constants to the kernel."""
    sizes = {"C": s.C, "M": s.M, "R": s.R, "S": s.S}
    if t is None:
        return sizes | {"DIRECT": 1, "POOL": pool}
    return sizes | {name: value for name, value in vars(t).items() if name.isupper()}


def plan(s: ConvShape, t: Tiling | None) -> list[Launch]:
    """Two launches: the counters to zero, and blocks that stay until all units are done."""
    if t is None:
        grid = (ceil_div(s.y[2] * s.y[3], THREADS), min(s.M, GRID_Y), s.N)
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
