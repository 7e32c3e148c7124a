"""m3/register_tiling: m2's three kernels, the GEMM with joint register and shared-memory tiles."""

import numpy as np

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE_COLS = 512  # columns of gemm_out per block
THREAD_COLS = 4  # columns of gemm_out per thread
TILE_K = 64  # values of w per channel in shared memory at a time
THREADS = 256  # per block in unroll and permute
GRID_Y = 65535  # most blocks along y


def tile_m(M: int) -> int:
    """The rows of gemm_out per block: all if there are at most 16, otherwise equal parts; a multiple of 4."""
    return ceil_div(ceil_div(M, ceil_div(M, 16)), 4) * 4


def defines(s: ConvShape) -> dict[str, int]:
    """The GEMM's tiles are compile-time constants, because registers cannot be indexed."""
    return {"TILE_M": tile_m(s.M), "TILE_COLS": TILE_COLS, "THREAD_COLS": THREAD_COLS, "TILE_K": TILE_K}


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """The unrolled input, and the product before its axes are permuted."""
    return {"col": (s.K, s.cols), "gemm_out": (s.M, s.cols)}


def plan(s: ConvShape) -> list[Launch]:
    """Three launches, one after the other."""
    pixels, cols = ceil_div(s.P * s.Q, THREADS), np.int64(s.cols)
    unroll_args = ("x", "col", s.N, s.C, s.H, s.W, s.R, s.S)
    gemm_grid = (ceil_div(s.cols, TILE_COLS), ceil_div(s.M, tile_m(s.M)))
    gemm_args = ("w", "col", "gemm_out", s.M, cols, s.K)
    return [
        Launch("unroll", (pixels, min(s.C, GRID_Y), s.N), (THREADS,), unroll_args),
        Launch("gemm", gemm_grid, (TILE_COLS // THREAD_COLS,), gemm_args),
        Launch(
            "permute", (pixels, min(s.M, GRID_Y), s.N), (THREADS,), ("gemm_out", "y", s.N, s.M, s.P * s.Q)
        ),
    ]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    scratch=scratch,
    defines=defines,
    parent="m2/unroll_gemm",
    idea="keep a block of sums in each thread's registers: a col value is loaded once for all channels",
)
