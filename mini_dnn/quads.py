"""Division of a convolution among blocks, for ``layers/custom`` and ``mini_dnn/quads.cuh``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from math import gcd, lcm
from typing import Any

from mini_dnn.ops.conv2d import ConvShape
from mini_dnn.variant import Variant, ceil_div
from mini_dnn.variant.plan import Launch

FLOAT_BYTES, QUAD_BYTES = 4, 8
TILE_N, STEP = 8, 4  # columns of a product; quads of a product
EDGE_ROWS = 24  # pairs of rows of a product at the right edge, if warpgroups multiply
MAX_ROWS = 10  # of quads in a strip; there is separate code for each of them
MAX_WEIGHTS = 64  # registers of a thread that hold weights
MAX_CHANNELS = 4  # of the input: one quad
MAX_M = 1024  # output channels, so that one block can clear all counters
SHARED_BYTES = 227 * 1024  # shared memory of a block, and of all blocks of a multiprocessor except for 1 KB
RESERVED_BYTES = 1024  # of shared memory for each block
COMPACT_BYTES = 64 * 1024  # shared memory that a block may have on every GPU since sm_75
BUFFER_BYTES = 32  # fixed arrays of the kernel for each input buffer: units, full
MAX_GRID = 480  # more blocks than are resident on any GPU; those that start late find no work
GRID_Y = 65535  # limit of blocks along y
THREADS = 256  # per block in conv_direct
PREPARING = 512  # threads that scale the weights


@dataclass(frozen=True)
class Quads:
    """A convolution in quads. The kernel's `Filter` computes the same values."""

    X: int  # pixels of a quad along a row
    Y: int  # pixels of a quad along a column
    tile_m: int  # output channels of a product
    filter_rows: int
    steps: int  # products per filter row
    rows: int  # rows of quads in the output
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
        """The number of registers of a thread that hold the filter."""
        return 4 * self.filter_rows * self.steps

    @property
    def pitch(self) -> int:
        """Quads per row in shared memory. The filter of the last column must lie in the row."""
        return self.columns - 1 + STEP * self.steps


def pair_slots(s: ConvShape, band: int, groups: int) -> int:
    """Pairs of a band in shared memory, as `pairs::Layout` counts them, for kernels with warpgroups."""
    columns, more = ceil_div(s.Q, 2), 2 * ceil_div(s.S + 1, STEP) - 1
    full, rest = divmod(columns, TILE_N)
    pitch, rows, beside = full * TILE_N + more if full else 0, (band + s.R) // 2, s.R // 2
    size = edge = 2 * rows * pitch
    if rest:
        last = edge + (2 * (rest + more) - 3) * rows + (band // 2 - 1) // EDGE_ROWS * EDGE_ROWS + beside
        size += 2 * (rest + more) * rows
        size = max(size, last + 2 * EDGE_ROWS, last + 2 * rows + EDGE_ROWS)
    if full:
        last = rows * pitch + (band // 2 - groups + beside) * pitch + (full - 1) * TILE_N + more - 1
        size = max(size, last + 2 * TILE_N * groups)
    return size


def jobs(columns: int, strips: int) -> int:
    """Jobs of a band, as `quads::Jobs` counts them."""
    rest = columns % TILE_N
    width = 8 if rest in (0, 5, 6, 7) else 4 if rest > 2 else 2
    return columns // TILE_N * strips + (ceil_div(strips, TILE_N // width) if rest else 0)


@dataclass(frozen=True)
class Tiling:
    """The division of the work. The kernel's macros have the same names."""

    BAND: int  # output rows of a unit of work
    ROWS: int  # rows of quads in a strip
    STRIPS: int  # strips of a band
    GROUPS: int  # pairs of rows in a warpgroup's tile on GPUs that have warpgroup products; 0: not used
    INPUTS: int  # bands of the input in shared memory; 0: the input is read directly when it is packed
    OUTPUTS: int  # slabs of the output
    WARPS: int  # warps per block
    BLOCKS: int  # blocks per multiprocessor
    SPLIT: int  # 1: each operand is the sum of two halves
    POOL: int  # 0: the convolution alone; otherwise ReLU and max-pooling over POOL x POOL pixels follow
    VECTOR: int  # floats that may be stored at once
    PAIRS: int  # 1: two adjacent pixels can be read with one aligned load
    SHORT: int  # 1: some band has fewer rows than the others
    ODD: int  # 1: the last quad of a row has no right half
    WHOLE: int  # 1: a slab is the whole output of an image, with the same layout as in memory
    in_plane: int  # floats per channel in an input buffer
    in_channels: int
    out_pitch: int  # floats per channel of a slab
    quad_count: int  # quads in shared memory
    tile_m: int

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory of a block, in bytes."""
        floats = self.OUTPUTS * self.tile_m * self.out_pitch + self.INPUTS * self.in_channels * self.in_plane
        return FLOAT_BYTES * floats + QUAD_BYTES * self.quad_count

    def within(self, block_bytes: int) -> bool:
        """Whether a block needs at most ``block_bytes``, and BLOCKS blocks fit on a multiprocessor."""
        needed = self.shared_bytes + BUFFER_BYTES * max(self.INPUTS, 1)  # with the fixed arrays
        together = self.BLOCKS * (needed + RESERVED_BYTES)
        return needed <= block_bytes and together <= SHARED_BYTES + RESERVED_BYTES


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
    groups: int = 0,
) -> Tiling:
    """The division into ``bands`` of about equal heights, with the given numbers of buffers.

    Parameters
    ----------
    s
        A shape that `fits`.
    bands
        Units of work per image.
    warps, blocks
        Warps per block; blocks per multiprocessor.
    inputs, outputs
        Buffers for bands of the input; buffers for slabs of the output.
    split, pool, groups
        See `Tiling`. ``groups`` requires a shape that `fits_warpgroups`.
    max_rows
        The largest number of rows of quads in a strip.
    """
    quads = Quads.of(s)
    side = max(pool, 1)
    window = ceil_div(side, quads.Y)  # rows of quads that a window of the pool covers
    if groups:
        unit = lcm(2 * groups, side)
        band = ceil_div(ceil_div(s.P, bands), unit) * unit
        rows = max(rows for rows in range(window, max(max_rows, window) + 1, window) if band % rows == 0)
        strips = band // rows
    else:
        windows = ceil_div(quads.rows, window)
        strips = ceil_div(ceil_div(windows, bands) * window, max(max_rows // window, 1) * window)
        rows = ceil_div(windows, strips * bands) * window
        band = strips * rows * quads.Y
    quad_rows = strips * rows + quads.filter_rows - 1
    out_rows, out_columns = ceil_div(band, side), ceil_div(s.Q, side)
    image_pitch = ceil_div(s.P, side) * out_columns
    whole = band >= s.P and quads.tile_m >= s.M and s.M * image_pitch % 4 == 0
    # whole lines and a part of one, so that channels that are stored together lie in different banks
    out_pitch = ceil_div(out_rows * out_columns, 32) * 32 + (4 if groups else 8 if quads.X == 1 else 16)
    return Tiling(
        BAND=band,
        ROWS=rows,
        STRIPS=strips,
        GROUPS=groups,
        INPUTS=inputs,
        OUTPUTS=outputs,
        WARPS=warps,
        BLOCKS=blocks,
        SPLIT=int(split),
        POOL=pool,
        VECTOR=gcd(out_columns, 4),
        PAIRS=int(s.W % 2 == 0),
        SHORT=int(s.P % band > 0),
        ODD=s.Q % 2,
        WHOLE=int(whole),
        in_plane=ceil_div((min(band, s.P) + s.R - 1) * s.W, 4) * 4,
        in_channels=s.C,
        out_pitch=image_pitch if whole else out_pitch,
        quad_count=(1 + split)
        * max(quad_rows * quads.pitch, 2 * pair_slots(s, band, groups) if groups else 0),
        tile_m=quads.tile_m,
    )


def fits(s: ConvShape) -> bool:
    """Whether the kernels on the tensor cores support the shape. Others are left to conv_direct."""
    return s.C <= MAX_CHANNELS and s.M <= MAX_M and Quads.of(s).weights <= MAX_WEIGHTS


def fits_warpgroups(s: ConvShape) -> bool:
    """Whether kernels with warpgroup products support the shape, too."""
    return fits(s) and s.C > 2 and 4 * (s.R + 1) * ceil_div(s.S + 1, STEP) <= MAX_WEIGHTS


def defines(s: ConvShape, t: Tiling | None, pool: int = 0) -> dict[str, int]:
    """The layer's sizes and its tiles, which are compile-time constants of the kernel."""
    sizes = {"C": s.C, "M": s.M, "R": s.R, "S": s.S}
    if t is None:
        return sizes | {"DIRECT": 1, "POOL": pool}
    return sizes | {name: value for name, value in vars(t).items() if name.isupper()}


def plan(s: ConvShape, t: Tiling | None) -> list[Launch]:
    """Two launches: one clears the counters, and the other's blocks stay until all units are done.

    If operands are two halves each, the first launch also scales the weights.
    """
    if t is None:
        grid = (ceil_div(s.y[2] * s.y[3], THREADS), min(s.M, GRID_Y), s.N)
        return [Launch("conv_direct", grid, (THREADS,), ("x", "w", "y", s.H, s.W))]
    tiles_m, units = ceil_div(s.M, t.tile_m), s.N * ceil_div(s.P, t.BAND)
    reset = Launch("reset", (1,), (tiles_m,), ("next",))
    prepare = Launch("prepare", (1,), (PREPARING,), ("w", "scaled", "next", tiles_m))
    args = ("x", "scaled" if t.SPLIT else "w", "y", "next", s.N, s.H, s.W, t.in_plane, t.out_pitch)
    return [
        prepare if t.SPLIT else reset,
        Launch("conv", (min(units, MAX_GRID), tiles_m), (32 * t.WARPS,), args, t.shared_bytes),
    ]


def scratch(s: ConvShape, t: Tiling | None) -> dict[str, tuple[int, ...]]:
    """A counter for each tile of output channels: an integer in the place of a float32.

    If operands are two halves each, also the scaled weights, followed by what the kernel has to know of them.
    """
    if t is None:
        return {}
    scaled = {"scaled": (s.M * s.K + 2,)} if t.SPLIT else {}
    return {"next": (ceil_div(s.M, t.tile_m),), **scaled}


def variant(cuts: Callable[[Any], Iterable[Tiling]], **about: Any) -> Variant:
    """The variant that uses the first of the given tilings whose blocks the GPU grants.

    Parameters
    ----------
    cuts
        Tilings for a shape that `fits`, the best one first. If none is small enough, and for all other
        shapes, conv_direct computes the result.
    about
        Parameters of `Variant`, such as the operation.
    """

    def within(block_bytes: int) -> Variant:
        def tiling(s: ConvShape) -> Tiling | None:
            return next((t for t in cuts(s) if t.within(block_bytes)), None) if fits(s) else None

        return Variant(
            plan=lambda s: plan(s, tiling(s)),
            scratch=lambda s: scratch(s, tiling(s)),
            defines=lambda s: defines(s, tiling(s), getattr(s, "pool", 0)),
            **about,
        )

    return replace(within(SHARED_BYTES), compact=within(COMPACT_BYTES))
