"""m3/sweep: m3/register_tiling's kernels with the block and thread sizes searched."""

from dataclasses import replace

import numpy as np

from mini_dnn.variant import ConvShape, Launch, Sweep, Variant, ceil_div

TILE_K = 64  # values of w per channel in shared memory at a time
THREADS = 256  # per block in unroll and permute
GRID_Y = 65535  # most blocks along y


def tile_m(M: int) -> int:
    """The rows of gemm_out per block: all if there are at most 16, otherwise equal parts; a multiple of 4."""
    return ceil_div(ceil_div(M, ceil_div(M, 16)), 4) * 4


def make(tile_cols: int, thread_cols: int) -> Variant:
    """The variant with these numbers of columns of gemm_out per block and per thread."""

    def defines(s: ConvShape) -> dict[str, int]:
        sizes = {"TILE_COLS": tile_cols, "THREAD_COLS": thread_cols}
        return {"TILE_M": tile_m(s.M), "TILE_K": TILE_K, **sizes}

    def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
        return {"col": (s.K, s.cols), "gemm_out": (s.M, s.cols)}

    def plan(s: ConvShape) -> list[Launch]:
        pixels, cols = ceil_div(s.P * s.Q, THREADS), np.int64(s.cols)
        unroll_args = ("x", "col", s.N, s.C, s.H, s.W, s.R, s.S)
        gemm_grid = (ceil_div(s.cols, tile_cols), ceil_div(s.M, tile_m(s.M)))
        gemm_args = ("w", "col", "gemm_out", s.M, cols, s.K)
        permute_args = ("gemm_out", "y", s.N, s.M, s.P * s.Q)
        return [
            Launch("unroll", (pixels, min(s.C, GRID_Y), s.N), (THREADS,), unroll_args),
            Launch("gemm", gemm_grid, (tile_cols // thread_cols,), gemm_args),
            Launch("permute", (pixels, min(s.M, GRID_Y), s.N), (THREADS,), permute_args),
        ]

    return Variant(
        op="conv2d",
        plan=plan,
        scratch=scratch,
        defines=defines,
        parent="m3/register_tiling",
        idea=f"search of block and thread sizes: {tile_cols} columns per block, {thread_cols} per thread",
    )


SWEEP = Sweep("TILE_COLS", (256, 512, 1024), "THREAD_COLS", (1, 2, 4, 8), make, best=(256, 4))
VARIANT = replace(make(*SWEEP.best), sweep=SWEEP)
