"""The report: its tables, plots and files."""

import base64
import csv
import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from report_records import (
    CEILINGS,
    GPU,
    LAYERS,
    STATE,
    as_schema,
    board_of,
    both,
    fake_full,
    fake_peers,
    fake_record,
    fake_row,
    stored,
)

from mini_dnn.cli import main
from mini_dnn.device.code_hash import code_hash
from mini_dnn.measuring.roof import Roof
from mini_dnn.report.board import boards
from mini_dnn.report.course import course_table
from mini_dnn.report.load import load
from mini_dnn.report.page import write_report
from mini_dnn.report.rivals import peers_table
from mini_dnn.report.roofline import roofline
from mini_dnn.report.tables import rates_table, times_table
from mini_dnn.report.theme import LIGHT
from mini_dnn.variant import find, own


@pytest.mark.whole
def test_report_has_all_parts_and_needs_nothing_else(tmp_path: Path) -> None:
    results = load([stored(tmp_path, fake_full()), stored(tmp_path, fake_peers(), "peers.json")])
    written = {path.name for path in write_report(results, tmp_path / "new" / "out")}
    drawn_there = {"op_times.png", "ladder.png", "roofline.png"}  # drawn in the browser by the page's script
    plots = {*drawn_there, "gains.png", "sweep.png", "streams.png"}
    assert written == {"index.html", "report.md", "ops.csv"} | plots
    page = (tmp_path / "new" / "out" / "index.html").read_text()
    assert not re.search(r"<script[^>]* src|<link|@import|url\(|<iframe", page)
    addresses = re.findall(r'(?:src|srcset|href)="([^"#]{1,40})', page)
    assert {address.partition(",")[0] for address in addresses} <= {"data:image/svg+xml;base64"}
    svgs = re.findall(r'"data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(svgs) == 2 * (len(plots) - len(drawn_there))  # light and dark
    assert all(b"<svg" in base64.b64decode(svg, validate=True)[:600] for svg in svgs)
    assert "prefers-color-scheme: dark" in page
    for name in plots:
        pixels = np.asarray(Image.open(tmp_path / "new" / "out" / name).convert("L"))
        assert pixels.std() > 10  # the picture is not empty
        assert pixels[:4].min() > 250  # the background is light
    assert all(
        text in page
        for text in ("Batch 100<", "Batch 1,000<", "Batch 10,000<", "168.5", "93 %", "The ladder<")
    )
    assert "What is missing" not in page


@pytest.mark.exhaustive
def test_same_results_give_the_same_files(tmp_path: Path) -> None:
    results = load([stored(tmp_path, fake_record(both("m1/direct", 5.0, 9.0)))])
    first = {path.name: path.read_bytes() for path in write_report(results, tmp_path / "a")}
    assert first == {path.name: path.read_bytes() for path in write_report(results, tmp_path / "b")}


def test_course_table_has_the_original_figures_and_ours(tmp_path: Path) -> None:
    rows = both("m2/unroll_gemm", 6.0, 4.0) + both("m3/stack_1", 1.5, 1.0)
    table = course_table(board_of(tmp_path, rows))
    step, *rest = table.rows[0]
    assert step == "unroll, GEMM, permute"
    assert rest == ["`m2/unroll_gemm`", "95.6", "72.9", "168.5", "1.00×", "6.00", "4.00", "10.0", "1.00×"]
    assert table.rows[1][4:] == ["74.5", "2.26×", "1.50", "1.00", "2.50", "4.00×"]
    assert table.rows[2][1:] == ["`m3/stack_2` (not measured)", "36.8", "28.5", "65.3", "2.58×", *["–"] * 4]


def test_libraries_stand_beside_the_final_kernel(tmp_path: Path) -> None:
    ours = stored(tmp_path, fake_record(both("layers/custom", 1.0, 2.0)))
    (board,) = boards(load([ours, stored(tmp_path, fake_peers(), "peers.json")]))
    assert peers_table(board).rows == [["cuDNN", "fp32", "NCHW", "7.00", "5.00", "12.0", "4.00×"]]
    other = stored(tmp_path, fake_peers() | {"device": "Test GPU Ti"}, "other.json")
    (board,) = boards(load([ours, other]))
    assert peers_table(board).rows == []


def test_sum_and_speed_ups(tmp_path: Path) -> None:
    rows = both("m1/direct", 6.0, 6.0) + both("m2/unroll_gemm", 5.0, 3.0) + both("m3/fusion", 1.0, 1.0)
    board = board_of(tmp_path, [*rows, fake_row("m3/stack_1", 10000, "conv1", 0.5)])
    over = {row[0].strip("`"): row[5:8] for row in times_table(board, 10000).rows}
    assert over["m2/unroll_gemm"] == ["8.00", "1.50×", "1.00×"]
    assert over["m3/fusion"] == ["2.00", "4.00×", "4.00×"]
    assert over["m3/stack_1"] == ["–", "–", "–"]  # conv2 is missing, so there is no sum
    assert times_table(board, 10000).strong == {2}


@pytest.mark.parametrize(
    ("precision", "layer", "share", "bound"),
    [
        ("fp32", "conv1", "50 %", "compute"),
        ("fp16", "conv1", "50 %", "memory"),
        ("tf32", "conv2", "≥ 50 %", "not known"),
    ],
)
def test_roofline_share(tmp_path: Path, precision: str, layer: str, share: str, bound: str) -> None:
    shape = LAYERS[layer].with_batch(10000)
    memory_ms = shape.min_bytes / CEILINGS["copy_gbps"] / 1e6
    compute_ms = shape.flops / CEILINGS["fp32_tflops"] / 1e9  # for conv1 this is more than memory_ms
    op_ms = 2 * (compute_ms if bound == "compute" else memory_ms)
    row = fake_row("m1/direct", 10000, layer, op_ms, precision=precision)
    cells = rates_table(board_of(tmp_path, [row], memory=CEILINGS), 10000).rows[0]
    assert (cells[6], cells[3]) == (share, bound)
    assert float(cells[4].replace(",", "")) == pytest.approx(shape.min_bytes / op_ms / 1e6, rel=0.01)
    assert float(cells[5]) == pytest.approx(shape.flops / op_ms / 1e9, rel=0.01)


def test_roofline_of_the_split_is_that_of_three_products_on_the_fp16_unit(tmp_path: Path) -> None:
    """With one product, memory would be the limit. The ceiling of the fp32 unit would be much lower."""
    shape = LAYERS["conv2"].with_batch(10000)
    compute_ms = 3 * shape.flops / CEILINGS["fp16_tflops"] / 1e9
    assert compute_ms / 3 < shape.min_bytes / CEILINGS["copy_gbps"] / 1e6 < compute_ms
    rows = [fake_row(name, 10000, "conv2", 2 * compute_ms) for name in ("m3/fp32_split", "m3/fusion")]
    cells = {row[0]: row for row in rates_table(board_of(tmp_path, rows, memory=CEILINGS), 10000).rows}
    assert {row[2] for row in cells.values()} == {"fp32"}  # both results are as exact as fp32
    assert (cells["`m3/fp32_split`"][3], cells["`m3/fp32_split`"][6]) == ("compute", "50 %")
    of_fp32 = shape.flops / CEILINGS["fp32_tflops"] / 1e9 / (2 * compute_ms)
    assert cells["`m3/fusion`"][6] == f"{of_fp32:.0%}".replace("%", " %")
    ceilings = {name: value for name, value in CEILINGS.items() if name != "fp16_tflops"}
    cells = {row[0]: row for row in rates_table(board_of(tmp_path, rows, memory=ceilings), 10000).rows}
    assert (cells["`m3/fp32_split`"][3], cells["`m3/fusion`"][3]) == ("not known", "compute")


def test_a_variant_says_in_what_it_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = """from mini_dnn.variant import Variant
VARIANT = Variant("conv2d", "mine", plan=lambda s: [], precision="fp32", compute_type="3xtf32")
"""
    (tmp_path / "variant.py").write_text(text)
    (tmp_path / "kernel.cu").write_text("")
    monkeypatch.setattr(
        "mini_dnn.report.stale.own", lambda name: find(name) if name == str(tmp_path) else own(name)
    )
    compute_ms = 3 * LAYERS["conv2"].with_batch(10000).flops / CEILINGS["fp16_tflops"] / 1e9
    names = (str(tmp_path), "m3/no_more")
    rows = [fake_row(name, 10000, "conv2", 2 * compute_ms, source_hash="0" * 64) for name in names]
    ceilings = {"copy_gbps": CEILINGS["copy_gbps"], "tf32_tflops": CEILINGS["fp16_tflops"]}
    board = board_of(tmp_path, rows, memory=ceilings)
    mine, gone = (board.entries[name, 10000].rows["conv2"] for name in names)
    assert (board.compute_type(mine), board.compute_type(gone)) == ("3xtf32", "fp32")
    assert board.roof(mine) == Roof(pytest.approx(0.5), "compute")
    (legend,) = roofline(board, [mine, gone], {}, LIGHT).legends
    assert [label.get_text() for label in legend.get_texts()] == ["fp32", "3xtf32"]


def test_no_roofline_share_without_ceilings_or_on_the_host(tmp_path: Path) -> None:
    rows = both("m1/cpu", 900.0, 900.0)
    assert rates_table(board_of(tmp_path, both("m1/direct", 5.0, 9.0)), 10000).rows[0][6] == "–"
    assert rates_table(board_of(tmp_path, rows, memory=CEILINGS), 10000).rows[0][6] == "–"


def test_changed_and_removed_kernels_are_stale(tmp_path: Path) -> None:
    rows = both("m1/direct", 5.0, 9.0, code_hash="0" * 64) + both("m1/no_more", 5.0, 9.0)
    rows += both("m1/cpu", 900.0, 900.0) + both("m2/unroll_gemm", 4.0, 3.0)
    board = board_of(tmp_path, rows)
    stale = {variant: entry.stale for (variant, _), entry in board.entries.items()}
    assert "changed" in stale["m1/direct"]
    assert "no variant of this checkout" in stale["m1/no_more"]
    assert stale["m1/cpu"] == stale["m2/unroll_gemm"] == ""
    assert "`m1/direct` (stale)" in [row[0] for row in times_table(board, 10000).rows]


def test_rows_that_do_not_say_their_code_are_stale(tmp_path: Path) -> None:
    record = as_schema(1, fake_record(both("m1/direct", 5.0, 9.0) + both("m3/fusion", 1.0, 1.0)))
    for row in record["rows"][2:]:
        row["code_hash"] = code_hash(find("m3/fusion").source)  # some files have no such field yet
    (board,) = boards(load([stored(tmp_path, record)]))
    assert "does not say which code" in board.entries["m1/direct", 10000].stale
    assert board.entries["m3/fusion", 10000].stale == ""


def test_the_later_run_counts(tmp_path: Path) -> None:
    late = fake_record(both("m1/direct", 5.0, 9.0), started="2025-02-02T10:00:00+00:00")
    early = fake_record(both("m1/direct", 7.0, 8.0) + both("m3/fusion", 1.0, 1.0))
    files = [stored(tmp_path, late, "a.json"), stored(tmp_path, early, "b.json")]
    for order in (files, files[::-1]):
        (board,) = boards(load(order))
        assert board.entries["m1/direct", 10000].sum_ms == 14
        assert board.entries["m3/fusion", 10000].sum_ms == 2


@pytest.mark.usefixtures("unplotted")
def test_devices_are_kept_apart(tmp_path: Path) -> None:
    other = {"name": "CPU emulator, 2 threads", "cpu": "Test CPU", "state": None}
    rows = [fake_row("m1/direct", 100, "conv1", None, median_error=None, repeats=0, state=None)]
    emulated = fake_record(rows, device=other, started="2026-01-01T00:00:00+00:00")
    gpu = fake_record(both("m1/direct", 5.0, 9.0))
    results = load([stored(tmp_path, emulated, "e.json"), stored(tmp_path, gpu, "g.json")])
    assert [board.device for board in boards(results)] == [GPU, "CPU emulator, 2 threads"]
    written = {path.name for path in write_report(results, tmp_path / "out")}
    assert {name for name in written if name.endswith(".png")} == {"op_times.png", "roofline.png"}
    text = (tmp_path / "out" / "report.md").read_text()
    assert "no clock" in text
    # The missing GPU run
    assert text.count("bench --out benchmarks/results/NAME.json --impl m3/sweep --sweep") == 1


@pytest.mark.usefixtures("unplotted")
def test_page_warns_of_what_spoils_figures(tmp_path: Path) -> None:
    hot = STATE | {"throttle_reasons": "0x24"}
    rows = both("m1/direct", 5.0, 9.0, state=hot) + both("m3/fusion", 0.01, 1.0)
    rows += both("m2/unroll_gemm", 5.0, 3.0, code_hash="0" * 64)
    path = stored(tmp_path, fake_record(rows, dirty=True, memory=CEILINGS))
    write_report(load([path]), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    warning = text[text.index("**Warning**") : text.index("\n## ")]
    assert "held down (power cap) at `m1/direct`" in warning
    assert "held down (software thermal limit) at `m1/direct`" in warning
    assert "differ from commit `0123456789`" in warning
    assert "changed since: `m2/unroll_gemm`" in warning
    assert "faster than the ceilings allow: `m3/fusion` (conv1)" in warning


@pytest.mark.usefixtures("unplotted")
def test_csv_has_every_row(tmp_path: Path) -> None:
    write_report(load([stored(tmp_path, fake_record(both("m1/direct", 6.0, 9.0)))]), tmp_path / "out")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "ops.csv").read_text())))
    assert [(row["problem"], row["op_ms"], row["sum_op_ms"]) for row in rows] == [
        ("conv1", "6.0", "15.0"),
        ("conv2", "9.0", "15.0"),
    ]


@pytest.mark.usefixtures("unplotted")
def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    rows = both("<script>alert(1)</script>|x", 5.0, 9.0)
    write_report(load([stored(tmp_path, fake_record(rows))]), tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    assert "<script>alert" not in page
    assert page.count("<script") == page.count("</script>") == 2  # its data and its own script
    assert "\\u003cscript>alert(1)" in page
    table = (tmp_path / "out" / "report.md").read_text()
    assert "</script>\\|x" in table


def test_verb_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = str(stored(tmp_path, fake_record(both("m1/direct", 5.0, 9.0))))
    assert main(["report", results, "--out", str(tmp_path / "out")]) == 0
    assert str(tmp_path / "out" / "index.html") in capsys.readouterr().out
    assert main(["report", str(tmp_path / "none.json")]) == 2
    assert "Measure first" in capsys.readouterr().err
