"""softmax/v1_warp: one warp per row, and one pass for both the maximum and the sum."""

from mini_dnn.ops.softmax import Rows
from mini_dnn.variant import Launch, Variant, ceil_div

WARPS = 8  # per block


def plan(p: Rows) -> list[Launch]:
    """One launch with a warp for each row."""
    return [Launch("softmax", (ceil_div(p.N, WARPS),), (32 * WARPS,), ("x", "y", p.N, p.L))]


VARIANT = Variant(
    op="softmax",
    plan=plan,
    parent="softmax/v0_naive",
    idea="one warp per row: loads are coalesced, and maximum and sum are computed in one pass",
)
