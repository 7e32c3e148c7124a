"""The report on several operations, and on files from the time when there was only one."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from report_records import (
    CEILINGS,
    GPU,
    as_schema,
    both,
    fake_full,
    fake_record,
    fake_row,
    fake_run,
    fake_streams,
    sealed,
    stored,
)

from mini_dnn import ops
from mini_dnn.report import readmes
from mini_dnn.report.board import Board, boards, shown
from mini_dnn.report.load import RESULTS, load
from mini_dnn.report.page import write_report
from mini_dnn.report.rivals import peers_table
from mini_dnn.report.rows import COURSE, SIZES
from mini_dnn.report.tables import rates_table, times_table

WHOLE, FUSED = "networks/lenet/whole", "networks/lenet/fused_pool"
REFUSED = {"op": "lenet", "variant": FUSED, "problem": "uint8-28", "reason": "there is no resizing"}


def network_rows() -> list[dict[str, Any]]:
    """Two networks, one of which supports only two of the three forms of images."""
    rows = [fake_row(WHOLE, 10000, name, 2.0, accuracy=None) for name in ops.find("lenet").course]
    return rows + [fake_row(FUSED, 10000, name, 3.0, accuracy=None) for name in ("float32", "uint8")]


def softmax_rows() -> list[dict[str, Any]]:
    course = ops.find("softmax").course
    return [
        fake_row(f"softmax/{name}", problem.batch, at, op_ms, accuracy=None)
        for name, op_ms in (("v0_naive", 6.0), ("v1_warp", 1.5))
        for at, problem in course.items()
    ]


def boards_of(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> list[Board]:
    return boards(load([stored(folder, fake_record(rows, **changes))]))


def test_each_operation_has_a_board(tmp_path: Path) -> None:
    rows = softmax_rows() + network_rows() + both("m1/direct", 5.0, 9.0)
    found = boards_of(tmp_path, rows)
    assert [(board.device, board.operation.name) for board in found] == [
        *((GPU, op) for op in ("conv2d", "lenet", "softmax"))
    ]
    assert [board.baseline for board in found] == ["m2/unroll_gemm", WHOLE, "softmax/v0_naive"]
    assert [board.final for board in found] == [
        *("layers/custom", "networks/lenet/tensor_cores", "softmax/v1_warp")
    ]
    assert [board.main for board in found] == [10000, 10000, COURSE]
    other = fake_record(both("m1/direct", 5.0, 9.0), device={"name": "Other", "cpu": "", "state": None})
    files = [stored(tmp_path, fake_record(rows), "a.json"), stored(tmp_path, other, "b.json")]
    assert [board.device for board in boards(load(files))] == [GPU] * 3 + ["Other"]


def test_a_later_device_with_fewer_operations_shows_only_what_the_first_one_lacks(tmp_path: Path) -> None:
    rows = network_rows() + both("m1/direct", 5.0, 9.0)
    later = {"device": {"name": "Later", "cpu": "", "state": None}, "started": "2025-01-02T00:00:00+00:00"}
    few = fake_record(softmax_rows(), **later)
    files = [stored(tmp_path, fake_record(rows), "a.json"), stored(tmp_path, few, "b.json")]
    found = boards(load(files))
    assert [(board.device, board.operation.name) for board in found] == [
        *((GPU, op) for op in ("conv2d", "lenet")),
        ("Later", "softmax"),
    ]
    assert shown(found) == found
    again = fake_record(both("m1/direct", 5.0, 9.0), **later)
    found = boards(load([*files[:1], stored(tmp_path, again, "b.json")]))
    assert [board.device for board in found] == [GPU, GPU, "Later"]
    assert shown(found) == found[:2]


def test_a_problem_that_a_variant_refuses_is_in_no_sum(tmp_path: Path) -> None:
    (board,) = boards_of(tmp_path, network_rows(), skipped=[REFUSED])
    rows = {row[0].strip("`"): row for row in times_table(board, 10000).rows}
    assert rows[WHOLE][3:7] == ["2.00", "2.00", "2.00", "6.00"]
    assert rows[FUSED][3:7] == ["3.00", "3.00", "–", "–"]
    assert rows[FUSED][8] == "0.667×"  # the ratio to the baseline, for the images that both support
    assert "accuracy" not in times_table(board, 10000).columns
    (unknown,) = boards_of(tmp_path, network_rows())  # missing for an unknown reason
    rows = {row[0].strip("`"): row for row in times_table(unknown, 10000).rows}
    assert rows[FUSED][8] == "–"


def test_problems_with_batches_of_their_own_stand_in_one_table(tmp_path: Path) -> None:
    rows = [*softmax_rows(), fake_row("softmax/v1_warp", 7, "tokens", 0.1, accuracy=None)]
    more = fake_row("softmax/v1_warp", 3, "classes", 0.2, accuracy=None)
    rows.append(more | {"problem": "3,50", "shape": {"N": 3, "L": 50}})
    (board,) = boards_of(tmp_path, rows, memory=CEILINGS)
    assert board.tables == [7, COURSE, SIZES]
    assert [board.problems(at) for at in board.tables] == [["tokens"], ["classes", "tokens"], ["3,50"]]
    table = times_table(board, COURSE)
    assert table.rows[1][:2] == ["`softmax/v1_warp`", "`softmax/v0_naive`"]
    assert table.rows[1][2:7] == ["fp32", "1.50", "1.50", "3.00", "4.00×"]
    assert times_table(board, 7).columns[3:5] == ["op time 1, ms", "over parent"]  # one problem: no sum
    share = rates_table(board, COURSE).rows[0][6]
    memory_ms = 2 * 100_000 * 1000 * 4 / CEILINGS["copy_gbps"] / 1e6
    assert share == f"{memory_ms / 6.0:.0%}".replace("%", " %")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("plotted_once")
def test_a_report_of_several_operations(tmp_path: Path) -> None:
    full = fake_full()
    full["rows"] += network_rows() + softmax_rows()
    full["skipped"] = [REFUSED]
    written = {path.name for path in write_report(load([stored(tmp_path, full)]), tmp_path / "out")}
    assert {"op_times.png", "op_times-2.png", "op_times-3.png", "roofline-2.png"} <= written
    text = (tmp_path / "out" / "report.md").read_text()
    heads = [line for line in text.splitlines() if line.startswith("# ")]
    assert heads[0] == "# mini_dnn: op times"
    assert [head.partition(":")[0] for head in heads[1:]] == ["# conv2d", "# lenet", "# softmax"]
    _, first, network, softmax = (f"\n{part}" for part in text.split("\n# "))
    assert "The course project's table" in first
    assert all("The course project's table" not in part for part in (network, softmax))
    assert f"`{FUSED}` does not support `uint8-28`: there is no resizing" in network
    assert "\n## The course's sizes\n" in softmax
    assert "Problem 1 is `classes`, 100,000 rows of 1,000; 2 is `tokens`" in softmax
    lines = list(csv.DictReader(io.StringIO((tmp_path / "out" / "ops.csv").read_text())))
    assert {line["op"] for line in lines} == {"conv2d", "lenet", "softmax"}


@pytest.mark.usefixtures("unplotted")
def test_a_report_without_the_default_operation(tmp_path: Path) -> None:
    write_report(load([stored(tmp_path, fake_record(softmax_rows()))]), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert f"\n# softmax: softmax of each row, fp32\n\nMeasured on {GPU}" in text
    assert "milestone" not in text
    assert "the roofline's ceilings and every share of it: `run.py bench softmax --out" in text


@pytest.mark.usefixtures("unplotted")
def test_parts_of_a_second_device_name_it(tmp_path: Path) -> None:
    other = fake_record(softmax_rows(), device={"name": "Other (sm_80)", "cpu": "", "state": None})
    files = [stored(tmp_path, fake_record(softmax_rows())), stored(tmp_path, other, "other.json")]
    write_report(load([*files, RESULTS / "h200-vit-peers.json"]), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| [softmax](#softmax-softmax-of-each-row-fp32) |" in text
    assert "| [softmax on Other (sm_80)](#softmax-on-other-sm_80-softmax-of-each-row-fp32) |" in text
    assert "\n# softmax on Other (sm_80): softmax of each row, fp32\n" in text
    page = (tmp_path / "out" / "index.html").read_text()
    assert '<a href="#softmax-on-other-sm_80-softmax-of-each-row-fp32">softmax on Other (sm_80)</a>' in page
    assert "so these files are left out: `h200-vit-peers.json`." in text


@pytest.mark.usefixtures("unplotted")
def test_op_times_that_had_not_settled_are_reported(tmp_path: Path) -> None:
    rows = both("m1/direct", 5.0, 9.0) + both("m3/fusion", 1.0, 1.0)
    rows[3]["settled"] = False
    write_report(load([stored(tmp_path, fake_record(rows))]), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    assert (
        "op times were not stable when they were measured: `m3/fusion` (conv2, batch 10,000); measure" in text
    )


@pytest.mark.usefixtures("unplotted")
@pytest.mark.parametrize("schema", [1, 2])
def test_older_files_are_of_the_default_operation(schema: int, tmp_path: Path) -> None:
    new = fake_full()
    new["rows"] = [row for row in new["rows"] if row["batch"] == 10000]
    new["rows"][0]["streams"] = fake_streams()
    old = as_schema(schema, new)
    assert all("op" not in row and "problem" not in row for row in (*old["rows"], *old["sweeps"]))
    (board,) = boards(load([stored(tmp_path, old)]))
    (expected,) = boards(load([stored(tmp_path, new)]))
    assert board.operation.name == "conv2d"
    assert list(board.entries) == list(expected.entries)
    assert board.sweeps == expected.sweeps
    for key, entry in board.entries.items():
        for name, row in entry.rows.items():
            assert row.op_ms == expected.entries[key].rows[name].op_ms
            assert row.sizes == expected.entries[key].rows[name].sizes
            assert row.settled is None  # this was not recorded


def test_libraries_stand_beside_any_operation(tmp_path: Path) -> None:
    run = fake_run() | {"schema": "peers-4"}
    for row in run["rows"]:
        known = {"network": ("lenet", "float32"), "conv1": ("conv2d", "conv1"), "conv2": ("conv2d", "conv2")}
        row["op"], row["problem"] = known[row["what"]]
    tensor = [
        fake_row("networks/lenet/tensor_cores", 10000, name, 0.5, accuracy=None)
        for name in ops.find("lenet").course
    ]
    rows = tensor + both("layers/custom", 1.0, 1.0)
    files = [stored(tmp_path, fake_record(rows)), stored(tmp_path, sealed(run), "peers.json")]
    layers, network = boards(load(files))
    assert peers_table(network).rows == [["PyTorch eager", "fp32", "NCHW", "12.0", "24.0×"]]
    assert ["cuDNN", "fp32", "NCHW", "7.00", "4.00", "11.0", "5.50×"] in peers_table(layers).rows


def test_a_ladder_of_another_operation_has_its_table(tmp_path: Path) -> None:
    (tmp_path / "ladders" / "softmax").mkdir(parents=True)
    readme = tmp_path / "ladders" / "softmax" / "README.md"
    readme.write_text("# Softmax\n<!-- ladder:start -->\n<!-- ladder:end -->\n")
    found = boards_of(tmp_path, softmax_rows() + both("m1/direct", 5.0, 9.0))
    _, text = readmes.updated(found, tmp_path)[readme]
    assert "| `softmax/v1_warp` | 1.50 | 1.50 | 3.00 | 4.00× `softmax/v0_naive` |" in text
    assert "m1/direct" not in text
    _, text = readmes.updated(found[:1], tmp_path)[readme]
    assert "Not measured at the course's sizes yet: `run.py bench softmax --out" in text
