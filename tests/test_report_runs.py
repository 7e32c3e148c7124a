"""The report on several runs, and on variants that overlap their copies."""

from pathlib import Path
from typing import Any

import pytest
from report_records import (
    CEILINGS,
    LAYERS,
    as_schema,
    board_of,
    both,
    fake_record,
    fake_row,
    fake_streams,
    stored,
)

from mini_dnn.report.board import Board, boards
from mini_dnn.report.document import Table, Text, flat
from mini_dnn.report.load import load
from mini_dnn.report.overlap import overlap_table, verdict
from mini_dnn.report.page import write_report
from mini_dnn.report.readmes import updated
from mini_dnn.report.repeats import repeats, spread
from mini_dnn.report.tables import times_table

RATES = CEILINGS | {"h2d_gbps": 50.0, "d2h_gbps": 25.0}


def runs_of(folder: Path, *runs: list[dict[str, Any]]) -> Board:
    files = [
        stored(folder, fake_record(rows, started=f"2025-01-0{at}T10:00:00+00:00"), f"{at}.json")
        for at, rows in enumerate(runs, 1)
    ]
    return boards(load(files))[0]


def report_of(board: Board) -> tuple[list[str], list[Table]]:
    blocks = flat(repeats(board))
    texts = [block.text for block in blocks if isinstance(block, Text)]
    return texts, [block for block in blocks if isinstance(block, Table)]


def test_spread_over_runs(tmp_path: Path) -> None:
    texts, (table,) = report_of(
        runs_of(
            tmp_path,
            both("m1/direct", 10.0, 5.0) + both("m3/fusion", 1.0, 1.0),
            both("m1/direct", 10.1, 5.2),
            both("m1/direct", 10.2, 5.2),
        )
    )
    assert table.rows == [["`m1/direct`", "3", "2.0 %", "3.8 %"]]  # 0.2 / 10.1 and 0.2 / 5.2
    assert "limit is 3 %: 1 of 2 are beyond it" in texts[0]
    assert "largest is 3.8 % (`m1/direct`, batch 10,000, conv2)" in texts[0]


def test_runs_of_other_code_do_not_count(tmp_path: Path) -> None:
    old = both("m1/direct", 20.0, 9.0, code_hash="0" * 64)
    board = runs_of(tmp_path, old, both("m1/direct", 10.0, 5.0))
    assert repeats(board) == []
    assert [record.file.name for record in board.records] == ["2.json"]


def test_one_file_twice_is_one_run(tmp_path: Path) -> None:
    from mini_dnn.report.load import results_files

    path = stored(tmp_path, fake_record(both("m1/direct", 10.0, 5.0)))
    assert results_files([path, tmp_path, path]) == [path]
    assert spread(load([path]).runs[:1]) is None


def test_the_host_is_listed_apart(tmp_path: Path) -> None:
    rows = both("m1/cpu", 900.0, 900.0)
    texts, tables = report_of(runs_of(tmp_path, rows, both("m1/cpu", 800.0, 900.0)))
    assert [table.rows for table in tables] == [[["`m1/cpu`", "2", "11.8 %", "0.0 %"]]]
    assert "The limit does not apply to times on the CPU" in texts[0]
    assert "within it" not in texts[0]
    run = rows + both("m1/direct", 1.0, 1.0)
    texts, tables = report_of(runs_of(tmp_path, run, run))
    assert [table.rows[0][0] for table in tables] == ["`m1/direct`", "`m1/cpu`"]
    assert "all 2 are within it" in texts[0]


def streaming(layer: str, batch: int, layer_ms: float, **changes: Any) -> dict[str, Any]:
    return fake_row(
        "m3/streams", batch, layer, 1.5, layer_ms=layer_ms, **{"streams": fake_streams()} | changes
    )


def test_layers_beside_the_slower_copy(tmp_path: Path) -> None:
    arrays = LAYERS["conv1"].arrays
    assert (arrays["x"].nbytes, arrays["y"].nbytes) == (4 * 10000 * 86 * 86, 4 * 10000 * 4 * 80 * 80)
    out_ms = arrays["y"].nbytes / 25e6  # 40.96 ms; the copy of the input takes 5.9 ms
    rows = [streaming("conv1", 10000, 1.2 * out_ms), streaming("conv2", 10000, 1.1 * 185e6 * 4 / 25e6)]
    entries = board_of(tmp_path, rows, memory=RATES).at(10000)
    table = overlap_table(entries)
    assert table.columns[-2:] == ["slower copy, ms", "layer / slower copy"]
    assert table.rows[0][2:] == ["93 %", "1.50", "49.2", "41.0", "1.20"]
    assert table.rows[1][-1] == "1.10"
    assert verdict(entries) == "Beyond 1.15: `m3/streams`, conv1 (1.20)."
    (old,) = boards(load([stored(tmp_path, as_schema(1, fake_record(rows, memory=RATES)))]))
    assert "with the NaN fill" in verdict(old.at(10000))
    unknown = board_of(tmp_path, rows).at(10000)
    assert overlap_table(unknown).rows[0][-2:] == ["–", "–"]
    assert verdict(unknown) == ""


def test_weights_are_not_copied_with_each_call(tmp_path: Path) -> None:
    """The input is copied to the device and the output back, for the arrays of any operation."""
    row = fake_row("networks/lenet/whole", 10000, "uint8", 1.5, layer_ms=10.0, streams=fake_streams())
    table = overlap_table(board_of(tmp_path, [row], memory=RATES).at(10000))
    assert table.rows[0][-2:] == ["1.48", "6.76"]  # 10,000 images of 7,396 bytes at 50 GB/s


def test_a_batch_in_one_part_hides_nothing(tmp_path: Path) -> None:
    spans = [span for span in fake_streams()["spans"] if span["label"] == "x[0]"]
    row = streaming("conv1", 100, 1.0, streams={"hidden_fraction": 0.0, "spans": spans})
    board = board_of(tmp_path, [row], memory=RATES)
    assert overlap_table(board.at(100)).rows[0][2] == "one part"
    assert verdict(board.at(100)) == ""  # the limit is for the course's batch


def test_overlapping_gains_no_op_time(tmp_path: Path) -> None:
    rows = both("m3/stack_2", 1.0, 1.0) + both("m3/streams", 0.9, 1.0, streams=fake_streams(), layer_ms=50.0)
    board = board_of(tmp_path, rows, memory=RATES)
    table = times_table(board, 10000)
    names = [row[0] for row in table.rows]
    assert table.rows[names.index("`m3/streams`")][6:8] == ["–", "–"]
    assert table.strong == {names.index("`m3/stack_2`")}
    (tmp_path / "README.md").write_text("<!-- op-times:start --><!-- op-times:end -->")
    ((_, text),) = updated([board], tmp_path).values()
    assert "| layer time, below |" in text
    assert "50.0 + 50.0 ms, 1.22 and 1.69 times the time of the slower" in text


@pytest.mark.usefixtures("unplotted")
@pytest.mark.parametrize("schema", [1, 2])
def test_old_layer_times_are_noted(tmp_path: Path, schema: int) -> None:
    record = as_schema(schema, fake_record(both("m1/direct", 5.0, 9.0), dirty=None))
    path = stored(tmp_path, record)
    write_report(load([path]), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert ("Layer times in `results.json` are of an older kind" in text) == (schema == 1)
    assert "| `0123456789` | unknown |" in text
