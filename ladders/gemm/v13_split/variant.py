"""gemm/v13_split: as gemm/v9_fp32, but splitting takes less time, and products of low halves less power."""

from mini_dnn.ops import Array
from mini_dnn.ops.gemm import GemmShape
from mini_dnn.plans import gemm_halves
from mini_dnn.plans.gemm_halves import BAND, ROWS, SPLITTERS, WIDE, beside, chunks
from mini_dnn.variant import Launch, Variant, ceil_div

NARROW_COSTS = ((128, 1.045), (64, 1.5))  # columns of narrow tiles: time per column, relative to wide ones
COLUMNS = 2048  # fewest columns of b with which rows of a that are split late are ready in time
STEPS_KEPT = 8  # parts of 64 k that a block of split_columns keeps in registers
CLUSTER = 8  # the most blocks of a cluster
FEW_BITS, LONG_K = 8, 2048  # significant bits of low halves if there are so many terms


def columns(p: GemmShape) -> tuple[int, int, int]:
    """The numbers of wide and of narrow columns of tiles, and the width of these."""
    return gemm_halves.widths(ceil_div(p.m, ROWS) * p.batch, p.n, NARROW_COSTS)


def lines(p: GemmShape) -> tuple[int, int]:
    """The numbers of rows of a and of columns of b in all tiles, including those beyond c."""
    wide, narrow, width = columns(p)
    return ceil_div(p.m, ROWS) * ROWS, wide * WIDE + narrow * width


def band(p: GemmShape) -> int:
    """Rows of tiles in a band: fewer for a small m, so that the first round needs a smaller part of a."""
    return BAND // 2 if ceil_div(p.m, ROWS) <= 2 * BAND else BAND


def late(p: GemmShape) -> int:
    """Rows of a that are split while others are multiplied: those beyond the first band."""
    rows = ceil_div(p.m, ROWS)
    few = lines(p)[1] < COLUMNS
    return 0 if beside(p)[0] or p.batch > 1 or few else max(0, rows - band(p)) * ROWS


def scratch(p: GemmShape) -> dict[str, Array]:
    """Both operands as halves, and the flags of rows that are split late."""
    return {"flags": Array((1 + late(p) // ROWS,), "int32"), **gemm_halves.halves(p, lines(p))}


def low_bits(p: GemmShape) -> int:
    """Significant bits of low halves: fewer if k is long, as the errors of fp32 sums are then larger."""
    return FEW_BITS if p.k >= LONG_K else 11


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: tiles, layouts, clusters, and the significant bits of low halves."""
    own = {"NARROW": columns(p)[2], "BAND": band(p), "STEPS_KEPT": STEPS_KEPT, "CLUSTER": CLUSTER}
    return {**gemm_halves.defines(p), **own, "LOW_BITS": low_bits(p)}


def split_both(p: GemmShape) -> Launch:
    """The launch that splits both operands into halves, except for rows that are split late."""
    adjacent = beside(p)
    cluster = min(CLUSTER, ceil_div(chunks(p) // 2, STEPS_KEPT)) if any(adjacent) else 1
    of_each = zip(lines(p), (late(p), 0), adjacent, strict=True)
    blocks = sum(n // 32 * cluster if one else (n - rest) * 128 // SPLITTERS for n, rest, one in of_each)
    args = ("a", "a_boxes", "a_known", "b", "b_boxes", "b_known", "flags", p.m, p.n, p.k, *p.pitches[:2])
    args += (*lines(p), chunks(p), columns(p)[0], late(p), cluster)
    grid = (ceil_div(blocks, cluster) * cluster, p.batch)
    return Launch("split_both", grid, (SPLITTERS,), args, cluster=cluster, early=True)


def plan(p: GemmShape) -> list[Launch]:
    """Both operands are split, except for rows that are split while others are multiplied."""
    wide, narrow, _ = columns(p)
    return [split_both(p), gemm_halves.multiply(p, wide, narrow, late(p))]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    scratch=scratch,
    defines=defines,
    refuses=gemm_halves.refuses,
    parent="gemm/v9_fp32",
    compute_type="3xfp16",
    min_arch=90,
    idea="both operands are split by one launch, most of a beside the products, and low halves have 8 bits",
)
