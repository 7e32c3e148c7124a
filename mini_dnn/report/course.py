"""Figures from the original course project, next to the figures measured here."""

from __future__ import annotations

from mini_dnn import ops
from mini_dnn.report.board import Board
from mini_dnn.report.document import NOT_THERE, Block, Heading, Table, Text
from mini_dnn.report.rows import course_at, title
from mini_dnn.report.tables import name_of, number, op_cells, op_columns, times

STEPS: tuple[tuple[str, str, tuple[float, float] | None], ...] = (
    # the step, our variant (empty: the final one), the op times of the original project in ms
    ("unroll, GEMM, permute", "m2/unroll_gemm", (95.6, 72.9)),
    ("+ fusion + tensor cores", "m3/stack_1", (42.3, 32.2)),
    ("+ `__restrict__` + loop unrolling + FP16", "m3/stack_2", (36.8, 28.5)),
    ("the final kernel", "", None),
)
CODES = {  # the names that the course gives to its optimisations
    "m3/streams": "req_0",
    "m3/tensor_cores": "req_1",
    "m3/tensor_cores_fp16": "req_1",
    "m3/fusion": "req_2",
    "m3/constant_memory": "op_0",
    "m3/restrict": "op_1",
    "m3/loop_unroll": "op_2",
    "m3/sweep": "op_3",
    "m3/cublas": "op_4",
    "m3/fp16": "op_5",
    "m3/register_tiling": "req_1, op_6",
}
ABOUT = (
    "Op times at {at}. The course columns are those of the original project, measured on another, older "
    "GPU: compare the speed-up of each step, not the milliseconds."
)


def is_about(board: Board) -> bool:
    """Whether the course's project is about the operation of a board."""
    return board.operation.name == ops.DEFAULT


def steps(board: Board) -> list[str]:
    """Return the variants of the steps."""
    return [variant or board.final for _, variant, _ in STEPS]


def measured(board: Board) -> list[str]:
    """Return the variants of the steps that were measured at the course's problems."""
    at = course_at(board.operation.name)
    return [variant for variant in steps(board) if (variant, at) in board.entries]


def course_blocks(board: Board) -> list[Block]:
    """The table, and a paragraph that describes it."""
    text = ABOUT.format(at=title(course_at(board.operation.name)))
    return [Heading(2, "The course project's table"), Text(text), course_table(board)]


def course_table(board: Board) -> Table:
    """The original course project's table, with this project's op times beside it."""
    baseline_ms = sum(STEPS[0][2] or ())
    at, problems = course_at(board.operation.name), list(board.operation.course)
    rows = []
    for (step, _, theirs), variant in zip(STEPS, steps(board), strict=True):
        cells = [NOT_THERE] * 4
        if theirs:
            cells = [*map(number, theirs), f"{sum(theirs):.1f}", times(baseline_ms / sum(theirs))]
        entry = board.entries.get((variant, at))
        ours = [NOT_THERE] * (len(problems) + 2)
        if entry:
            ours = [*op_cells(entry), times(board.speed_up(entry, board.baseline))]
        rows.append([step, name_of(entry) if entry else f"`{variant}` (not measured)", *cells, *ours])
    theirs_columns = ["course 1, ms", "course 2, ms", "course sum, ms", "over its baseline"]
    ours_columns = [*op_columns(problems), "over our baseline"]
    return Table(["step", "variant", *theirs_columns, *ours_columns], rows, text_columns=2)
