"""m3/fp16: m2's three kernels with half storage and half2 arithmetic, no tensor cores."""

import numpy as np

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE = 16  # rows and pairs of columns of an output tile, products in a half sum; TILE * TILE threads
THREADS = 256  # per block in unroll and permute
GRID_Y = 65535  # most blocks along y


def pairs(s: ConvShape) -> int:
    """The number of pairs of pixels in an output plane. An odd last pixel is a pair by itself."""
    return ceil_div(s.P * s.Q, 2)


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """col, in which each float32 is the place of two halves, and the product before its axes are permuted."""
    return {"col": (s.K, s.N * pairs(s)), "gemm_out": (s.M, 2 * s.N * pairs(s))}


def plan(s: ConvShape) -> list[Launch]:
    """Three launches, one after the other."""
    unroll_grid = (ceil_div(pairs(s), THREADS), min(s.C, GRID_Y), s.N)
    gemm_grid = (ceil_div(s.N * pairs(s), TILE), ceil_div(s.M, TILE))
    gemm_args = ("w", "col", "gemm_out", s.M, np.int64(s.N * pairs(s)), s.K)
    permute_grid = (ceil_div(s.P * s.Q, THREADS), min(s.M, GRID_Y), s.N)
    return [
        Launch("unroll", unroll_grid, (THREADS,), ("x", "col", s.N, s.C, s.H, s.W, s.R, s.S)),
        Launch("gemm", gemm_grid, (TILE, TILE), gemm_args),
        Launch("permute", permute_grid, (THREADS,), ("gemm_out", "y", s.N, s.M, s.P * s.Q)),
    ]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    scratch=scratch,
    defines={"TILE": TILE},
    parent="m2/unroll_gemm",
    precision="fp16_sum",
    idea="half2: two columns per thread, half the bytes of col, half the instructions of the GEMM",
)
