"""m3/tensor_cores: m2's three kernels, the GEMM on the tensor cores with TF32 inputs."""

import numpy as np

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE_M = 16  # rows of gemm_out in a block: one WMMA tile
TILE_COLS = 128  # columns of gemm_out in a block, and its threads
TILE_K = 32  # rows of col in shared memory at a time; at least TILE_M
THREADS = 256  # per block in unroll and permute
GRID_Y = 65535  # most blocks along y


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """The unrolled input, and the product before its axes are permuted."""
    return {"col": (s.K, s.cols), "gemm_out": (s.M, s.cols)}


def plan(s: ConvShape) -> list[Launch]:
    """Three launches, one after the other."""
    pixels, cols = ceil_div(s.P * s.Q, THREADS), np.int64(s.cols)
    unroll_args = ("x", "col", s.N, s.C, s.H, s.W, s.R, s.S)
    gemm_grid = (ceil_div(s.cols, TILE_COLS), ceil_div(s.M, TILE_M))
    permute_args = ("gemm_out", "y", s.N, s.M, s.P * s.Q)
    return [
        Launch("unroll", (pixels, min(s.C, GRID_Y), s.N), (THREADS,), unroll_args),
        Launch("gemm", gemm_grid, (TILE_COLS,), ("w", "col", "gemm_out", s.M, cols, s.K)),
        Launch("permute", (pixels, min(s.M, GRID_Y), s.N), (THREADS,), permute_args),
    ]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    scratch=scratch,
    defines={"TILE_M": TILE_M, "TILE_COLS": TILE_COLS, "TILE_K": TILE_K},
    parent="m2/unroll_gemm",
    precision="tf32",
    min_arch=80,
    idea="multiply on the tensor cores: WMMA with TF32 inputs and FP32 sums",
)
