"""m3/cublas: unroll -> cuBLAS -> permute."""

from mini_dnn.variant import ConvShape, Gemm, Launch, Step, Variant, ceil_div

THREADS = 256  # per block in unroll and permute
GRID_Y = 65535  # most blocks along y


def scratch(s: ConvShape) -> dict[str, tuple[int, ...]]:
    """The unrolled input, and the product before its axes are permuted."""
    return {"col": (s.K, s.cols), "gemm_out": (s.M, s.cols)}


def plan(s: ConvShape) -> list[Step]:
    """Two launches around the library's product."""
    PQ = s.P * s.Q
    blocks = ceil_div(PQ, THREADS)
    unroll_args = ("x", "col", s.N, s.C, s.H, s.W, s.R, s.S)
    return [
        Launch("unroll", (blocks, min(s.C, GRID_Y), s.N), (THREADS,), unroll_args),
        Gemm("w", "col", "gemm_out", s.M, s.cols, s.K),
        Launch("permute", (blocks, min(s.M, GRID_Y), s.N), (THREADS,), ("gemm_out", "y", s.N, s.M, PQ)),
    ]


VARIANT = Variant(
    op="conv2d",
    plan=plan,
    scratch=scratch,
    parent="m2/unroll_gemm",
    needs_gpu="cuBLAS, which it calls, is NVIDIA's library for its GPUs",
    idea="compute the matrix product with the vendor's library",
)
