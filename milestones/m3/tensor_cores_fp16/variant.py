"""m3/tensor_cores_fp16: m2's three kernels, the GEMM on the tensor cores with FP16 inputs."""

import numpy as np

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE_COLS = 256  # columns of gemm_out per block, two per thread
TILE_K = 32  # rows of col in shared memory at a time
THREADS = 256  # per block in unroll and permute
GRID_Y = 65535  # most blocks along y


def tile_m(s: ConvShape) -> int:
    """The rows of gemm_out per block are those of one WMMA tile.

    A flat tile is used for few output channels.
    """
    return 8 if s.M <= 8 else 16


def pairs(s: ConvShape) -> int:
    """The number of pairs of pixels in an output plane. An odd last pixel is a pair by itself."""
    return ceil_div(s.P * s.Q, 2)


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """col, in which each float32 is the place of two halves, and the product before its axes are permuted."""
    return {"col": (s.K, s.N * pairs(s)), "gemm_out": (s.M, 2 * s.N * pairs(s))}


def plan(s: ConvShape) -> list[Launch]:
    """Three launches, one after the other."""
    unroll_grid = (ceil_div(pairs(s), THREADS), min(s.C, GRID_Y), s.N)
    gemm_grid = (ceil_div(2 * s.N * pairs(s), TILE_COLS), ceil_div(s.M, tile_m(s)))
    gemm_args = ("w", "col", "gemm_out", s.M, np.int64(s.N * pairs(s)), s.K)
    permute_grid = (ceil_div(s.P * s.Q, THREADS), min(s.M, GRID_Y), s.N)
    return [
        Launch("unroll", unroll_grid, (THREADS,), ("x", "col", s.N, s.C, s.H, s.W, s.R, s.S)),
        Launch("gemm", gemm_grid, (TILE_COLS // 2,), gemm_args),
        Launch("permute", permute_grid, (THREADS,), ("gemm_out", "y", s.N, s.M, s.P * s.Q)),
    ]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    scratch=scratch,
    defines=lambda s: {"TILE_M": tile_m(s), "TILE_COLS": TILE_COLS, "TILE_K": TILE_K},
    parent="m3/tensor_cores",
    precision="fp16",
    idea="half inputs for the tensor cores: half the bytes of col, on any GPU since sm_75",
)
