"""gemm/v17_vectors: the product of a matrix and a vector in fp32, at the rate of memory."""

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans import gemm_vectors
from mini_dnn.variant import Launch, Variant


def refuses(p: GemmShape) -> str:
    """The text of the limit: other rungs are faster for other products."""
    if p.dtype != "fp32":
        return f"it multiplies floats, and dtype is {p.dtype}; gemm/v10 takes vectors of 16 bits"
    if not gemm_vectors.is_vector(p):
        return f"it multiplies a matrix and a vector, and c is {p.m} x {p.n}; gemm/v13 takes that"
    return ""


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: types, and those of the kernel for a vector."""
    return {"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out], **gemm_vectors.defines(p)}


def plan(p: GemmShape) -> list[Launch]:
    """One launch."""
    return [gemm_vectors.launch(p)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v10_small",
    min_arch=90,
    idea="a matrix and a vector in fp32: the kernels of v10, whose pieces of 16 bytes have four elements",
)
