"""m3/ladder_gemm: unroll -> a variant of the matrix product -> permute."""

from mini_dnn.variant import ConvShape, Gemm, Launch, Step, Variant, ceil_div

THREADS = 256  # per block in unroll and permute
GRID_Y = 65535  # most blocks along y
PRODUCT = "gemm/v3_registers"  # any variant of the operation gemm that supports fp32


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """The unrolled input, and the product before its axes are permuted."""
    return {"col": (s.K, s.cols), "gemm_out": (s.M, s.cols)}


def plan(s: ConvShape) -> list[Step]:
    """Two launches around those of the product."""
    PQ = s.P * s.Q
    blocks = ceil_div(PQ, THREADS)
    unroll_args = ("x", "col", s.N, s.C, s.H, s.W, s.R, s.S)
    return [
        Launch("unroll", (blocks, min(s.C, GRID_Y), s.N), (THREADS,), unroll_args),
        Gemm("w", "col", "gemm_out", s.M, s.cols, s.K, impl=PRODUCT),
        Launch("permute", (blocks, min(s.M, GRID_Y), s.N), (THREADS,), ("gemm_out", "y", s.N, s.M, PQ)),
    ]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    scratch=scratch,
    parent="m3/cublas",
    idea="compute the matrix product with a rung of the GEMM ladder",
)
