"""gemm/v3_registers: an 8 x 8 tile of c in each thread's registers, and loads of four elements."""

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.variant import Launch, Variant, ceil_div

TILE = 128  # rows and columns of c in a block
TILE_K = 16  # terms of a sum that shared memory holds at a time
THREADS = 256
WIDE = 4  # elements of a load or store, if lines have a multiple of four


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: tiles, types, layouts, and the widths of loads and stores."""
    a_turned, b_turned = (letter == "t" for letter in p.layout)
    lines = zip(("A_WIDE", "B_WIDE", "C_WIDE"), p.lengths, p.pitches, strict=True)
    return {
        **{"TILE": TILE, "TILE_K": TILE_K, "THREADS": THREADS, "A_TURNED": a_turned, "B_TURNED": b_turned},
        **{"IN_TYPE": CODES[p.dtype], "OUT_TYPE": CODES[p.out]},
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
    parent="gemm/v2_tiled",
    idea="a thread keeps 8 x 8 sums in registers: 16 values from shared memory for 64 FMAs, four per load",
)
