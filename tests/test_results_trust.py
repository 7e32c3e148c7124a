"""Results files from strangers: they are read and checked, but never executed or trusted."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from report_records import both, fake_record, fake_row, fake_run, fake_serving, sealed, small, stored

from mini_dnn.cli import main
from mini_dnn.errors import DataError, MiniDnnError
from mini_dnn.measuring.files import read_json, write
from mini_dnn.measuring.records import BenchFile
from mini_dnn.measuring.serving_records import ServingFile
from mini_dnn.report.load import load
from mini_dnn.report.page import write_report
from mini_dnn.report.peers import PeersFile

HEAD = "0123456789abcdef" * 4


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as refused:
        load([path])
    message = str(refused.value)
    assert str(path) in message
    assert "\n" not in message
    return message.replace(str(path), "FILE")


def foreign(folder: Path) -> Path:
    """A variant's folder whose code leaves a trace if it runs."""
    folder.mkdir()
    trace = folder / "ran"
    (folder / "variant.py").write_text(f"open({str(trace)!r}, 'w')\n")
    (folder / "kernel.cu").write_text("")
    return trace


def test_a_report_runs_no_code_that_a_file_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    trace = foreign(tmp_path / "theirs")
    monkeypatch.chdir(tmp_path)
    own = both("m1/direct", 5.0, 9.0)
    named = [str(trace.parent), "theirs", "./theirs", "m1/../../theirs", str(trace.parent / "variant.py")]
    rows = [fake_row(name, 10000, "conv1", 1.0, code_hash=HEAD, source_hash=HEAD) for name in named]
    growth = [row | {"variant": str(trace.parent)} for row in fake_serving()["growth"]]
    latency = [row | {"variant": "theirs"} for row in fake_serving()["latency"]]
    files = [
        stored(tmp_path, fake_record(own + rows), "bench.json"),
        stored(tmp_path, fake_serving(growth=growth, latency=latency), "serving.json"),
    ]
    monkeypatch.setattr("mini_dnn.report.page.figures", lambda board, suffix: [])
    assert main(["report", *map(str, files), "--out", str(tmp_path / "out")]) == 0
    assert not trace.exists()
    said = capsys.readouterr().out
    assert "not looked up, because these are not variants of this checkout" in said
    assert all(name in said for name in named)
    page = (tmp_path / "out" / "report.md").read_text()
    assert re.search(r"no variant of this checkout, so that nothing was looked up: .*`theirs`", page)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"started": "2999-01-01T10:00:00+00:00"}, "started 2999-01-01T10:00:00+00:00 is in the future"),
        ({"started": "2025-13-01T10:00:00+00:00"}, "month must be in 1..12"),
        ({"started": "yesterday"}, "started: Expected `str` matching"),
        ({"rows": None}, "rows: Expected `array`, got `null`"),
        ({"sweeps": None}, "sweeps: Expected `array`, got `null`"),
        ({"skipped": None}, "skipped: Expected `array`, got `null`"),
        ({"dirty": 1}, "dirty: Expected `bool | null`, got `int`"),
        ({"schema": True}, "schema: Expected `int`, got `bool`"),
        ({"data": "two\nlines"}, "data: Expected `str` matching"),
        ({"commit": "\x1b[31m"}, "commit: Expected `str` matching"),
    ],
)
def test_heads_out_of_range_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    assert message in refusal(stored(tmp_path, sealed(small(**change))))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"accuracy": 7.5}, "rows[1].accuracy: Expected `float` <= 1.0"),
        ({"accuracy": -0.1}, "rows[1].accuracy: Expected `float` >= 0.0"),
        ({"op_ms": True}, "rows[1].op_ms: Expected `float | null`, got `bool`"),
        ({"op_ms": -5.0}, "rows[1].op_ms: Expected `float` > 0.0"),
        ({"op_ms": 90.0}, "rows[1]: op_ms_min, op_ms and op_ms_max are not in increasing order: 9, 90, 9"),
        ({"op_ms_quartiles": [3.0, 2.0, 4.0]}, "rows[1]: op_ms_quartiles are not in increasing order"),
        ({"op_ms_quartiles": [-1.0, 9.0, 10.0]}, "rows[1].op_ms_quartiles[0]: Expected `float` > 0.0"),
        ({"op_ms_quartiles": [9.5, 9.6, 9.7]}, "rows[1]: op_ms is 9, which is not between its quartiles"),
        ({"op_ms_quartiles": [3.0, 4.0, 5.0]}, "rows[1]: op_ms is 9, which is not between its quartiles"),
        ({"op_ms_quartiles": [3.0, 4.0]}, "rows[1].op_ms_quartiles: Expected `array` of length >= 3"),
        ({"layer_ms": -1}, "rows[1].layer_ms: Expected `float` >= 0.0"),
        ({"compile_ms": -1}, "rows[1].compile_ms: Expected `float` >= 0.0"),
        ({"max_error": -1e-9}, "rows[1].max_error: Expected `float` >= 0.0"),
        ({"repeats": -1}, "rows[1].repeats: Expected `int` >= 0"),
        ({"repeats": 1.5}, "rows[1].repeats: Expected `int`, got `float`"),
        ({"parts": 0}, "rows[1].parts: Expected `int` >"),
        ({"batch": 100}, "rows[1].batch: found 100; by its shape it is 10000"),
        ({"flops": -1}, "rows[1].flops: Expected `int` >= 0"),
        ({"code_hash": "ab"}, "rows[1].code_hash: Expected `str` matching"),
        ({"precision": "fp128"}, "rows[1].precision: Expected `str` matching"),
        ({"variant": ""}, "rows[1].variant: Expected `str` of length >= 1"),
        ({"variant": "x" * 301}, "rows[1].variant: Expected `str` of length <= 300"),
        ({"variant": "m1/\u202edirect"}, "rows[1].variant: Expected `str` matching"),
        ({"shape": {"N": 10**15}}, "rows[1].shape: found 1 values"),
    ],
)
def test_rows_out_of_range_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    record = small()
    record["rows"][1] |= change
    assert message in refusal(stored(tmp_path, sealed(record)))


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"op_ms": 9.0', '"op_ms": 1e999', "rows[1].op_ms: found inf; expected a finite number"),
        ('"op_ms": 9.0', '"op_ms": NaN', "rows[1].op_ms: found nan; expected a finite number"),
        ('"op_ms": 9.0', '"op_ms": 9.0, "op_ms": 1.0', "rows[1]: the key 'op_ms' occurs twice"),
        ('"op_ms": 9.0', '"op_ms": 9' + "0" * 5000, "rows[1].op_ms: a number of 5,001 characters"),
        ('"op_ms": 9.0', '"op_ms": 9.' + "0" * 5000, "rows[1].op_ms: a number of 5,002 characters"),
        ('"flops": ', '"flops": 9' + "0" * 25, "rows[0].flops: found 9"),
        ('"Test CPU"', '"\\ud800"', r"device.cpu: half of a surrogate pair, which is not text, in '\ud800'"),
        ('"Test CPU"', "[" * 100 + "]" * 100, "nested too deeply: at most 32 levels are expected"),
        ('"Test CPU"', "[" * 100_000 + "]" * 100_000, "nested too deeply: at most 32 levels are expected"),
        ('"Test CPU"', "'Test CPU'", "it is not JSON: Expecting value: line 1"),
        ('"Test CPU"', '"\x00"', "it is not JSON: Invalid control character"),
    ],
)
def test_odd_json_is_refused_with_its_place(before: str, after: str, message: str, tmp_path: Path) -> None:
    text = json.dumps(sealed(small()))
    assert text.count(before) >= 1
    path = tmp_path / "results.json"
    path.write_text(text.replace(before, after, 1))
    assert message in refusal(path)


def test_a_change_after_the_measurement_is_refused(tmp_path: Path) -> None:
    record = sealed(small())
    assert load([stored(tmp_path, record)]).unverified == []
    record["rows"][0]["op_ms_min"] = record["rows"][0]["op_ms"] = 4.9
    assert "its content was changed after it was written" in refusal(stored(tmp_path, record))
    del record["sha256"]
    assert "sha256 is missing, which a file of schema 4 has" in refusal(stored(tmp_path, record))


def test_older_files_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr("mini_dnn.report.page.figures", lambda board, suffix: [])
    old, new = small(schema=3), sealed(small(started="2025-02-01T10:00:00+00:00"))
    paths = [stored(tmp_path, old, "old.json"), stored(tmp_path, new, "new.json")]
    assert [file.name for file in load(paths).unverified] == ["old.json"]
    assert main(["report", *map(str, paths), "--out", str(tmp_path / "out")]) == 0
    assert (
        "not verified, because older versions did not write a checksum: old.json\n" in capsys.readouterr().out
    )
    assert re.search(r"What is not verified\n\n.*`old.json`\.", (tmp_path / "out" / "report.md").read_text())


def test_what_is_written_is_verified(tmp_path: Path) -> None:
    for number, (record, kind) in enumerate(
        [(small(), BenchFile), (fake_serving(schema="serving-3"), ServingFile), (fake_run(), PeersFile)]
    ):
        path = tmp_path / f"{number}.json"
        write(record, path, kind)
        assert "sha256" in read_json(path)


def test_versions_of_a_type_of_their_own_are_written_as_strings(tmp_path: Path) -> None:
    """PyTorch's version is a string type with its own comparisons."""
    version = type("TorchVersion", (str,), {})("2.11.0")
    write(small(versions={"torch": version}), tmp_path / "results.json", BenchFile)
    assert read_json(tmp_path / "results.json")["versions"] == {"torch": "2.11.0"}


@pytest.mark.parametrize("value", [float("nan"), -1.0, True, "5"])
def test_nothing_is_written_that_no_reader_takes(value: object, tmp_path: Path) -> None:
    record = small()
    record["rows"][1]["max_error"] = value
    with pytest.raises(
        MiniDnnError, match=r"is not written, because it could not be read again: rows\[1\].max_error: "
    ):
        write(record, tmp_path / "results.json", BenchFile)
    assert list(tmp_path.iterdir()) == []


def test_more_than_a_page_can_show_is_refused(tmp_path: Path) -> None:
    rows = [fake_row("m1/direct", 100, "conv1", 1.0) | {"variant": f"v{n}"} for n in range(201)]
    assert "201 variants, but a page can show only 200" in refusal(stored(tmp_path, fake_record(rows)))
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(33 << 20)
    assert "it has 34,603,008 bytes; the limit is 33,554,432" in refusal(path)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("unplotted")
def test_a_page_has_room_for_as_many_as_are_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mini_dnn.report.page.figures", lambda board, suffix: [])  # drawing takes ten seconds
    rows = [fake_row("m1/direct", 100, "conv1", 1.0 + n) | {"variant": f"v{n}"} for n in range(200)]
    results = load([stored(tmp_path, fake_record(rows))])
    write_report(results, tmp_path / "out")
    assert "`v199`" in (tmp_path / "out" / "report.md").read_text()


def test_a_clock_that_is_a_little_late_is_no_reason(tmp_path: Path) -> None:
    ahead = (datetime.now(UTC) + timedelta(hours=12)).isoformat(timespec="seconds")
    assert load([stored(tmp_path, sealed(small(started=ahead)))]).rows
