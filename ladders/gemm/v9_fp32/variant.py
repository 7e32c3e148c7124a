"""gemm/v9_fp32: fp32 accuracy from three products of halves, whose sums are promoted every 64 terms."""

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.plans import gemm_halves
from mini_dnn.plans.gemm_halves import BOX, CHUNK, ROWS, SPLITTERS, WIDE, beside, chunks
from mini_dnn.variant import Launch, Variant, ceil_div

NARROW, NARROW_COST = 128, 1.045  # columns of narrow tiles, and their time per column, relative to wide ones
RANGE_PARTS = 64  # the most parts of k, in each of which a block finds the ranges of columns


def columns(p: GemmShape) -> tuple[int, int]:
    """The numbers of wide and of narrow columns of tiles."""
    return gemm_halves.widths(ceil_div(p.m, ROWS) * p.batch, p.n, ((NARROW, NARROW_COST),))[:2]


def lines(p: GemmShape) -> tuple[int, int]:
    """The numbers of rows of a and of columns of b in all tiles, including those beyond c."""
    wide, narrow = columns(p)
    return ceil_div(p.m, ROWS) * ROWS, wide * WIDE + narrow * NARROW


def scratch(p: GemmShape) -> dict[str, Array]:
    """Both operands as halves, and the ranges of lines that are columns."""
    ranges = {
        f"{name}_ranges": Array((p.batch, count, 3), "uint32")
        for name, count, adjacent in zip("ab", lines(p), beside(p), strict=True)
        if adjacent
    }
    return gemm_halves.halves(p, lines(p)) | ranges


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: tiles, layouts, and the significant bits of low halves."""
    return {**gemm_halves.defines(p), "NARROW": NARROW, "LOW_BITS": 11}


def split(p: GemmShape, name: str) -> list[Launch]:
    """The launches that split an operand into halves."""
    number = "ab".index(name)
    length, pitch, count = (p.m, p.n)[number], p.pitches[number], lines(p)[number]
    wide_tiles = columns(p)[0] if name == "b" else 0
    made = (f"{name}_boxes", f"{name}_known")
    if not beside(p)[number]:
        args = (name, *made, length, p.k, pitch, chunks(p), wide_tiles)
        return [Launch("split_rows", (count, p.batch), (SPLITTERS,), args, early=True)]
    ranges, flat = f"{name}_ranges", count * p.batch
    wide = (ceil_div(length, SPLITTERS), min(RANGE_PARTS, ceil_div(p.k, CHUNK)), p.batch)
    of_k = (count // BOX, chunks(p) // 2, p.batch)
    args = (name, *made, ranges, length, p.k, pitch, chunks(p), wide_tiles)
    return [
        Launch("clear", (ceil_div(flat, SPLITTERS),), (SPLITTERS,), (ranges, flat), early=True),
        Launch("find_ranges", wide, (SPLITTERS,), (name, ranges, length, p.k, pitch, count), early=True),
        Launch("split_columns", of_k, (SPLITTERS,), args, early=True),
    ]


def plan(p: GemmShape) -> list[Launch]:
    """Both operands are split, and then multiplied."""
    return [*split(p, "a"), *split(p, "b"), gemm_halves.multiply(p, *columns(p))]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=gemm_halves.refuses,
    parent="gemm/v7_specialised",
    compute_type="3xfp16",
    min_arch=90,
    idea="fp32 accuracy from three products of halves, whose sums are promoted every 64 terms",
)
