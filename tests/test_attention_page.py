"""The measured part of the page on attention."""

from typing import Any

import attention_page
import pytest
from attention_counters import counted
from matplotlib.figure import Figure

from mini_dnn.errors import DataError
from mini_dnn.profiling.ncu import Kernel
from mini_dnn.report.theme import LIGHT

SIZES = (197, 577, 1025)


def times() -> dict[str, Any]:
    rows = []
    for name, factor in (("attention/v0_naive", 100.0), ("attention/v9_final", 1.0), ("cuDNN", 1.5)):
        for T in SIZES:
            for layout, slower in (("contiguous", 1.0), ("packed", 1.2)):
                shape = f"32,12,{T},64,fp16,{layout}"
                us = [factor * slower * T * T / 1000 + noise for noise in (-1.0, 0.0, 2.0)]
                rows.append(
                    {"problem": shape, "variant": name, "layout": layout, "mode": "written", "us": us}
                )
                rows.append(
                    {"problem": shape, "variant": name, "layout": layout, "mode": "warm", "us": [0.1]}
                )
    return {"device": "a GPU", "commit": {"commit": "0123456789abcdef", "dirty": False}, "rows": rows}


def counters() -> dict[str, Any]:
    metrics = {
        "gpu__time_duration.sum": 2e-5,
        "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed": 12.34,
        "sm__throughput.avg.pct_of_peak_sustained_elapsed": 56.78,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 25.0,
        "launch__occupancy_limit_registers": 2.0,
        "launch__occupancy_limit_shared_mem": 1.0,
    }
    row = {
        "variant": "attention/v9_final",
        **counted(Kernel("attention", "(132, 1, 1)", "(512, 1, 1)", metrics)),
    }
    return {"device": "a GPU", "problem": "32,12,197,64", "rows": [row]}


def test_times_are_those_of_the_better_layout() -> None:
    found = attention_page.times_of(times())
    assert found["cuDNN"] == {T: pytest.approx(1.5 * T * T / 1000) for T in SIZES}
    assert attention_page.rungs(found) == ["attention/v0_naive", "attention/v9_final"]


def test_the_text_has_ours_and_the_originals() -> None:
    text = attention_page.text_of(times(), counters())
    assert "| `attention/v9_final` | 38.8 | 332.9 | 1,050.6 | 27.1 × |" in text
    assert "| v6 | 649 | 3,760 | 11,220 | 17.3 × |" in text
    assert "| `attention/v9_final` | (132, 1, 1) | (512, 1, 1) | 12.3 | 56.8 | 25.0 | 2 | 1 |" in text
    assert "| v0 | (1,12,197) | 256 | 64.89 | 64.89 | 27.65 | 6 | 16 |" in text


def test_files_of_counters_are_one_table() -> None:
    one = counters()
    assert attention_page.together([]) is None
    assert attention_page.together([one, {**one, "rows": []}]) == one
    with pytest.raises(DataError, match="several devices or problems"):
        attention_page.together([one, {**one, "device": "another"}])


def test_without_counters_it_says_how_to_get_them() -> None:
    text = attention_page.text_of(times(), None)
    assert "not measured yet: `python benchmarks/attention_counters.py" in text


@pytest.mark.parametrize(("left_out", "lines"), [(set(), 5), ({"attention/v0"}, 4)])
def test_the_picture_has_a_line_each_and_two_of_growth(left_out: set[str], lines: int) -> None:
    figure = attention_page.draw(attention_page.times_of(times()), left_out, LIGHT)
    assert isinstance(figure, Figure)
    (axes,) = figure.axes
    assert len(axes.lines) == lines
