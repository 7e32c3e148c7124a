"""Op times of growth runs beside those of ``bench``: their rows, and the columns left empty."""

import csv
import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
from report_records import (
    BATCHES,
    CEILINGS,
    GPU,
    STATE,
    WHOLE,
    both,
    fake_growth,
    fake_record,
    fake_row,
    fake_serving,
    stored,
)

from mini_dnn.errors import DataError
from mini_dnn.report.board import Board, boards
from mini_dnn.report.load import load
from mini_dnn.report.page import write_report
from mini_dnn.report.tables import layers_table, rates_table, times_table

# Before and after the time in `fake_record`
EARLY, LATE = "2024-12-31T10:00:00+00:00", "2025-01-02T10:00:00+00:00"
FINAL = "layers/custom"


def board_beside(
    folder: Path, growth: list[dict[str, Any]], bench: list[dict[str, Any]] | None = None, **changes: Any
) -> Board:
    """The first board of a growth run and a run of ``bench`` for another variant."""
    return boards_beside(folder, growth, bench, **changes)[0]


def boards_beside(
    folder: Path, growth: list[dict[str, Any]], bench: list[dict[str, Any]] | None = None, **changes: Any
) -> list[Board]:
    rows = both("m1/direct", 2.0, 3.0) if bench is None else bench
    files = [stored(folder, fake_record(rows), "bench.json")]
    files.append(stored(folder, fake_serving(growth=growth, **changes), "serving.json"))
    return boards(load(files))


def final_growth(one: float, two: float, **changes: Any) -> list[dict[str, Any]]:
    return [
        fake_growth(FINAL, layer, 10_000, ms, **changes) for layer, ms in (("conv1", one), ("conv2", two))
    ]


def test_convolutions_of_the_courses_batches_become_rows(tmp_path: Path) -> None:
    growth = [
        fake_growth(name, layer, batch, batch / 1e4)
        for name, layer in ((FINAL, "conv1"), (FINAL, "conv2"), (WHOLE, "float32"))
        for batch in BATCHES
    ]
    board, of_network = boards_beside(tmp_path, growth)
    of_growth = {key for key in board.entries if key[0] != "m1/direct"}
    assert of_growth == {(FINAL, 100), (FINAL, 1_000), (FINAL, 10_000)}
    assert [board.entries[FINAL, batch].sum_ms for batch in (100, 1_000, 10_000)] == [0.02, 0.2, 2.0]
    assert board.problems(10_000) == ["conv1", "conv2"]
    assert of_network.operation.name == "lenet"
    assert list(of_network.entries) == [(WHOLE, 100), (WHOLE, 1_000), (WHOLE, 10_000)]


def test_a_row_says_what_one_of_bench_says_but_for_the_network(tmp_path: Path) -> None:
    """Each field of a row is compared with that of the same figures from ``bench``."""
    figures = {"median_error": 0.002, "repeats": 31, "max_error": 3e-4, "state": STATE | {"sm_mhz": 1755}}
    ours = board_beside(tmp_path, final_growth(0.33, 0.27, **figures)).entries[FINAL, 10_000]
    theirs = board_beside(tmp_path, [], both(FINAL, 0.33, 0.27, **figures)).entries[FINAL, 10_000]
    assert not ours.stale
    for layer in ("conv1", "conv2"):
        row, expected = ours.rows[layer], theirs.rows[layer]
        lacking = {"layer_ms", "accuracy", "op_ms_min", "op_ms_max", "compile_ms", "error_of_bound"}
        assert all(getattr(row, name) is None for name in lacking)
        assert all(getattr(expected, name) is not None for name in lacking)
        assert row == dataclasses.replace(expected, record=row.record, **dict.fromkeys(lacking))
    assert (row.record.device.name, row.record.file.name) == (GPU, "serving.json")
    assert (row.record.method, row.record.commit) == (expected.record.method, expected.record.commit)


def test_ceilings_of_the_growth_run_count_too(tmp_path: Path) -> None:
    board = board_beside(tmp_path, final_growth(1.0, 1.0), memory=CEILINGS)
    cells = {row[1]: row[6] for row in rates_table(board, 10_000).rows if FINAL in row[0]}
    assert cells["conv1"] == "31 %"  # 1.32 GB at 4,270 GB/s take 0.309 ms


@pytest.mark.parametrize(
    "changes",
    [
        {"code_hash": "0" * 64},
        {"code_hash": None},
        {"variant": "m1/no_more"},
        {"parts": 2},
        {"batch": 5_000},
        {"problem": "conv9"},
    ],
    ids=lambda changes: "-".join(changes),
)
def test_what_is_of_no_use_beside_bench_is_left_out(changes: dict[str, Any], tmp_path: Path) -> None:
    """The first row is changed, and the second is not."""
    first, second = final_growth(0.33, 0.27)
    board = board_beside(tmp_path, [first | changes, second])
    assert {key for key in board.entries if key[0] != "m1/direct"} == {(FINAL, 10_000)}
    assert list(board.entries[FINAL, 10_000].rows) == ["conv2"]


def test_tables_show_a_dash_for_what_was_not_measured(tmp_path: Path) -> None:
    board = board_beside(tmp_path, final_growth(0.33, 0.27))
    cells = {row[0].strip("`"): row for row in times_table(board, 10_000).rows}
    assert cells[FINAL][3:6] == ["0.330", "0.270", "0.600"]
    assert (cells[FINAL][-1], cells["m1/direct"][-1]) == ("–", "0.8714")
    (layers,) = layers_table(board, 10_000).rows  # without the one that has no layer times
    assert layers == ["`m1/direct`", "122", "123", "1.6 %", "2.4 %"]


@pytest.mark.usefixtures("unplotted")
def test_the_whole_report_can_be_written(tmp_path: Path) -> None:
    bench = stored(tmp_path, fake_record(both("m1/direct", 2.0, 3.0)), "bench.json")
    serving = stored(tmp_path, fake_serving(growth=final_growth(0.33, 0.27)), "serving.json")
    write_report(load([bench, serving]), tmp_path / "out")
    rows = csv.DictReader(io.StringIO((tmp_path / "out" / "ops.csv").read_text()))
    found = {(row["variant"], row["problem"]): row for row in rows}
    assert found[FINAL, "conv1"]["op_ms"] == "0.33"
    assert (found[FINAL, "conv1"]["layer_ms"], found[FINAL, "conv1"]["accuracy"]) == ("", "")
    assert found["m1/direct", "conv1"]["accuracy"] == "0.8714"
    assert "| – | – | – |\n" in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize("started", [EARLY, LATE])
def test_a_whole_run_of_the_same_code_counts(started: str, tmp_path: Path) -> None:
    bench = both(FINAL, 1.0, 2.0) + both("m1/direct", 2.0, 3.0)
    board = board_beside(tmp_path, final_growth(0.33, 0.27), bench, started=started)
    entry = board.entries[FINAL, 10_000]
    assert entry.sum_ms == pytest.approx(3.0)
    assert entry.any_row.accuracy == 0.8714
    assert len(board.runs[FINAL, "conv1", 10_000]) == 2  # both were measured with the same code


def test_a_growth_run_of_other_code_replaces_nothing(tmp_path: Path) -> None:
    growth = final_growth(0.33, 0.27, code_hash="0" * 64)
    board = board_beside(tmp_path, growth, both(FINAL, 1.0, 2.0), started=LATE)
    assert board.entries[FINAL, 10_000].sum_ms == 3.0
    assert board.entries[FINAL, 10_000].stale == ""


def test_growth_alone_makes_no_report(tmp_path: Path) -> None:
    serving = stored(tmp_path, fake_serving(growth=final_growth(0.33, 0.27)))
    with pytest.raises(DataError, match="files of other kinds are shown with op times of the same device"):
        load([serving])
    untimed = fake_record([fake_row("m1/direct", 100, "conv1", None)])
    assert len(load([serving, stored(tmp_path, untimed, "bench.json")]).rows) == 3


@pytest.mark.parametrize("field", ["flops", "repeats", "median_error"])
def test_a_growth_row_without_a_field_is_refused_by_name(field: str, tmp_path: Path) -> None:
    growth = final_growth(0.33, 0.27)
    del growth[0][field]
    with pytest.raises(DataError, match=rf"growth\[0\]: Object missing required field `{field}`"):
        board_beside(tmp_path, growth, both("m1/direct", 2.0, 3.0))
