"""Results files that the report refuses, and says why."""

import functools
import json
import re
from pathlib import Path

import pytest
from report_records import CEILINGS, both, fake_peers, fake_record, fake_run, fake_streams, fake_sweep, stored

from mini_dnn.errors import DataError, UsageError
from mini_dnn.report.load import load, results_files

REMOVED = object()


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as refused:
        load([path])
    assert str(path) in str(refused.value)
    assert "run.py bench --out" in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("schema", 3, "schema is 3, and this version reads 1 and 2"),
        ("device", REMOVED, "device is missing"),
        ("device.state.driver", REMOVED, "device.state.driver is missing"),
        ("device.state.throttle_reasons", "hot", "device.state.throttle_reasons is 'hot'"),
        ("method.warm_up", "5", "method.warm_up is '5'; expected int"),
        ("rows.1.op_ms", REMOVED, "rows[1].op_ms is missing"),
        ("rows.1.op_ms", 0, "rows[1].op_ms is 0; expected more than 0"),
        ("rows.1.op_ms", float("nan"), "NaN is no measured number"),
        ("rows.1.shape.M", REMOVED, "rows[1].shape.M is missing"),
        ("rows.0", 7, "rows[0] is 7; expected an object"),
        (
            "rows.0.streams.spans.2.kind",
            "pause",
            "rows[0].streams.spans[2].kind is 'pause'; expected one of copy_in",
        ),
        ("rows", [], "no rows"),
        ("memory.copy_gbps", "fast", "memory.copy_gbps is 'fast'"),
        ("sweeps.0.op_ms", [[1.0]], "sweeps[0].op_ms has other lengths"),
    ],
)
def test_damaged_file_is_refused_by_file_and_field(
    tmp_path: Path, field: str, value: object, message: str
) -> None:
    rows = both("m1/direct", 5.0, 9.0, streams=fake_streams())
    record = fake_record(rows, memory=dict(CEILINGS), sweeps=[fake_sweep("conv1")])
    record = json.loads(json.dumps(record))  # a copy that shares nothing
    *path, last = (int(step) if step.isdigit() else step for step in field.split("."))
    inside = functools.reduce(lambda found, step: found[step], path, record)
    if value is REMOVED:
        del inside[last]
    else:
        inside[last] = value
    assert message in refusal(stored(tmp_path, record))


def test_damaged_peer_is_refused(tmp_path: Path) -> None:
    record = fake_peers()
    record["rows"][1]["op_ms"] = -1
    assert "rows[1].op_ms is -1; expected more than 0" in refusal(stored(tmp_path, record))


@pytest.mark.parametrize(
    ("name", "message"),
    [("what", r"rows\[4\].what is missing"), ("op_ms", r"rows\[4\].op_ms is missing")],
)
def test_damaged_run_is_refused(name: str, message: str, tmp_path: Path) -> None:
    record = fake_run()
    del record["rows"][4][name]
    assert re.search(message, refusal(stored(tmp_path, record)))
    record = fake_run()
    del record["versions"]["cupy"]
    assert "versions.cupy is missing" in refusal(stored(tmp_path, record))


def test_peers_alone_are_no_results(tmp_path: Path) -> None:
    assert "no rows" in refusal(stored(tmp_path, fake_peers()))


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("[]", "schema is None"), ("\xff", "not JSON")]
)
def test_other_files_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text, encoding="latin-1")
    assert message in refusal(path)


def test_no_results_says_how_to_make_some(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(UsageError, match=r"no results: .*run\.py bench --out"):
            results_files([path])
    path = stored(tmp_path, fake_record([]))
    assert results_files([tmp_path]) == [path]
