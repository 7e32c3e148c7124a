"""The report on serving: tables, the plot, the straight line, and refused files."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from report_records import BATCHES, GPU, WHOLE, both, fake_record, fake_serving, stored

from mini_dnn.errors import DataError
from mini_dnn.report.load import load
from mini_dnn.report.page import write_report
from mini_dnn.report.serving import Curve
from mini_dnn.report.serving_page import growth_plot
from mini_dnn.report.theme import LIGHT


def page_of(folder: Path, *records: dict[str, Any]) -> str:
    """The report beside the op times of one variant."""
    op_times = stored(folder, fake_record(both("m1/direct", 2.0, 3.0)))
    files = [stored(folder, record, f"serving{at}.json") for at, record in enumerate(records)]
    write_report(load([op_times, *files]), folder / "out")
    return (folder / "out" / "report.md").read_text()


@pytest.mark.exhaustive
@pytest.mark.usefixtures("plotted_once")
def test_tables_and_plot(tmp_path: Path) -> None:
    page = page_of(tmp_path, fake_serving())
    assert "## Serving" in page
    assert f"| `{WHOLE}` | float32 | one graph | 2,000 | 71.3 | 80.5 | 95.0 | 240 | 55.5 | 1,980 |" in page
    assert f"| `{WHOLE}` | float32 | call by call | 2,000 |" in page
    throughput = "| uint8 | 10,000 | 20 | 1,850,000 | 5.40 | 5.25 | 2.10 | 1.029 | 1,980 |"
    assert f"| `{WHOLE}` {throughput}" in page
    growth = "| 0.0102 | 0.0120 | 0.0300 | 0.210 | 2.01 | 20.0 | 10.0 | 200 | 0.00 % |"
    assert f"| `{WHOLE}` | float32 {growth}" in page
    assert "![Op time per entry](growth.png)" in page
    assert "Warning" not in page
    pixels = np.asarray(Image.open(tmp_path / "out" / "growth.png").convert("L"))
    assert pixels.std() > 10  # the picture is not empty


@pytest.mark.usefixtures("unplotted")
def test_no_part_without_a_file_of_the_device(tmp_path: Path) -> None:
    assert "Serving" not in page_of(tmp_path)
    elsewhere = {"name": GPU + ", another", "cpu": "", "state": None}
    record = fake_serving(device=elsewhere, growth=[])  # otherwise its op times would be used for that device
    assert "Serving" not in page_of(tmp_path, record)


@pytest.mark.usefixtures("unplotted")
def test_later_rows_take_the_place_of_earlier_ones(tmp_path: Path) -> None:
    first, second = fake_serving(), fake_serving(started="2025-01-02T10:00:00+00:00", growth=[], latency=[])
    second["throughput"][0]["over_longer"] = 1.5
    page = page_of(tmp_path, second, first)
    assert "1.500 | 1,980" in page
    assert "1.029 | 1,980" not in page
    assert "Latency of one image" in page


@pytest.mark.usefixtures("unplotted")
def test_what_is_stale_or_changed_is_reported(tmp_path: Path) -> None:
    record = fake_serving(dirty=True)
    record["throughput"][0]["code_hash"] = "0" * 64
    page = page_of(tmp_path, record)
    assert "`serving0.json` was measured with files that differ from its commit" in page
    assert f"stale, the code has changed since: `{WHOLE}`" in page


def test_the_line_and_how_far_times_lie_from_it() -> None:
    n = np.array(BATCHES)
    straight = Curve("v", "conv1", n, np.where(n < 1000, 7.0, 0.02 + n * 3e-4))
    line = straight.line
    assert line is not None
    assert line.op_ms == pytest.approx(0.02)
    assert line.entry_ms == pytest.approx(3e-4)
    assert line.deviation < 1e-9
    bent = Curve("v", "conv1", n, np.where(n == 10_000, 1.1, 1.0) * n * 3e-4).line
    assert bent is not None
    assert 0.04 < bent.deviation < 0.1
    assert Curve("v", "conv1", n[:5], np.ones(5)).line is None


def test_the_plot_shows_a_cost_an_image() -> None:
    n = np.array(BATCHES)
    figure = growth_plot([Curve("m3/x", "conv1", n, 0.02 + n * 3e-4)], LIGHT)
    FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    lines = {line.get_label(): line for line in axes.lines}
    (shown,) = (
        line for name, line in lines.items() if str(name).startswith("m3/x, conv1: from 1,000 within 0.0 %")
    )
    np.testing.assert_allclose(shown.get_ydata(), (0.02 + n * 3e-4) / n * 1e3)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


@pytest.mark.parametrize(
    ("kind", "name", "value", "message"),
    [
        ("latency", "p99_us", "fast", r"latency\[0\]\.p99_us: Expected `float`, got `str`"),
        ("growth", "batch", 0, r"growth\[0\]\.batch: Expected `int` >= 1"),
        ("throughput", "over_longer", None, r"throughput\[0\]\.over_longer: Expected `float`, got `null`"),
        ("throughput", "state", {}, r"throughput\[0\]\.state: Object missing required field `\w+`"),
    ],
)
def test_files_that_are_refused(kind: str, name: str, value: Any, message: str, tmp_path: Path) -> None:
    record = fake_serving()
    record[kind][0][name] = value
    with pytest.raises(DataError, match=message):
        page_of(tmp_path, record)
