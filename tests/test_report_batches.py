"""The report on networks by batch size: tables, pictures, READMEs, and refused files."""

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from report_records import GPU, fake_record, fake_row, stored

from mini_dnn.cli import main
from mini_dnn.device.code_hash import code_hash
from mini_dnn.errors import DataError
from mini_dnn.measuring import strict
from mini_dnn.measuring.batches import BatchesFile
from mini_dnn.measuring.files import read_json, write
from mini_dnn.report import readmes
from mini_dnn.report.batches import ByBatch, by_batch, doubts, memory_table, times_table, work_table
from mini_dnn.report.batches_page import memory_plot, times_plot
from mini_dnn.report.board import boards
from mini_dnn.report.load import load
from mini_dnn.report.steps import about as about_steps
from mini_dnn.report.steps import passes, steps_table
from mini_dnn.report.theme import LIGHT
from mini_dnn.variant import find

SLOW, FAST = "networks/resnet18/v0_transfers", "networks/resnet18/v6_graph"
PROBLEM, CPU = "224,3", "NumPy, 2 threads"
MEMORY = {"weights": 46_000_000, "activations": 12_000_000, "workspace": 0}


def row(program: str, batch: int, *ms: float, **changes: Any) -> dict[str, Any]:
    """A row of a variant."""
    plan = {"launches": 69, "round_trips": 0, "copied_bytes": 0, "memory": MEMORY, "taken_bytes": 90_000_000}
    code = {"code_hash": code_hash(find(program).source), "served_ms": [1.25 * ms[0]]}
    found = {"kind": "ours", "program": program, "problem": PROBLEM, "batch": batch, "ms": list(ms)}
    return found | {"max_error": 1e-3, "agrees": True} | plan | code | changes


def other(kind: str, program: str, batch: int, ms: float, **changes: Any) -> dict[str, Any]:
    found = {"kind": kind, "program": program, "problem": PROBLEM, "batch": batch, "ms": [ms]}
    return found | {"agrees": True} | changes


def file_of(rows: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    head = {"schema": "batches-1", "started": None, "commit": "0123456789abcdef", "dirty": False}
    place = {"name": GPU, "cpu": "", "state": None}
    return head | {"device": place, "versions": {}, "op": "resnet", "rows": rows} | changes


TRIPS = {"round_trips": 68, "copied_bytes": 4_000_000_000, "stay_ms": [50.0]}
RUNGS = [row(FAST, 1, 0.125), row(FAST, 64, 0.5, 0.4, 0.5), row(SLOW, 1, 5.0), row(SLOW, 64, 160.0, **TRIPS)]
HOST = [other("host", CPU, 1, 20.0, agrees=None)]
PEERS = [
    row(FAST, 1, 0.12),
    other("library", "PyTorch eager", 1, 1.2),
    other("library", "torch.compile", 1, 0.01, agrees=False),
]


def step(name: str, us: float, count: int, **more: Any) -> dict[str, Any]:
    """One kind of launch of the fast variant."""
    of = {"variant": FAST, "problem": PROBLEM, "batch": 64, "step": name, "us": us, "count": count}
    return of | more


STEPS = [
    step("conv1 stem 8x64", 40.0, 1, part="the first convolution", flops=8_000_000_000),
    step("layer1_0_conv1 rows 132", 30.0, 2, part="convolutions behind the first", flops=18_000_000_000),
    step("layer2_0_conv1 192 132", 20.0, 1, part="convolutions behind the first", flops=14_000_000_000),
    step("score 125x16", 5.0, 1),
]


def files(folder: Path, **records: dict[str, Any]) -> list[Path]:
    """Op times of the same operation, and the given files with their checksums."""
    bench = stored(folder, fake_record([fake_row(name, 1, "batch-1", 1.0) for name in (SLOW, FAST)]))
    for name, record in records.items():
        write(record, folder / f"{name}.json", BatchesFile)
    return [bench, *(folder / f"{name}.json" for name in records)]


def all_files(folder: Path, **changes: Any) -> list[Path]:
    host = file_of(HOST, device={"name": "Test CPU", "cpu": "Test CPU", "state": None})
    peers = file_of(PEERS, versions={"torch": "2.11"}, steps=STEPS)
    return files(folder, rungs=file_of(RUNGS, **changes), host=host, peers=peers)


def network_of(paths: list[Path]) -> ByBatch:
    results = load(paths)
    (network,) = by_batch(boards(results)[0], results.batches)
    return network


def test_tables(tmp_path: Path) -> None:
    network = network_of(all_files(tmp_path))
    assert list(network.ours) == [SLOW, FAST]  # in the order of the ladder
    times = times_table(network)
    assert times.columns[:4] == ["program", "batch 1, ms", "batch 64, ms", "over `v0_transfers`, batch 1"]
    assert times.columns[-1] == "over the CPU, batch 64"
    assert times.rows == [
        [f"`{SLOW}`", "5.00", "160", "–", "–", "4.00×", "–"],
        [f"`{FAST}`", "0.125", "0.500", "40.0×", "320×", "160×", "–"],
        [f"`{CPU}`", "20.0", "–", "0.250×", "–", "–", "–"],
    ]
    work = [[f"`{SLOW}`", "64", "160", "–", "–", "69", "68", "4,000.0", "200", "75 %"]]
    assert work_table(network, [64]).rows[:1] == work
    assert memory_table(network, [1]).rows[1] == [f"`{FAST}`", "1", "46.0", "12.0", "0.0", "90.0"]


def test_rows_of_a_run_of_their_own_take_the_place_of_those_beside_libraries(tmp_path: Path) -> None:
    assert network_of(all_files(tmp_path)).ours[FAST][1].median_ms == 0.125
    assert network_of(files(tmp_path, peers=file_of(PEERS))).ours[FAST][1].median_ms == 0.12


def test_pages(tmp_path: Path, plotted_once: None) -> None:
    words = ["report", *map(str, all_files(tmp_path)), "--out", str(tmp_path / "out")]
    assert main(words) == 0
    text = (tmp_path / "out" / "report.md").read_text()
    assert text.count("## By batch") == 1
    assert "| PyTorch eager | `peers` | 1.20 | 10.0× |" in text
    assert "| torch.compile |" not in text
    assert "> - omitted because their scores differ from float64: `torch.compile`, batch 1" in text
    assert f"> - scores were not compared with float64: `{CPU}`" in text
    assert "PyTorch 2.11." in text
    assert text.count("### Launch by launch") == 1
    assert "| **convolutions behind the first** | **3** |" in text
    assert re.search(r"v6_graph`\S* \| 8,000 \| 128,000 \|", text)
    assert (tmp_path / "out" / "batches.png").stat().st_size > 1000
    assert (tmp_path / "out" / "memory.png").stat().st_size > 1000


@pytest.mark.usefixtures("unplotted")
def test_no_part_for_another_device_or_operation(tmp_path: Path) -> None:
    elsewhere = file_of(RUNGS, device={"name": "Other GPU", "cpu": "", "state": None})
    paths = files(tmp_path, elsewhere=elsewhere, vit=file_of(RUNGS, op="vit"))
    assert main(["report", *map(str, paths), "--out", str(tmp_path / "out")]) == 0
    assert "By batch" not in (tmp_path / "out" / "report.md").read_text()


def test_what_a_reader_must_know(tmp_path: Path) -> None:
    assert not list(doubts(network_of(files(tmp_path, rungs=file_of(RUNGS)))))
    rows = [RUNGS[0] | {"code_hash": None}, RUNGS[2] | {"code_hash": "0" * 64}]
    found = list(doubts(network_of(files(tmp_path, rungs=file_of(rows, dirty=True)))))
    assert found[0] == "`rungs.json` was measured with files that differ from its commit"
    assert found[1].startswith("`rungs.json`: the file does not say which code it measured")
    assert found[2] == f"stale, the code has changed since: `{SLOW}`"


def test_plots_have_a_line_for_each_program_and_a_bar_for_each_role(tmp_path: Path) -> None:
    network = network_of(all_files(tmp_path))
    figure = times_plot(network, LIGHT)
    with mpl.rc_context():
        FigureCanvasAgg(figure).draw()
    latency, rates = figure.axes
    lines = {str(line.get_label()): line for line in latency.lines}
    assert list(lines) == ["v0_transfers", "v6_graph", CPU, "PyTorch eager"]
    assert [lines[name].get_linestyle() for name in ("v6_graph", CPU, "PyTorch eager")] == ["-", ":", "--"]
    assert list(rates.lines[1].get_ydata()) == pytest.approx([8_000, 128_000])
    panels = memory_plot(network, LIGHT).axes
    heights = [bar.get_height() for bars in panels[1].containers for bar in bars]
    assert heights == pytest.approx([46, 46, 12, 12, 0, 0])


def test_time_and_rate_of_each_kind_of_launch(tmp_path: Path) -> None:
    paths = files(tmp_path, rungs=file_of(RUNGS, steps=STEPS), older=file_of(PEERS))
    (one,) = (one for file in load(paths).batches for one in passes(file))
    table = steps_table(one)
    assert table.rows == [
        ["`conv1 stem 8x64`", "1", "40.0", "40.0", "32.0 %", "200"],
        ["`layer1_0_conv1 rows 132`", "2", "30.0", "60.0", "48.0 %", "600"],
        ["`layer2_0_conv1 192 132`", "1", "20.0", "20.0", "16.0 %", "700"],
        ["`score 125x16`", "1", "5.00", "5.00", "4.0 %", "–"],
        ["the first convolution", "1", "40.0", "40.0", "32.0 %", "200"],
        ["convolutions behind the first", "3", "–", "80.0", "64.0 %", "625"],
    ]
    assert "together they take 125 us, and a whole pass takes 500 us" in about_steps(one)
    assert "Stale" not in about_steps(one)
    changed = files(tmp_path, rungs=file_of([row(FAST, 64, 0.5, code_hash="0" * 64)], steps=STEPS))
    (one,) = (one for file in load(changed).batches for one in passes(file))
    assert about_steps(one).endswith(" Stale: the code has changed since.")


@pytest.mark.exhaustive
def test_launches_of_another_device_are_in_the_readme_only(tmp_path: Path, plotted_once: None) -> None:
    place = {"name": "Test H100", "cpu": "", "state": None}
    host = file_of(HOST, device={"name": "Test CPU", "cpu": "Test CPU", "state": None})
    steps = file_of(RUNGS[1:2], steps=STEPS, device=place)
    paths = files(tmp_path, rungs=file_of(RUNGS), host=host, steps=steps)
    folder = tmp_path / "networks" / "resnet18"
    folder.mkdir(parents=True)
    (folder / "README.md").write_text("<!-- batches:start -->\n<!-- batches:end -->")
    results = load(paths)
    (text,) = (new for _, new in readmes.updated(boards(results), tmp_path, [], results.batches).values())
    assert "**convolutions behind the first** | **3** | **–** | **80.0** | **64.0 %** | **625** |" in text
    assert "TFLOP/s. Test H100; `steps.json` (commit 0123456789)." in text
    assert text.count("`steps.json`") == 1  # the other figures were measured on another device
    assert main(["report", *map(str, paths), "--out", str(tmp_path / "out")]) == 0
    assert "Launch by launch" not in (tmp_path / "out" / "report.md").read_text()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"op": "nothing"}, "op: no operation 'nothing'"),
        ({"rows": [RUNGS[0] | {"ms": [0]}]}, r"rows\[0\]\.ms\[0\]"),
        ({"rows": [RUNGS[0] | {"ms": []}]}, r"rows\[0\]\.ms"),
        ({"rows": [RUNGS[0] | {"kind": "theirs"}]}, r"rows\[0\]\.kind"),
        ({"rows": [RUNGS[0] | {"memory": {"weights": -1}}]}, r"rows\[0\]\.memory"),
        ({"rows": [other("library", f"library {n}", 1, 1.0) for n in range(61)]}, "61 programs"),
        ({"steps": [STEPS[0] | {"us": 0}]}, r"steps\[0\]\.us"),
        ({"started": "2999-01-01T00:00:00+00:00"}, "is in the future"),
    ],
)
def test_files_that_are_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    (path,) = files(tmp_path, good=file_of(RUNGS))[1:]
    content = read_json(path)
    del content["sha256"]
    with pytest.raises(DataError, match="sha256 is missing"):
        load([stored(tmp_path, content, "bare.json")])
    bad = files(tmp_path)[0]
    content |= changes
    content["sha256"] = strict.checksum(content)
    with pytest.raises(DataError, match=message):
        load([bad, stored(tmp_path, content, "bad.json")])


def test_readme_of_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "networks" / "resnet18"
    folder.mkdir(parents=True)
    readme = folder / "README.md"
    readme.write_text("before\n<!-- batches:start -->\n<!-- batches:end -->\nafter")
    results = load(all_files(tmp_path))
    (text,) = (new for _, new in readmes.updated(boards(results), tmp_path, [], results.batches).values())
    assert "](../../docs/resnet18.svg)" in text
    assert f"| `{FAST}` | 0.125 | 0.500 |" in text
    assert "| PyTorch eager | `peers` |" in text
    readme.write_text(text)
    assert readmes.updated(boards(results), tmp_path, [], results.batches)[readme] == (text, text)
    assert "Not measured yet: `python benchmarks/resnet_rungs.py" in readmes.updated([], tmp_path)[readme][1]
