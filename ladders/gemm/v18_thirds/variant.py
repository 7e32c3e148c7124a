"""gemm/v18_thirds: the kernel that multiplies also splits, so small products in fp32 need no other launch."""

from mini_dnn.ops.gemm import CODES, GemmShape
from mini_dnn.plans.gemm_floats import THIRDS_K as TILE_K
from mini_dnn.plans.gemm_floats import THIRDS_ROWS as ROWS
from mini_dnn.plans.gemm_floats import fastest_thirds, in_fours, microseconds_of_v13
from mini_dnn.plans.gemm_vectors import c_of
from mini_dnn.variant import Launch, Variant

STAGES = 2
SPLITTERS = 256  # threads that load and split
THREADS = SPLITTERS + 128  # and a warpgroup that multiplies


def refuses(p: GemmShape) -> str:
    """The limit that a problem exceeds: the type, or the size from which gemm/v13 is faster."""
    if p.dtype != "fp32":
        return f"it multiplies floats, and dtype is {p.dtype}; gemm/v14 takes 16 bits"
    if p.out == "fp32" and fastest_thirds(p).microseconds(p) > microseconds_of_v13(p):
        return "it is for small products, and gemm/v13 is faster for this one; use that"
    return ""


def defines(p: GemmShape) -> dict[str, int]:
    """Compile-time constants: the tile, types and layouts."""
    tile = fastest_thirds(p)
    return {
        **{"ROWS": ROWS, "COLUMNS": tile.columns, "SPLIT": tile.split, "STAGES": STAGES},
        **{"THREADS": THREADS, "SPLITTERS": SPLITTERS, "OUT_TYPE": CODES[p.out]},
        **{"A_LINES": p.layout[0] == "t", "B_LINES": p.layout[1] == "n"},
        **{"A_QUADS": in_fours(p, 0), "B_QUADS": in_fours(p, 1)},
    }


def plan(p: GemmShape) -> list[Launch]:
    """One launch: a cluster for each tile of c, whose blocks share k."""
    tile = fastest_thirds(p)
    args = ("a", "b", *c_of(p), p.m, p.n, p.k, *p.pitches, float(p.alpha), float(p.beta))
    thirds = 3 * 2 * (ROWS + tile.columns) * TILE_K  # bytes of a stage
    grid = (tile.clusters(p) * tile.split,)
    return [Launch("gemm", grid, (THREADS,), args, STAGES * thirds, cluster=tile.split, early=True)]


VARIANT = Variant(
    op="gemm",
    plan=plan,
    defines=defines,
    refuses=refuses,
    parent="gemm/v13_split",
    compute_type="6xfp16",
    min_arch=90,
    idea="small products in fp32: floats are split into three bfloats in the kernel that multiplies them",
)
