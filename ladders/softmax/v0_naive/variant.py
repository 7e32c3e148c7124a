"""softmax/v0_naive: one thread per row."""

from mini_dnn.ops.softmax import Rows
from mini_dnn.variant import Launch, Variant, ceil_div

THREADS = 64  # per block: few, so that the rows are spread over many multiprocessors


def plan(p: Rows) -> list[Launch]:
    """One launch with a thread for each row."""
    return [Launch("softmax", (ceil_div(p.N, THREADS),), (THREADS,), ("x", "y", p.N, p.L))]


VARIANT = Variant(
    op="softmax", plan=plan, idea="one thread per row: maximum, sum and quotient in three loops"
)
