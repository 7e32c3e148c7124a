"""gemm/cublas: NVIDIA's library, with which every rung is compared."""

import numpy as np

from mini_dnn.ops.gemm import GemmShape
from mini_dnn.variant import Gemm, Launch, Step, Variant, ceil_div

THREADS = 256  # of a block that copies
GRID_Y = 65535  # the most blocks along y


def refuses(p: GemmShape) -> str:
    """The text of the limits: types and factors for which the library has no product."""
    if p.out not in ("fp32", p.dtype):
        return (
            f"cuBLAS multiplies {p.dtype} into {' or '.join(dict.fromkeys((p.dtype, 'fp32')))}, not {p.out}"
        )
    if p.alpha == 0:
        return "cuBLAS does not look at a and b where alpha is 0, and an infinity in them would count"
    return ""


def plan(p: GemmShape) -> list[Step]:
    """One product. If beta is not 0, c0 is first copied to c, because the library adds in place."""
    product = Gemm(
        *("a", "b", "c", p.m, p.n, p.k),
        **{"layout": p.layout, "batch": p.batch, "alpha": p.alpha, "beta": p.beta},
        **{"lda": p.lda, "ldb": p.ldb, "ldc": p.ldc},
    )
    if not p.beta:
        return [product]
    rows = p.batch * p.m
    args = ("c0", "c", np.int64(rows), p.n, np.int64(p.pitches[2]))
    return [Launch("copy_rows", (ceil_div(p.n, THREADS), min(rows, GRID_Y)), (THREADS,), args), product]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=lambda p: {"BYTES": 4 if p.out == "fp32" else 2},
    refuses=refuses,
    parent="gemm/v0_naive",
    compute_type=lambda p: "fp32" if p.dtype == "fp32" else "fp16",
    needs_gpu="cuBLAS, which it calls, is NVIDIA's library for its GPUs",
    idea="the vendor's library, with which each rung is compared",
)
