"""m2/unroll_gemm: unroll -> GEMM with shared-memory tiles -> permute, three kernels."""

import numpy as np

from mini_dnn.variant import ConvShape, Launch, Variant, ceil_div

TILE = 16  # side of an output tile; TILE * TILE threads per block
THREADS = 256  # per block in unroll and permute
GRID_Y = 65535  # most blocks along y


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """The unrolled input, and the product before its axes are permuted."""
    return {"col": (s.K, s.cols), "gemm_out": (s.M, s.cols)}


def plan(s: ConvShape) -> list[Launch]:
    """Three launches, one after the other."""
    PQ, cols = s.P * s.Q, np.int64(s.cols)
    return [
        Launch(
            "unroll",
            (ceil_div(PQ, THREADS), min(s.C, GRID_Y), s.N),
            (THREADS,),
            ("x", "col", s.N, s.C, s.H, s.W, s.R, s.S),
        ),
        Launch(
            "gemm",
            (ceil_div(s.cols, TILE), ceil_div(s.M, TILE)),
            (TILE, TILE),
            ("w", "col", "gemm_out", s.M, cols, s.K),
        ),
        Launch(
            "permute",
            (ceil_div(PQ, THREADS), min(s.M, GRID_Y), s.N),
            (THREADS,),
            ("gemm_out", "y", s.N, s.M, PQ),
        ),
    ]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    scratch=scratch,
    defines={"TILE": TILE},
    parent="m1/direct",
    idea="a matrix product: each value of w and col is loaded once per tile, not once per FMA",
)
