"""Limiters found by the emulator and by ncu agree, and the published table shows both."""

import json
import re

import pytest
from brackets import times
from counters_compare import RESULTS
from limiters import by_ncu, summary, watched

from mini_dnn.paths import ROOT
from mini_dnn.profiling.bracket import ISSUE

PUBLISHED = json.loads((RESULTS / "limiters.json").read_text())["rows"]


def test_ncu_limiters_are_those_of_the_measurements() -> None:
    found = {(variant.name, problem.text): by_ncu(launches) for variant, problem, launches in watched()}
    assert len(found) == len(PUBLISHED)
    for row in PUBLISHED:
        ncu_ms, shares, limiter = found[row["variant"], row["problem"]]
        assert (row["ncu_ms"], row["ncu_limiter"]) == (pytest.approx(ncu_ms), limiter)
        assert row["ncu_shares"] == pytest.approx(shares)


def test_latency_is_what_keeps_no_unit_busy() -> None:
    launch = {"gpu__time_duration.sum": 1e-5}
    busy = "dram__throughput.avg.pct_of_peak_sustained_elapsed"
    assert by_ncu([{**launch, busy: 61.0}])[2] == "DRAM"
    assert by_ncu([{**launch, busy: 59.0}])[2] == "latency"
    assert by_ncu([{**launch, busy: 90.0}, launch])[2] == "latency", "of all launches together"


def test_the_page_says_what_the_table_says() -> None:
    right, count, percent, same, factor = re.findall(r"[\d.]+", summary(PUBLISHED))
    text = " ".join((ROOT / "docs" / "counters.md").read_text().split())
    assert f"**{right} of {count} limiters agree ({percent} %)**" in text
    assert f"within a factor of {factor} of ncu's" in text
    assert f"{same} agree" in text
    for row in PUBLISHED:
        if row["limiter"] != row["ncu_limiter"]:
            assert re.search(rf"`(\w+/)?{row['variant'].split('/')[-1]}`", text), "each that differs is named"


@pytest.mark.exhaustive
def test_the_emulator_says_today_what_is_published() -> None:
    row = next(row for row in PUBLISHED if row["variant"] == "m3/stack_2")
    (found,) = (
        times(variant, problem, {launch["kernel"]: int(launch["launch__registers_per_thread"])})
        for variant, problem, (launch, *_) in watched()
        if variant.name == "m3/stack_2"
    )
    assert found is not None
    assert found["limiter"] == row["limiter"]
    exact = row["units_ms"].keys() - {ISSUE}  # an estimate, which depends on the version of g++
    for unit in exact:
        assert found["units_ms"][unit] == pytest.approx(row["units_ms"][unit], rel=1e-6)
