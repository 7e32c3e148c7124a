"""The labels of the report's plots, and how its numbers are written."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.transforms import Bbox

from mini_dnn.report.board import boards
from mini_dnn.report.load import RESULTS, load
from mini_dnn.report.roofline import clear_of, roofline, spread
from mini_dnn.report.tables import number
from mini_dnn.report.theme import LIGHT
from mini_dnn.variant import names


@given(st.lists(st.floats(0, 1), max_size=12))
def test_spread_keeps_order_distance_and_limits(wanted: list[float]) -> None:
    places = spread(wanted, 0.05, 0.02, 0.98)
    order = sorted(range(len(wanted)), key=wanted.__getitem__)
    ranked = [places[at] for at in order]
    assert all(b - a >= 0.05 - 1e-9 for a, b in itertools.pairwise(ranked))
    assert all(0.02 - 1e-9 <= place <= 0.98 + 1e-9 for place in ranked)


def test_spread_leaves_alone_what_does_not_overlap() -> None:
    assert spread([0.9, 0.1, 0.5], 0.05, 0, 1) == [0.9, 0.1, 0.5]
    assert spread([0.5, 0.5], 0.1, 0, 1) == pytest.approx([0.45, 0.55])


@given(st.lists(st.floats(0, 1), max_size=12), st.lists(st.floats(0, 1), max_size=3))
def test_labels_leave_what_is_blocked(wanted: list[float], lines: list[float]) -> None:
    blocked = [(line - 0.03, line + 0.03) for line in lines]
    places = clear_of(spread(wanted, 0.05, 0, 1), 0.05, [blocked] * len(wanted))
    ranked = sorted(places)
    assert all(b - a >= 0.05 - 1e-9 for a, b in itertools.pairwise(ranked))
    assert not any(low + 1e-9 < place < high - 1e-9 for place in places for low, high in blocked)


def test_labels_are_left_out_where_columns_are_close() -> None:
    (board,) = boards(load([RESULTS / "h200-linear.json"]))
    rows = [row for entry in board.at(32) for row in entry.rows.values()]
    figure = roofline(board, rows, {"linear/v0_naive": 1, "linear/v1_tiles": 2}, LIGHT)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    (above,) = axes.child_axes
    texts = [text for text in axes.texts if "linear/" in text.get_text()] + above.get_xticklabels()
    assert len(texts) == 2 * 2 + 6, "the first and the last problem have labels, and all have names"
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in texts]
    top_lines = [
        Bbox.from_extents(box.x0, box.y1 - 10, box.x1, box.y1) for box in boxes
    ]  # the others are empty
    assert not any(one.overlaps(other) for one, other in itertools.combinations(top_lines, 2))


def test_roofline_labels_overlap_nothing() -> None:
    (board,) = boards(load([RESULTS / "h200-g.json"]))
    rows = [row for entry in board.at(10000) for row in entry.rows.values() if row.op_ms and not row.on_host]
    figure = roofline(board, rows, {"layers/custom": 1}, LIGHT)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    (axes,) = figure.axes
    boxes = [
        text.get_window_extent(canvas.get_renderer())
        for text in axes.texts
        if text.get_text().removeprefix("1  ") in names()
    ]
    assert len(boxes) == len(rows)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))
    assert all(axes.bbox.y0 < box.y0 and box.y1 < axes.bbox.y1 for box in boxes)
    ceilings = [line for line in axes.get_lines() if line.get_linewidth() > 1 and len(line.get_xdata()) == 2]
    assert len(ceilings) == 1 + sum(name.endswith("_tflops") for name in board.ceilings)
    for line in ceilings:
        path = axes.transData.transform_path(line.get_path())
        assert not any(path.intersects_bbox(box, filled=False) for box in boxes)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.3402, "0.340"),
        (36.84, "36.8"),
        (168.5, "168"),
        (5631.0, "5,631"),
        (0.0, "0"),
        (9.999, "10.0"),
    ],
)
def test_numbers_are_written_without_exponent(value: float | None, text: str) -> None:
    assert number(value) == text
