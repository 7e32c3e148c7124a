"""gemm/v4_wmma: products of 16 x 16 x 16 halves on the tensor cores."""

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Launch, Variant, ceil_div

TILE = 128  # rows and columns of c in a block
TILE_K = 32  # terms of a sum that shared memory holds at a time
THREADS = 256
WIDE = 8  # halves of a load, if lines have a multiple of eight


def refuses(p: GemmShape) -> str:
    """The text of the limit: its products multiply halves."""
    return (
        "" if p.dtype == "fp16" else f"it multiplies halves, and dtype is {p.dtype}; gemm/v3 takes all types"
    )


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: tiles, the output's type, layouts, and the widths of loads."""
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    lines = zip(("A_WIDE", "B_WIDE"), p.lengths, p.pitches, strict=False)
    return {
        **{"TILE": TILE, "TILE_K": TILE_K, "THREADS": THREADS, "A_TURNED": a_turned, "B_TURNED": b_turned},
        **{"OUT_TYPE": CODES[p.out]},
        **{name: 1 if length % WIDE or pitch % WIDE else WIDE for name, length, pitch in lines},
    }


def plan(p: GemmShape) -> list[Launch]:
    """One launch: a block for each tile of c, along the rows of tiles; the batch along z."""
    grid = (ceil_div(p.m, TILE) * ceil_div(p.n, TILE), 1, p.batch)
    c0 = "c0" if p.beta else "c"  # without beta any buffer will do: it is not read
    args = ("a", "b", c0, "c", p.m, p.n, p.k, *p.pitches, float(p.alpha), float(p.beta))
    return [Launch("gemm", grid, (THREADS,), args)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v3_registers",
    precision="fp16",
    idea="a warp multiplies 16 x 16 x 16 halves in one instruction of the tensor cores, sums stay in fp32",
)
