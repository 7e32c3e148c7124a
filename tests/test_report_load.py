"""Results files that the report refuses, and the reasons that it gives."""

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
        ("schema", 5, "sha256 is missing, which a file of schema 5 has"),
        ("device", REMOVED, "Object missing required field `device`"),
        ("device.state.driver", REMOVED, "device.state: Object missing required field `driver`"),
        ("device.state.throttle_reasons", "hot", "device.state.throttle_reasons: Expected `str` matching"),
        ("method.warm_up", "5", "method.warm_up: Expected `int`, got `str`"),
        ("rows.1.op_ms", REMOVED, "rows[1]: Object missing required field `op_ms`"),
        ("rows.1.op_ms", 0, "rows[1].op_ms: Expected `float` > 0.0"),
        ("rows.1.op_ms", float("nan"), "rows[1].op_ms: found nan; expected a finite number"),
        ("rows.1.shape.M", REMOVED, "rows[1].shape: found 6 values; expected 7: N,C,H,W,M,R,S"),
        ("rows.0", 7, "rows[0]: Expected `object`, got `int`"),
        ("rows.0.streams.spans.2.kind", "pause", "rows[0].streams.spans[2].kind: Invalid enum value 'pause'"),
        ("rows.1.op", "conv5d", "rows[1].shape: no operation 'conv5d'"),
        ("rows", [], "no rows"),
        ("memory.copy_gbps", "fast", "memory[...]: Expected `float`, got `str`"),
        ("sweeps.0.op_ms", [[1.0]], "sweeps[0]: op_ms does not have the lengths of x_values and y_values"),
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
    assert "rows[1].op_ms: Expected `float` > 0.0" in refusal(stored(tmp_path, record))


@pytest.mark.parametrize(
    ("name", "message"), [("what", r"rows\[4\]: .* `what`"), ("op_ms", r"rows\[4\]: .* `op_ms`")]
)
def test_damaged_run_is_refused(name: str, message: str, tmp_path: Path) -> None:
    record = fake_run()
    del record["rows"][4][name]
    assert re.search(message, refusal(stored(tmp_path, record)))
    record = fake_run()
    del record["versions"]["cupy"]
    assert "versions.cupy is None; expected a str" in refusal(stored(tmp_path, record))


def test_peers_alone_are_no_results(tmp_path: Path) -> None:
    assert "no rows" in refusal(stored(tmp_path, fake_peers()))


@pytest.mark.parametrize(
    ("text", "message"), [("{", "not JSON"), ("[]", "expected an object, found list"), ("\xff", "not JSON")]
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
