"""gemm/v5_mma_async: copies run ahead of products, which are single instructions."""

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Launch, Variant, ceil_div

TILE = 128  # rows and columns of c in a block
TILE_K = 64  # terms of a sum in a stage
STAGES = 3  # two are loaded while the third one is multiplied
THREADS = 128
BYTES = 2


def refuses(p: GemmShape) -> str:
    """The text of the limit: its products multiply elements of 16 bits."""
    fits = p.dtype != "fp32"
    return "" if fits else "it multiplies halves or bfloat16, and dtype is fp32; gemm/v3 takes all types"


def wide(length: int, pitch: int, most: int) -> int:
    """The elements of one access to lines of this length and pitch: 8, 4, 2 or 1."""
    return next(count for count in (8, 4, 2, 1) if count <= most and length % count == pitch % count == 0)


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: tiles, types, layouts, and the widths of copies and stores."""
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    lines = zip(("A_WIDE", "B_WIDE", "C_WIDE"), p.lengths, p.pitches, (8, 8, 2), strict=True)
    return {
        **{"TILE": TILE, "TILE_K": TILE_K, "STAGES": STAGES, "THREADS": THREADS},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out]},
        **{"A_TURNED": a_turned, "B_TURNED": b_turned},
        **{name: wide(length, pitch, most) for name, length, pitch, most in lines},
    }


def plan(p: GemmShape) -> list[Launch]:
    """One launch: a block for each tile of c, along the rows of tiles; the batch along z."""
    grid = (ceil_div(p.m, TILE) * ceil_div(p.n, TILE), 1, p.batch)
    c0 = "c0" if p.beta else "c"  # without beta any buffer will do: it is not read
    args = ("a", "b", c0, "c", p.m, p.n, p.k, *p.pitches, float(p.alpha), float(p.beta))
    return [Launch("gemm", grid, (THREADS,), args, shared_bytes=STAGES * 2 * TILE * TILE_K * BYTES)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v4_wmma",
    precision="fp16",
    min_arch=80,
    idea="cp.async fills two stages while mma.sync multiplies a third; ldmatrix reads swizzled tiles",
)
