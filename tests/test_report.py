"""The report, from results files that the tests make up."""

import base64
import csv
import io
import itertools
import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mini_dnn.cli import main
from mini_dnn.cli import report as verb
from mini_dnn.device.sources import source_hash
from mini_dnn.errors import DataError, UsageError
from mini_dnn.report import readmes
from mini_dnn.report.board import Board, boards
from mini_dnn.report.load import RESULTS, load, results_files
from mini_dnn.report.page import write_report
from mini_dnn.report.roofline import spread
from mini_dnn.report.tables import course_table, number, rates_table, times_table
from mini_dnn.shapes import ConvShape
from mini_dnn.variant import ROOT, find, names

GPU = "Test GPU (sm_90), CUDA 13.0"
STATE = {
    "driver": "580.1",
    "sm_mhz": 1980,
    "memory_mhz": 3201,
    "temperature_c": 45,
    "power_w": 210.5,
    "throttle_reasons": "0x1",  # idle: no throttling
}
CEILINGS = {"copy_gbps": 4270.0, "fp32_tflops": 60.0, "fp16_tflops": 700.0, "h2d_gbps": 55.0}
LAYERS = {"conv1": ConvShape(1, 1, 86, 86, 4, 7, 7), "conv2": ConvShape(1, 4, 40, 40, 16, 7, 7)}


def fake_row(variant: str, batch: int, layer: str, op_ms: float | None, **changes: Any) -> dict[str, Any]:
    shape = LAYERS[layer].with_batch(batch)
    found = find(variant) if variant in names() else None
    return {
        "variant": variant,
        "parent": found.parent if found else None,
        "precision": found.precision if found else "fp32",
        "source_hash": None if not found or found.host else source_hash(found.source),
        "batch": batch,
        "layer": layer,
        "shape": vars(shape),
        "flops": shape.flops,
        "min_bytes": shape.min_bytes,
        "op_ms": op_ms,
        "op_ms_min": op_ms,
        "op_ms_max": op_ms,
        "op_ms_quartiles": None,
        "median_error": 0.0031,
        "repeats": 40,
        "parts": 1,
        "layer_ms": 120.0 + (op_ms or 0),
        "compile_ms": 3.0,
        "max_error": 1.25e-6,
        "error_of_bound": 0.2,
        "accuracy": 0.8714,
        "state": STATE,
    } | changes


def fake_record(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    timing = {"warm_up": 5, "repeats": 20, "max_repeats": 500, "precision": 0.005, "budget_s": 5.0}
    return {
        "schema": 1,
        "started": "2025-01-01T10:00:00+00:00",
        "commit": "0123456789abcdef",
        "dirty": False,
        "device": {"name": GPU, "cpu": "Test CPU", "state": STATE},
        "data": "synthetic",
        "versions": {"python": "3.11"},
        "method": timing | {"cold_cache": True},
        "rows": rows,
    } | changes


def fake_streams() -> dict[str, Any]:
    spans = []
    for part, (stream, kind, length) in itertools.product(
        range(6), [(0, "copy_in", 2.2), (1, "kernel", 0.1), (2, "copy_out", 2.0)]
    ):
        start = part * 2.4 + stream * 2.3
        times = {"start_ms": start, "end_ms": start + length}
        spans.append({"kind": kind, "stream": part % 3, "label": f"x[{part}]", **times})
    return {"hidden_fraction": 0.93, "spans": spans}


def fake_sweep(layer: str) -> dict[str, Any]:
    xs, ys = [128, 256, 512, 1024], [1, 2, 4]
    op_ms: list[list[float | None]] = [[8 / y + abs(x - 512) / 200 for x in xs] for y in ys]
    op_ms[0][3] = None
    axes = {"x_name": "TILE_COLS", "x_values": xs, "y_name": "THREAD_COLS", "y_values": ys}
    return {"variant": "m3/sweep", "layer": layer, "batch": 10000, "op_ms": op_ms, "best": [512, 4], **axes}


def fake_full() -> dict[str, Any]:
    """All variants at three batches, each faster than the one before; streams, sweeps and ceilings."""
    rows = []
    for batch in (100, 1000, 10000):
        for at, variant in enumerate(names()):
            for layer, whole in (("conv1", 9000.0), ("conv2", 17000.0)):
                op_ms = whole / 1500 ** min(1, at) / 1.1**at * batch / 10000
                if variant == "m3/constant_memory":
                    op_ms *= 3  # slower than its parent
                extra = {"streams": fake_streams()} if variant == "m3/restrict" else {}
                rows.append(fake_row(variant, batch, layer, op_ms, **extra))
    return fake_record(rows, memory=CEILINGS, sweeps=[fake_sweep("conv1"), fake_sweep("conv2")])


def stored(folder: Path, record: dict[str, Any], name: str = "results.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(record))
    return path


def board_of(folder: Path, rows: list[dict[str, Any]], **changes: Any) -> Board:
    return boards(load([stored(folder, fake_record(rows, **changes))]))[0]


def both(variant: str, one: float, two: float, **changes: Any) -> list[dict[str, Any]]:
    return [fake_row(variant, 10000, layer, ms, **changes) for layer, ms in (("conv1", one), ("conv2", two))]


def test_report_has_all_parts_and_needs_nothing_else(tmp_path: Path) -> None:
    since = time.perf_counter()
    results = load([stored(tmp_path, fake_full())])
    written = {path.name for path in write_report(results, tmp_path / "new" / "out")}
    assert time.perf_counter() - since < 20
    plots = {"op_times.png", "ladder.png", "roofline.png", "sweep.png", "streams.png"}
    assert written == {"index.html", "report.md", "ops.csv"} | plots
    page = (tmp_path / "new" / "out" / "index.html").read_text()
    assert not re.search(r"<script|<link|https?:|url\(", page)
    svgs = re.findall(r'"data:image/svg\+xml;base64,([^"]+)"', page)
    assert len(svgs) == 2 * len(plots)  # light and dark
    assert all(b"<svg" in base64.b64decode(svg, validate=True)[:600] for svg in svgs)
    assert "prefers-color-scheme: dark" in page
    for name in plots:
        pixels = np.asarray(Image.open(tmp_path / "new" / "out" / name).convert("L"))
        assert pixels.std() > 10  # something is drawn
        assert pixels[:4].min() > 250  # on a light ground
    assert all(text in page for text in ("Batch 100<", "Batch 1,000<", "Batch 10,000<", "168.5", "93 %"))
    assert "What is missing" not in page


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


def test_sum_and_speed_ups(tmp_path: Path) -> None:
    rows = both("m1/direct", 6.0, 6.0) + both("m2/unroll_gemm", 5.0, 3.0) + both("m3/fusion", 1.0, 1.0)
    board = board_of(tmp_path, [*rows, fake_row("m3/stack_1", 10000, "conv1", 0.5)])
    over = {row[0].strip("`"): row[4:7] for row in times_table(board, 10000).rows}
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
    compute_ms = shape.flops / CEILINGS["fp32_tflops"] / 1e9  # more than memory_ms in conv1
    op_ms = 2 * (compute_ms if bound == "compute" else memory_ms)
    row = fake_row("m1/direct", 10000, layer, op_ms, precision=precision)
    cells = rates_table(board_of(tmp_path, [row], memory=CEILINGS), 10000).rows[0]
    assert (cells[6], cells[3]) == (share, bound)
    assert float(cells[4].replace(",", "")) == pytest.approx(shape.min_bytes / op_ms / 1e6, rel=0.01)
    assert float(cells[5]) == pytest.approx(shape.flops / op_ms / 1e9, rel=0.01)


def test_no_roofline_share_without_ceilings_or_on_the_host(tmp_path: Path) -> None:
    rows = both("m1/cpu", 900.0, 900.0)
    assert rates_table(board_of(tmp_path, both("m1/direct", 5.0, 9.0)), 10000).rows[0][6] == "–"
    assert rates_table(board_of(tmp_path, rows, memory=CEILINGS), 10000).rows[0][6] == "–"


def test_changed_and_removed_kernels_are_stale(tmp_path: Path) -> None:
    rows = both("m1/direct", 5.0, 9.0, source_hash="0" * 64) + both("m1/no_more", 5.0, 9.0)
    rows += both("m1/cpu", 900.0, 900.0) + both("m2/unroll_gemm", 4.0, 3.0)
    board = board_of(tmp_path, rows)
    stale = {variant: entry.stale for (variant, _), entry in board.entries.items()}
    assert "changed" in stale["m1/direct"]
    assert "no such variant" in stale["m1/no_more"]
    assert stale["m1/cpu"] == stale["m2/unroll_gemm"] == ""
    assert "`m1/direct` (stale)" in [row[0] for row in times_table(board, 10000).rows]


def test_the_later_run_counts(tmp_path: Path) -> None:
    late = fake_record(both("m1/direct", 5.0, 9.0), started="2025-02-02T10:00:00+00:00")
    early = fake_record(both("m1/direct", 7.0, 8.0) + both("m3/fusion", 1.0, 1.0))
    files = [stored(tmp_path, late, "a.json"), stored(tmp_path, early, "b.json")]
    for order in (files, files[::-1]):
        (board,) = boards(load(order))
        assert board.entries["m1/direct", 10000].sum_ms == 14
        assert board.entries["m3/fusion", 10000].sum_ms == 2


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
    assert text.count("bench --out benchmarks/results/NAME.json --impl m3/sweep --sweep") == 1  # for the GPU


def test_page_warns_of_what_spoils_figures(tmp_path: Path) -> None:
    hot = STATE | {"throttle_reasons": "0x24"}
    rows = both("m1/direct", 5.0, 9.0, state=hot) + both("m3/fusion", 0.01, 1.0)
    rows += both("m2/unroll_gemm", 5.0, 3.0, source_hash="0" * 64)
    path = stored(tmp_path, fake_record(rows, dirty=True, memory=CEILINGS))
    write_report(load([path]), tmp_path / "out")
    text = (tmp_path / "out" / "report.md").read_text()
    warning = text[text.index("**Warning**") : text.index("##")]
    assert "held down (power cap) at `m1/direct`" in warning
    assert "held down (thermal, by software) at `m1/direct`" in warning
    assert "differ from commit `0123456789`" in warning
    assert "changed since: `m2/unroll_gemm`" in warning
    assert "faster than the ceilings allow: `m3/fusion` (conv1)" in warning


def test_csv_has_every_row(tmp_path: Path) -> None:
    write_report(load([stored(tmp_path, fake_record(both("m1/direct", 6.0, 9.0)))]), tmp_path / "out")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out" / "ops.csv").read_text())))
    assert [(row["layer"], row["op_ms"], row["sum_op_ms"]) for row in rows] == [
        ("conv1", "6.0", "15.0"),
        ("conv2", "9.0", "15.0"),
    ]


def test_names_cannot_break_the_page(tmp_path: Path) -> None:
    rows = both("<script>alert(1)</script>|x", 5.0, 9.0)
    write_report(load([stored(tmp_path, fake_record(rows))]), tmp_path / "out")
    assert "<script" not in (tmp_path / "out" / "index.html").read_text()
    table = (tmp_path / "out" / "report.md").read_text()
    assert "</script>\\|x" in table


def broken(*path: str | int, value: Any = ...) -> str:
    """A record with one field set to something else, or taken out."""
    record = json.loads(json.dumps(fake_full()))
    inside = record
    for step in path[:-1]:
        inside = inside[step]
    if value is ...:
        del inside[path[-1]]
    else:
        inside[path[-1]] = value
    return json.dumps(record)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("{", "not JSON"),
        ("[]", "schema is None"),
        (broken("schema", value=2), "schema is 2"),
        (broken("device"), "device is missing"),
        (broken("device", "state", "driver"), "device.state.driver is missing"),
        (
            broken("device", "state", "throttle_reasons", value="hot"),
            "device.state.throttle_reasons is 'hot'",
        ),
        (broken("method", "warm_up", value="5"), "method.warm_up is '5'; expected int"),
        (broken("rows", 3, "op_ms"), "rows[3].op_ms is missing"),
        (broken("rows", 3, "op_ms", value=0), "rows[3].op_ms is 0; expected more than 0"),
        (broken("rows", 3, "op_ms", value=float("nan")), "NaN is no measured number"),
        (broken("rows", 0, value=7), "rows[0] is 7; expected an object"),
        (broken("memory", "copy_gbps", value="fast"), "memory.copy_gbps is 'fast'"),
        (broken("sweeps", 1, "op_ms", value=[[1.0]]), "sweeps[1].op_ms has other lengths"),
        (broken("rows", value=[]), "no rows"),
    ],
)
def test_damaged_file_is_refused_by_file_and_field(tmp_path: Path, text: str, field: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(DataError) as refusal:
        load([path])
    assert field in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert "run.py bench --out" in str(refusal.value)


def test_span_of_unknown_kind_is_refused(tmp_path: Path) -> None:
    streams = fake_streams()
    streams["spans"][2]["kind"] = "pause"
    path = stored(tmp_path, fake_record([fake_row("m1/direct", 100, "conv1", 1.0, streams=streams)]))
    with pytest.raises(
        DataError, match=r"rows\[0\].streams.spans\[2\].kind is 'pause'; expected one of copy_in"
    ):
        load([path])


def test_no_results_says_how_to_make_some(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(UsageError, match=r"no results: .*run\.py bench --out"):
            results_files([path])
    path = stored(tmp_path, fake_record([]))
    assert results_files([tmp_path]) == [path]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "milestones" / "m3").mkdir(parents=True)
    (tmp_path / "README.md").write_text("# Top\n<!-- op-times:start -->\nold\n<!-- op-times:end -->\nend\n")
    ladder = "# M3\n\n<!-- ladder:start -->\n<!-- ladder:end -->\n\nlast words\n"
    (tmp_path / "milestones" / "m3" / "README.md").write_text(ladder)
    return tmp_path


def test_readme_tables_come_from_the_results(checkout: Path) -> None:
    rows = both("m2/unroll_gemm", 6.0, 4.0) + both("m3/fusion", 3.0, 2.0) + both("m1/direct", 8.0, 8.0)
    board = board_of(checkout, rows)
    tables = readmes.updated(board, checkout)
    _, top = tables[checkout / "README.md"]
    _, m3 = tables[checkout / "milestones" / "m3" / "README.md"]
    assert top.startswith("# Top\n<!-- op-times:start -->\n")
    assert top.endswith("\n<!-- op-times:end -->\nend\n")
    assert "old" not in top
    assert "| `m3/fusion` | req_2 | 3.00 | 2.00 | 5.00 | 2.00× `m2/unroll_gemm` |" in m3
    assert [name in m3 for name in ("| `m2/unroll_gemm`", "| `m1/direct`")] == [True, False]
    assert "| `m1/direct`" in top
    assert f"{GPU}, batch 10,000, commit `0123456789`." in m3
    for path, (_, text) in tables.items():
        path.write_text(text)
    assert all(now == wanted for now, wanted in readmes.updated(board, checkout).values())


def test_readme_without_its_second_marker_is_refused(checkout: Path) -> None:
    board = board_of(checkout, both("m1/direct", 5.0, 9.0))
    (checkout / "README.md").write_text("<!-- op-times:end --> <!-- op-times:start -->")
    with pytest.raises(UsageError, match=r"README\.md: expected one '<!-- op-times:start -->'"):
        readmes.updated(board, checkout)
    for path in checkout.rglob("README.md"):
        path.write_text("nothing")
    with pytest.raises(UsageError, match="no README under"):
        readmes.updated(board, checkout)


def test_verb_writes_the_tables_and_tells_when_they_are_behind(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verb, "ROOT", checkout)
    results = str(stored(checkout, fake_record(both("m1/direct", 5.0, 9.0))))
    assert main(["report", results, "--check"]) == 1
    assert "README.md: its table is not that of the results" in capsys.readouterr().out
    assert "old" in (checkout / "README.md").read_text()
    assert main(["report", results, "--readmes"]) == 0
    assert main(["report", results, "--check"]) == 0
    assert "up to date" in capsys.readouterr().out


def test_verb_writes_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = str(stored(tmp_path, fake_record(both("m1/direct", 5.0, 9.0))))
    assert main(["report", results, "--out", str(tmp_path / "out")]) == 0
    assert str(tmp_path / "out" / "index.html") in capsys.readouterr().out
    assert main(["report", str(tmp_path / "none.json")]) == 2
    assert "Measure first" in capsys.readouterr().err


def test_readmes_of_this_repository_are_those_of_its_results() -> None:
    if not list(RESULTS.glob("*.json")):
        pytest.skip("there are no stored results")
    board = boards(load(results_files([])))[0]
    behind = [str(path) for path, (now, wanted) in readmes.updated(board, ROOT).items() if now != wanted]
    assert not behind, "run.py report --readmes writes their tables anew"


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
